"""discover --overwrite: nobody loses a run by a slip, or a file that newfound did not write."""

from pathlib import Path

import pytest

from helping.hostile import NO_TRAINING
from helping.pictures import write_folder
from newfound.runs import removing

FAST = [*NO_TRAINING, "--bank-dir", "bank"]
OVER = ["discover", "images", *FAST, "--out", "run", "--overwrite"]


@pytest.fixture
def run(tmp_path, newfound, monkeypatch):
    """A finished run with two seeds, in the current folder."""
    write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    newfound("discover", "images", *FAST, "--out", "run", "--repeat", 2).check_done()
    return Path("run")


def files(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_is_replaced(run, newfound):
    (run / "report.html.tmp").touch()
    newfound(*OVER[:-1]).check_refused("run holds a finished run")
    newfound(*OVER, "--seed", 7).check_done()
    assert "seed = 7" in (run / "config.toml").read_text()
    assert not (run / "seeds").exists()
    assert not (run / "stability.json").exists()


def test_where_there_is_nothing_a_run_begins(run, newfound):
    newfound("discover", "images", *FAST, "--out", "another", "--overwrite").check_done()


SLIPS = [
    (["--classes", "99"], "--classes 99 is too many"),
    (["--seed", "-1"], "--seed must be between"),
    (["--truth", "gone.csv"], "--truth gone.csv: there is no such file"),
    (["--labels", "gone.csv"], "there is no such labels file"),
    (["--backbone", "resnet50"], "resnet50"),
    (["--resume"], "--resume continues a run, --overwrite removes it: give only one of the two"),
    (["--continue", "run"], "--overwrite would remove run, which this run starts from"),
]


@pytest.mark.parametrize(("more", "message"), SLIPS, ids=lambda part: part if isinstance(part, str) else part[0])
def test_a_slip_in_another_option_removes_nothing(run, newfound, more, message):
    before = files(run)
    newfound(*OVER, *more).check_refused(message)
    assert files(run) == before


def test_the_first_training_of_the_run_itself_is_not_removed(run, newfound):
    before = files(run)
    words = ["discover", "images", "--classes", "4", "--out", "run", "--overwrite", "--stage1", "./run"]
    newfound(*words).check_refused("--overwrite would remove run, which this run starts from")
    assert files(run) == before


@pytest.mark.parametrize("words", [[], ["--out", "."], ["--out", ".."]])
def test_the_run_is_named_in_full(run, newfound, monkeypatch, words):
    run.rename("newfound-images")
    monkeypatch.chdir("newfound-images")
    before = files(Path())
    newfound("discover", "../images", *FAST, *words, "--overwrite").check_refused("name it in full with --out RUN")
    assert files(Path()) == before


@pytest.mark.parametrize(
    "place", ["notes.txt", "checkpoint/mine.safetensors", "seeds/1/notes.txt", "seeds/mine/config.toml", "bank/x.f16"]
)
def test_what_newfound_did_not_write_keeps_the_run(run, newfound, place):
    (run / place).parent.mkdir(exist_ok=True)
    (run / place).write_text("mine")
    before = files(run)
    newfound(*OVER).check_refused(f"--overwrite leaves run alone: newfound did not write run/{place}")
    assert files(run) == before


def test_links_are_not_followed(run, newfound, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.toml").write_text("mine")
    (run / "seeds" / "2").symlink_to(tmp_path / "elsewhere")
    newfound(*OVER).check_refused("newfound did not write run/seeds/2")


def test_decisions_are_a_persons_work(run, newfound):
    (run / "decisions.json").write_text("{}")
    before = files(run)
    newfound(*OVER).check_refused("run/decisions.json has what was decided in a review. Move that file away")
    assert files(run) == before


def test_another_folder_is_not_a_run(run, newfound):
    before = files(Path("images"))
    newfound("discover", "images", *FAST, "--out", "images", "--overwrite").check_refused("is not a newfound run")
    assert files(Path("images")) == before


def test_what_torchrun_restarts_continues(run, newfound, monkeypatch):
    """The command has removed the earlier run before; what is there now is its own."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    config = (run / "config.toml").read_bytes().partition(b"[discover]")[0]
    newfound(*OVER, "--no-report").check_done()
    assert (run / "config.toml").read_bytes().startswith(config)
    assert (run / "seeds" / "1" / "assignments.csv").exists()


@pytest.mark.parametrize("name", ["kmeans", "hdbscan", "whitening", "stage2"])
def test_what_a_run_keeps_for_resuming_is_its_own(name):
    assert removing._is_ours(Path("checkpoint", f"{name}.safetensors"))
    assert not removing._is_ours(Path("checkpoint", f"my-{name}.safetensors"))
