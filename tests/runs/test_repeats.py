"""The same run with several seeds, and which of its classes come out again."""

import json
from pathlib import Path

import pytest

from helping.quick_discovery import discover, discover_and_report, fast
from newfound.errors import UserError
from newfound.methods import with_own
from newfound.report.page import read_page
from newfound.runs.folder import RunFolder
from newfound.runs.journal import RunJournal
from newfound.runs.results import read_results
from newfound.runs.stability import compare
from newfound.settings import Settings

pytestmark = pytest.mark.usefixtures("small_projector")


def test_other_seeds_are_runs_of_their_own(folder, tmp_path):
    found = discover_and_report(folder[0], fast(), out=tmp_path / "run", truth=folder[1], repeat=3)
    assert [path.name for path in sorted((found.run / "seeds").iterdir())] == ["1", "2"]
    classes = RunFolder(found.run).settings().classes
    alone = discover(folder[0], fast(classes, seed=2), out=tmp_path / "alone", truth=folder[1])
    for name in ("assignments.csv", "embeddings.npy", "model.safetensors", "metrics.json"):
        assert (alone.run / name).read_bytes() == (found.run / "seeds" / "2" / name).read_bytes()
    written = json.loads((found.run / "stability.json").read_text())
    assert written["seeds"] == [0, 1, 2]
    others = [read_results(found.run / "seeds" / name).assignment for name in ("1", "2")]
    assert found.results.stability == compare([found.results.assignment, *others], [0, 1, 2])
    assert read_page(found.run / "report.html")[0]["stability"]["seeds"] == [0, 1, 2]


def test_seeds_resume_where_they_stopped(folder, tmp_path, monkeypatch):
    settings, real = fast(4), RunJournal.save_epoch
    whole = discover(folder[0], settings, out=tmp_path / "whole", repeat=2)

    def stopped(self, learner, optimiser, checkpoint, entry):
        real(self, learner, optimiser, checkpoint, entry)
        if self._path.name == "1" and entry["stage"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunJournal, "save_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            discover(folder[0], settings, out=tmp_path / "run", repeat=2)
    assert not (tmp_path / "run" / "stability.json").exists()
    discover(folder[0], settings, out=tmp_path / "run", repeat=2, resume=True)
    for name in ("stability.json", "seeds/1/assignments.csv", "assignments.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.run / name).read_bytes()


def test_seeds_are_added_to_a_run_that_has_ended(folder, tmp_path):
    """Its own training is not done again, and its results stay as they are."""
    kept = ("assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors", "log.jsonl")
    one = discover_and_report(folder[0], fast(4), out=tmp_path / "run", repeat=1)
    before = {name: (one.run / name).read_bytes() for name in kept}
    assert one.results.stability is None
    two = discover_and_report(folder[0], fast(4), out=tmp_path / "run", repeat=2, resume=True)
    assert {name: (two.run / name).read_bytes() for name in kept} == before
    assert json.loads((two.run / "stability.json").read_text())["seeds"] == [0, 1]
    other = read_results(two.run / "seeds" / "1").assignment
    assert two.results.stability == compare([one.results.assignment, other], [0, 1])
    assert read_page(two.run / "report.html")[0]["stability"]["seeds"] == [0, 1]


@pytest.mark.parametrize(("repeat", "settings", "message"), [
    (0, {}, "repeat=0 must be 1 or more"),
    (2, {"seed": 2**32 - 1}, "goes beyond the largest seed, 4294967295"),
    (2, {"stage1": Path("other")}, "repeat=2 cannot be combined with stage1"),
])  # fmt: skip
def test_seeds_that_make_no_sense(tmp_path, repeat, settings, message):
    with pytest.raises(UserError, match=message):
        discover(tmp_path / "nowhere", with_own(Settings(4), settings), repeat=repeat)
