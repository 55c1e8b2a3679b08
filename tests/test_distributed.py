"""One process and several are the same run; one that dies ends it with a word, and it can be resumed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helping import last_words, several_processes
from helping.patience import PATIENCE
from helping.pictures import write_class_folders
from helping.preloaded import Ranks, small_newfound
from newfound import Settings
from newfound.app.wardrobe import unpack_wardrobe
from newfound.discovery import discover

QUICK = {"classes": 8, "epochs": 3, "image_size": 32, "bank_views": 2, "batch_size": 8}


class Torchrun:
    """The command in several processes that torchrun starts, which takes its time."""

    def __init__(self, count: int, *words: str) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
        command += ["-m", "helping.small_newfound", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def poll(self) -> int | None:
        return self._process.poll()

    def communicate(self) -> tuple[str, str]:
        return self._process.communicate(timeout=PATIENCE)

    def pid_of(self, rank: int) -> int:
        """Which of torchrun's children has that number."""
        launcher = self._process.pid
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        return next(int(pid) for pid in children if f"RANK={rank}".encode() in _environment(pid))


class Preloaded(Ranks):
    """The same, started at once."""

    def __init__(self, count: int, *words: str) -> None:
        super().__init__(count, small_newfound, *words)

    def pid_of(self, rank: int) -> int:
        return self.programs[rank].pid


def _environment(pid: str) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.fixture
def photos(tmp_path):
    """48 of the wardrobe, 3 of each known class labelled: 6 steps an epoch, 36 in all."""
    wardrobe, _ = unpack_wardrobe(tmp_path / "sample")
    for folder in wardrobe.iterdir():
        for photo in sorted(folder.iterdir())[33 if folder.name == "unlabelled" else 3 :]:
            photo.unlink()
    return wardrobe


def words_of(settings):
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def words_for(folder: Path, out: Path, bank: Path, *more: str) -> list[str]:
    command = ["discover", str(folder), *words_of(QUICK), "--out", str(out), "--bank-dir", str(bank), "--no-report"]
    return [*command, *more]


def ended_well(job: Torchrun | Preloaded) -> str:
    out, err = job.communicate()
    assert job.poll() == 0, out + err
    return out


def log_of(run: Path, name: str = "log.jsonl") -> list[dict]:
    """So far: the last line may be being written."""
    text = (run / name).read_text() if (run / name).exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def assert_same_run(run: Path, other: Path) -> None:
    """The weights of both trainings, the losses, and which images were anchors.

    Sums in another order differ in their last digit, and with a small projector training lets that grow to the fourth
    within 36 steps. A gradient that lacks a share shows in the first. That the mathematics agree to 1e-13 is shown in
    double precision by `several_processes.py`.
    """
    for stage in (1, 2):
        ours, theirs = (load_file(path / "checkpoint" / f"stage{stage}.safetensors") for path in (run, other))
        assert ours.keys() == theirs.keys()
        assert torch.equal(ours["labels"], theirs["labels"])  # with the anchors of the last epoch
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-2, atol=1e-2)
    assert_same_log(log_of(run), log_of(other))
    anchors = log_of(run, "anchors.jsonl")
    assert any(line["anchors"] for line in anchors)
    assert [line["per_class"] for line in anchors] == [line["per_class"] for line in log_of(other, "anchors.jsonl")]


def assert_same_log(log: list[dict], other: list[dict]) -> None:
    for ours, theirs in zip(log, other, strict=True):
        assert ours["total"] == pytest.approx(theirs["total"], abs=1e-3)
        assert ours["anchors"] == theirs["anchors"]


def test_gradients_of_three_processes_are_those_of_one():
    together = Ranks(3, several_processes.main)
    _, err = together.communicate()
    assert together.poll() == 0, err


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")


