"""docs/tutorial.md, command by command, on a small folder."""

import csv
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from helping.live_review import live
from helping.pictures import picture, write_folder
from newfound.app import main as cli

TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ newfound (.+)$", TUTORIAL, re.MULTILINE)
QUICK = ["--epochs", "2", "--image-size", "32", "--bank-views", "2", "--batch-size", "12"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the reader stands: photos/ and tomorrow/."""
    write_folder(tmp_path, each=10)[0].rename(tmp_path / "photos")
    (tmp_path / "tomorrow").mkdir()
    for colour in ("red", "blue"):
        picture(colour, 77).save(tmp_path / "tomorrow" / f"{colour}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def type_in(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["newfound", *words])
    cli.main()


def decide_as_told(run):
    """What the tutorial does in the browser, sent as its page sends it."""
    with live(run) as server:
        state = server.state()
        new = [c["id"] for c in state["classes"] if c["kind"] == "new"]
        assert server.decide(action="rename", **{"class": new[0]}, name="sandals", revision=0)[0] == 200
        image = state["class_of"].index(new[0])
        assert server.decide(action="judge", images=[image], verdict=1, revision=1)[0] == 200
        said = server.stop()
    (command,) = re.findall(r"^ +newfound (discover .+)$", said, re.MULTILINE)
    return command


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("small_projector")
def test_the_tutorial(place, monkeypatch, capsys):
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "count":
            words += ["--image-size", "32"]
        if words[0] == "discover":
            words += QUICK if "--continue" in words else [*QUICK, "--classes", "4"]
        if words[0] == "review":
            told = shlex.split(decide_as_told(place / words[1]))
            assert told[1:4] == [str(place / "photos"), "--continue", str(place / words[1])]
        else:
            type_in(words, monkeypatch)
    assert [command.split()[0] for command in COMMANDS] == [
        "count", "discover", "review", "discover", "predict", "export", "export",
    ]  # fmt: skip
    second = rows(place / "newfound-photos-2" / "assignments.csv")
    assert any(row["given_label"] == "sandals" for row in second)
    assert {row["file"] for row in rows(place / "predictions.csv")} == {"tomorrow/red.png", "tomorrow/blue.png"}
    assert sum(1 for _ in (place / "sorted").rglob("*.png")) == len(second)
    assert (place / "clothes.onnx").stat().st_size > 1_000_000
    assert json.loads((place / "newfound-photos" / "decisions.json").read_text())["revision"] == 2
    assert "newfound review newfound-photos" in capsys.readouterr().out
