"""A finished run in Python: its classes, tables and pages."""

import asyncio
import os
import shutil
import signal
import sys
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest

from newfound import Discovery, UserError
from newfound.finished import FoundClass
from newfound.report.page import read_page
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results


@pytest.fixture
def found(small, tmp_path):
    """A copy of the small run, to decide on."""
    shutil.copytree(small.run.path, tmp_path / "run")
    return Discovery.load(str(tmp_path / "run"))


def decide(found, **decision):
    log = DecisionLog(read_results(found.run))
    log.decide(decision, log.revision)


def test_classes_are_known_ones_then_new_ones(found):
    assert [(c.name, c.is_new, c.size, c.labelled) for c in found.classes] == [
        ("cat", False, 40, 20), ("dog", False, 40, 20), ("new-1", True, 40, 0), ("new-2", True, 40, 0),
    ]  # fmt: skip
    first = found.classes[0]
    assert first.files[:2] == ("part 0/image156.png", "part 2/image152.png")  # the most certain
    assert "files" not in repr(first)
    members = found.results.assignment.classes == 0
    assert first.confidence == pytest.approx(found.results.assignment.confidence[members].mean())


def test_a_run_may_be_a_string(small):
    assert Discovery(str(small.run.path)) == Discovery.load(small.run.path)
    with pytest.raises(UserError, match="run must be a path"):
        Discovery(None)


def test_classes_are_those_of_a_review(found):
    decide(found, action="rename", **{"class": 2}, name="fox")
    decide(found, action="merge", classes=[3], into=0)
    assert [(c.name, c.is_new, c.size) for c in found.classes] == [
        ("cat", False, 80), ("dog", False, 40), ("fox", True, 40),
    ]  # fmt: skip


def test_a_class_without_images(found):
    decide(found, action="move", images=list(found.classes[3].files), to=0)
    empty = found.classes[3]
    assert (empty.size, empty.files) == (0, ())
    assert np.isnan(empty.confidence)
    assert isinstance(empty, FoundClass)


def test_a_table_for_pandas(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    decide(found, action="rename", **{"class": 2}, name="fox")
    decide(found, action="dismiss", **{"class": 3})
    table = found.to_pandas()
    assert list(table) == ["file", "given_label", "class", "is_new", "decided_by", "model_class", "confidence",
                           "runner_up", "runner_up_confidence", "is_anchor"]  # fmt: skip
    assert [len(column) for column in table.values()] == [160] * 10
    row = [column[2] for column in table.values()]
    assert row[:6] == ["part 2/image002.png", None, "fox", True, "model", "new-1"]
    assert (table["class"][3], table["is_new"][3], table["model_class"][3]) == (None, False, "new-2")
    assert table["given_label"][0] == "cat"


def test_without_pandas(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"to_pandas\(\) needs the package pandas .*pip install pandas"):
        found.to_pandas()


def test_the_page_is_written_if_there_is_none_or_again(found):
    page = found.report(screen=False)
    assert page == found.run / "report.html"
    decide(found, action="rename", **{"class": 2}, name="fox")
    before = page.stat().st_mtime_ns
    assert found.report(screen=False).stat().st_mtime_ns == before
    assert "fox" not in str(read_page(page)[0]["state"])
    found.report(again=True, screen=False)
    assert "fox" in str(read_page(page)[0]["state"])


@pytest.fixture
def no_loop_at_work():
    """Playwright keeps an event loop running in this thread if a test of the page came before."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)


@pytest.mark.usefixtures("no_loop_at_work")
@pytest.mark.parametrize("in_a_notebook", [False, True])
def test_a_review_ends_when_it_is_interrupted(found, monkeypatch, capsys, in_a_notebook):
    """In a notebook an event loop is at work already."""
    asked = []

    def open_browser(address):
        with urllib.request.urlopen(address) as page:
            asked.append(page.status)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("webbrowser.open", open_browser)
    found.report(screen=False)

    async def cell():
        found.review()

    if in_a_notebook:
        loop = asyncio.new_event_loop()  # asyncio.run would answer the interrupt itself
        loop.run_until_complete(cell())
        loop.close()
    else:
        found.review()
    assert asked == [200]
    assert "No decisions made" in capsys.readouterr().out


def test_folders_that_are_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"^photos is not a newfound run: .* Give the folder that the run was written"):
        Discovery.load("photos")
    (tmp_path / "newfound-photos").mkdir()
    with pytest.raises(UserError, match=r"^photos is not a newfound run: .* Did you mean newfound-photos\?$"):
        Discovery.load("photos")
    (tmp_path / "photos" / "config.toml").touch()
    with pytest.raises(
        UserError, match=r"^photos has no assignments\.csv: .* Resume it: discover with the same folder, resume=True$"
    ):
        Discovery.load("photos")
    with pytest.raises(UserError, match=r"^nowhere: there is no such run folder$"):
        Discovery.load("nowhere")
    with pytest.raises(UserError, match=r"^run must be a path: a string, or a pathlib\.Path; found run=5$"):
        Discovery.load(5)