@pytest.mark.parametrize("start", [Preloaded, pytest.param(Torchrun, marks=[pytest.mark.long, needs_proc])])
@pytest.mark.usefixtures("small_projector")
def test_two_processes_make_the_run_of_one_even_if_one_is_killed(start, photos, tmp_path):
    alone = discover(photos, Settings(**QUICK), out=tmp_path / "alone", report=False)

    words = words_for(photos, tmp_path / "two", tmp_path / "bank")
    killed = start(2, *words)
    second = tmp_path / "two" / "checkpoint" / "stage2.safetensors"
    while len(log := log_of(tmp_path / "two")) < 4 or not second.exists():
        assert killed.poll() is None
        time.sleep(0.01)
    assert_same_log(log, log_of(alone.run)[: len(log)])
    os.kill(killed.pid_of(rank=1), signal.SIGKILL)
    out, err = killed.communicate()
    assert killed.poll() != 0
    assert re.search(
        "another process of (the|this) run has .*newfound resume .* continues from the last checkpoint", err
    )
    assert not (tmp_path / "two" / "assignments.csv").exists()
    assert out.count("48 images: 15 labelled in 5 known classes") == 1  # the first process speaks, the other is silent
    assert len(list((tmp_path / "bank").glob("*/shard-*.f16"))) == 2  # each has built its half

    out = ended_well(start(2, "resume", str(tmp_path / "two")))
    assert out.count("resuming after epoch") == out.count("Discovered classes") == 1
    assert_same_run(tmp_path / "two", alone.run)


def test_two_processes_with_two_seeds_and_a_page(photos, tmp_path):
    words = ["discover", str(photos), *words_of({**QUICK, "epochs": 1, "batch_size": 48})]
    words += ["--out", str(tmp_path / "two"), "--bank-dir", str(tmp_path / "bank"), "--repeat", "2"]
    out = ended_well(Preloaded(2, *words))
    assert out.count("seed 1, 2 of 2") == out.count("Discovered classes") == 1
    assert json.loads((tmp_path / "two" / "stability.json").read_text())["seeds"] == [0, 1]
    assert (tmp_path / "two" / "report.html").exists()


@pytest.mark.parametrize("start", [Preloaded, pytest.param(Torchrun, marks=pytest.mark.long)])
def test_a_mistake_is_printed_once(tmp_path, start):
    job = start(2, *words_for(tmp_path / "nowhere", tmp_path / "run", tmp_path / "bank"))
    _, err = job.communicate()
    assert job.poll() != 0
    assert err.count("newfound: ") == 1
    assert "nowhere" in err
    assert "app/main.py" not in err  # torchrun has a traceback of its own; we have none


def test_an_option_that_does_not_exist_is_named_once(tmp_path):
    job = Preloaded(2, *words_for(tmp_path, tmp_path / "run", tmp_path / "bank", "--oops"))
    out, err = job.communicate()
    assert job.poll() != 0
    assert (out + err).count("Unrecognized options: --oops") == 1


def test_one_of_three_has_the_last_word():
    """Whoever is first to speak, nobody else prints, and nobody leaves before it is printed."""
    job = Ranks(3, last_words.main)
    _, err = job.communicate()
    assert job.poll() == 0, err
    first, *others = err.splitlines()
    assert re.fullmatch(r"newfound: (process [12] on .*: )?something is wrong", first)
    assert sorted(others) == ["0 left", "1 left", "2 left"]


@pytest.mark.long
def test_a_study_of_two_processes(tmp_path):
    images, lists = write_class_folders(tmp_path)
    words = ["study", "tsne", "--dataset", "folder", "--root", str(images)]
    words += ["--lists", str(lists), "--seeds", "0", "--backbone", "efficientnet_lite0", "--out", str(tmp_path / "s")]
    words += words_of({"epochs": 1, "image_size": 32, "bank_views": 2, "batch_size": 8, "bank_dir": tmp_path / "b"})
    text = ended_well(Preloaded(2, *words))
    assert text.count("3 runs to do") == text.count("the first training is taken from") == 1
    assert (tmp_path / "s" / "tsne.png").exists()
