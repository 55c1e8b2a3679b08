"""docs/python.md, block by block, on a small folder."""

import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import newfound
from helping.pictures import picture, write_folder
from helping.quick_discovery import FAST, discover_and_report
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the reader stands: photos, tomorrow and truth.csv; and nobody to review."""
    images, truth = write_folder(tmp_path, each=10)
    images.rename(tmp_path / "photos")
    truth.rename(tmp_path / "truth.csv")
    (tmp_path / "tomorrow").mkdir()
    for colour in ("red", "blue"):
        picture(colour, 77).save(tmp_path / "tomorrow" / f"{colour}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(newfound, "discover", quick, raising=False)
    monkeypatch.setattr("newfound.review.review", rename_the_last_class)
    return tmp_path


def quick(*arguments, **keywords):
    """`discover` with fewer classes and epochs than the page has, where it has any."""
    fewer = {"classes": 4} if "classes" in keywords else {}
    return discover_and_report(
        *arguments, **{**FAST, **keywords, **fewer, **({"epochs": 2} if "epochs" in keywords else {})}
    )


def rename_the_last_class(run, **_):
    log = DecisionLog(read_results(run))
    log.decide({"action": "rename", "class": 3, "name": "sandals"}, log.revision)


@pytest.mark.usefixtures("small_projector")
def test_every_block_runs(place, monkeypatch, capsys):
    names = {}
    for number, block in enumerate(BLOCKS):
        with monkeypatch.context() as patch:
            if "to_pandas" in block and importlib.util.find_spec("pandas") is None:
                patch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
            exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    assert len(BLOCKS) == PAGE.count("```python") > 10
    assert names["found"].run == Path("newfound-photos")
    assert names["again"].classes[-1].name == "sandals"
    assert names["second"].results.run.path == Path("newfound-photos-2")
    said = capsys.readouterr().out
    assert "epoch=30 is not a setting of sdas (did you mean epochs?)" in said
    assert (place / "tomorrow.csv").is_file()


def test_the_table_of_columns_is_complete(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    rows = PAGE.split("| column of `to_pandas()`")[1].split("\n\n")[0]
    first_cells = " ".join(re.findall(r"^\| (`[^|]+) \|", rows, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(newfound.Discovery.load(small.run.path).to_pandas())
