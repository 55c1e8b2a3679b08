"""A run is resumed by its name alone: config.toml has the rest."""

import shutil
import tomllib
from pathlib import Path

import pytest

from helping.hostile import NO_TRAINING
from helping.quick_discovery import discover, fast
from newfound.errors import UserError
from newfound.runs.journal import RunJournal
from newfound.runs.places import runs_nearby
from newfound.runs.resuming import how_started

pytestmark = pytest.mark.usefixtures("small_projector")

FAST = ["--classes", "4", "--epochs", "2", "--image-size", "32", "--bank-views", "2", "--batch-size", "12"]
RESULTS = ("assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors", "metrics.json", "stability.json")


def stopped_in(monkeypatch, newfound, *words, stage=2, epoch=1, seed=None):
    """Run a command that is interrupted after an epoch of a training."""
    save = RunJournal.save_epoch

    def interrupted(self, learner, optimiser, checkpoint, entry):
        save(self, learner, optimiser, checkpoint, entry)
        if (entry["stage"], entry["epoch"]) == (stage, epoch) and (seed is None or self._path.name == str(seed)):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunJournal, "save_epoch", interrupted)
        assert newfound(*words).status == 130


def test_nothing_else_is_needed_and_from_anywhere(folder, tmp_path, newfound, monkeypatch):
    """Images, labels, truth, bank, seeds and whether there is a page: relative places, and another current folder."""
    labels = tmp_path / "labels.csv"
    labels.write_text("file,label\nred/001.png,crimson\ngreen/007.png,moss\n")
    monkeypatch.chdir(tmp_path)
    words = ["discover", "images", *FAST, "--labels", "labels.csv", "--truth", "truth.csv", "--bank-dir", "bank"]
    words += ["--repeat", "2", "--no-report", "--out"]
    newfound(*words, "whole").check_done()
    stopped_in(monkeypatch, newfound, *words, "stopped", seed=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    answer = newfound("resume", "../stopped")
    answer.check_done()
    assert "seed 1, 2 of 2" in answer.out
    assert "newfound review ../stopped" in answer.out
    for name in RESULTS:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes(), name
    assert not (tmp_path / "stopped" / "report.html").exists()
    assert list(elsewhere.iterdir()) == []


def test_skipped_files_are_counted_once(folder, tmp_path, newfound, monkeypatch):
    """Not again for every seed, nor when the run is resumed and skips the same files."""
    monkeypatch.chdir(tmp_path)
    (folder[0] / "notes.txt").write_text("not an image")
    words = ["discover", "images", *FAST, "--repeat", "2", "--no-report", "--out"]
    assert newfound(*words, "whole").out.count("1 file skipped") == 1
    stopped_in(monkeypatch, newfound, *words, "stopped", seed=1)
    assert "skipped" not in newfound("resume", "stopped").out
    (folder[0] / "more.txt").write_text("another one")
    assert newfound("resume", "stopped").out.count("2 files skipped") == 1


def test_a_round_is_resumed_as_one(folder, tmp_path, newfound, monkeypatch):
    monkeypatch.chdir(tmp_path)
    newfound("discover", "images", *FAST, "--no-report", "--out", "run").check_done()
    words = ["discover", "images", *FAST[2:], "--no-report", "--continue", "run", "--out"]
    newfound(*words, "whole").check_done()
    stopped_in(monkeypatch, newfound, *words, "stopped")
    newfound("resume", "stopped").check_done()
    for name in ("assignments.csv", "round.json"):
        assert Path("whole", name).read_bytes() == Path("stopped", name).read_bytes()


def test_the_last_options_are_those_that_are_resumed(folder, tmp_path):
    found = discover(folder[0], fast(4), out=tmp_path / "run")
    started = how_started(found.run)
    assert (started.folder, started.truth, started.repeat, started.report) == (folder[0], None, 1, False)
    discover(folder[0], fast(4), out=tmp_path / "run", truth=folder[1], resume=True)
    assert how_started(found.run).truth == folder[1]
    config = (found.run / "config.toml").read_bytes()
    discover(folder[0], fast(4), out=tmp_path / "run", truth=folder[1], resume=True)
    assert (found.run / "config.toml").read_bytes() == config


@pytest.fixture
def begun(folder, newfound, tmp_path, monkeypatch):
    """A run in the current folder that took no training."""
    monkeypatch.chdir(tmp_path)
    newfound("discover", "images", *NO_TRAINING, "--out", "run").check_done()
    return tmp_path / "run"


def test_a_run_that_does_not_say_how_it_was_started(begun, newfound):
    config = begun / "config.toml"
    config.write_text(config.read_text().partition("[discover]")[0])
    newfound("resume", "run").check_refused("does not say how the run was started: it is from an earlier version")
    newfound("discover", "images", *NO_TRAINING, "--out", "run", "--resume").check_done()
    newfound("resume", "run").check_done()  # now it does


@pytest.mark.parametrize("spoilt", ['repeat = "many"', "repeat = true", "truth = 3"])
def test_what_is_not_as_a_run_writes_it(begun, newfound, spoilt):
    config = begun / "config.toml"
    config.write_text(config.read_text().partition("[discover]")[0] + f"[discover]\nreport = true\n{spoilt}\n")
    newfound("resume", "run").check_refused("config.toml is malformed: it has")


def test_one_seed_of_a_run_is_not_resumed_alone(begun):
    one = shutil.copytree(begun, begun / "seeds" / "1")
    with pytest.raises(UserError, match=r"is the run of one seed of .*run\. Resume all of it: newfound resume .*run$"):
        how_started(one)


def test_images_that_are_gone_are_named(begun, newfound):
    folder = tomllib.loads((begun / "config.toml").read_text())["data"]["folder"]
    shutil.move(folder, begun.parent / "moved")
    newfound("resume", "run").check_refused(f"{folder}: there is no such folder")


@pytest.mark.parametrize("words", [["resume", "rnu"], ["discover", "images", *FAST, "--out", "rnu", "--resume"]])
def test_a_typing_slip_starts_no_run(begun, newfound, words):
    """And names the runs that there are, those of similar names first."""
    shutil.copytree(begun, begun.parent / "birds")
    (begun.parent / "site").mkdir()
    (begun.parent / "site" / "config.toml").touch()  # of some other program
    before = sorted(begun.parent.iterdir())
    newfound(*words).check_refused("rnu: there is no run to resume here. Runs nearby: run, birds.")
    assert sorted(begun.parent.iterdir()) == before


def test_where_there_is_no_run_at_all(tmp_path, newfound, monkeypatch):
    monkeypatch.chdir(tmp_path)
    newfound("resume", "gone/run").check_refused(
        "gone/run: there is no run to resume here. Start one: newfound discover FOLDER."
    )
    assert runs_nearby(Path("gone/run")) == []


def test_a_command_that_torchrun_restarts_continues(begun, newfound, monkeypatch):
    words = ["discover", "images", *NO_TRAINING, "--out", "run"]
    newfound(*words).check_refused("run holds a finished run")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    newfound(*words).check_done()
    newfound(*words[:-1], "new").check_done()  # stopped before it had begun
