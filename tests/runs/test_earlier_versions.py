"""Runs of earlier versions: their results can be used, they cannot be resumed."""

import json
import re
import shlex
import shutil

import pytest
import uvicorn

from helping import hostile
from helping.earlier_versions import EARLIER, make_earlier
from helping.hostile import FAST, NO_TRAINING, RUN, rows_of
from helping.pictures import write_folder
from newfound.app.main import parsed
from newfound.discovery import discover
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results
from newfound.settings import Settings, method_name


@pytest.fixture(scope="module", params=EARLIER)
def made(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(request.param)
    images, _ = write_folder(root, each=4)
    training = {} if request.param == "kmeans" else {"epochs": 1}
    settings = Settings(4, request.param, image_size=32, bank_views=2, bank_dir=root / "banks", **training)
    with pytest.MonkeyPatch.context() as patch:
        hostile.make_quick(patch)
        discover(images, settings, out=root / "run", report=False)
    make_earlier(root / "run", request.param)
    return root, request.param


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """A copy, in the current folder; its name is that of its method."""
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(made[0]), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "run").rename(tmp_path / made[1])


def test_it_is_of_its_method(run):
    assert method_name(read_results(run).settings) == run.name


def test_report(run, newfound):
    newfound("report", run.name).check_done()
    assert "temperature" in (run / "report.html").read_text()


def test_predict(run, newfound):
    """What the run itself found."""
    newfound("predict", run.name, "images", "--refused", 0, "--out", "table.csv").check_done()
    found = {row["file"].removeprefix("images/"): row["class"] for row in rows_of("table.csv")}
    assert found == {row["file"]: row["class"] for row in rows_of(run / "assignments.csv")}


def test_export(run, newfound, tmp_path):
    newfound("export", run.name, "--folders", "copies", "--label-studio", "tasks.json").check_done()
    assert (
        len(json.loads((tmp_path / "tasks.json").read_text())) == len(list((tmp_path / "copies").rglob("*.png"))) == 16
    )


def test_review_and_the_next_round(run, newfound, monkeypatch):
    """The command that the review prints can be typed, and makes the next round."""
    log = DecisionLog(read_results(run))
    log.decide({"action": "rename", "class": 2, "name": "sky"}, log.revision)
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    answer = newfound("review", run.name, "--no-browser")
    answer.check_done()
    (command,) = re.findall(r"^ +newfound (discover .+)$", answer.out, re.MULTILINE)
    words = shlex.split(command)
    assert method_name(parsed(words).settings) == run.name
    newfound(*words, "--no-report").check_done()
    assert "sky" in (run.with_name(f"{run.name}-2") / "classes.csv").read_text()


def test_resuming_is_refused_in_one_sentence(run, newfound):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    options = NO_TRAINING if run.name == "kmeans" else ["--method", run.name, *RUN]
    answer = newfound("discover", "images", "--out", run.name, "--resume", "--bank-dir", "banks", *options)
    answer.check_refused(
        "was begun by an earlier version of newfound: its results can be used, but it cannot be resumed"
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_its_first_training_is_not_taken(run, newfound):
    answer = newfound("discover", "images", "--stage1", run.name, "--bank-dir", "banks", *FAST, "--out", "next")
    answer.check_refused(
        "there is no run of this" if run.name == "kmeans" else "was made by an earlier version of newfound"
    )
