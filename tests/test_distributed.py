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

from helping.patience import PATIENCE
from helping.pictures import write_class_folders
from newfound import Settings
from newfound.app.wardrobe import unpack_wardrobe
from newfound.discovery import discover

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
SMALL = str(Path(__file__).parent / "helping" / "small_newfound.py")
QUICK = {"classes": 8, "epochs": 3, "image_size": 32, "bank_views": 2, "batch_size": 8}


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


def start(folder: Path, out: Path, bank: Path, *more: str) -> subprocess.Popen:
    command = [*TORCHRUN, "2", SMALL, "discover", str(folder), *words_of(QUICK)]
    command += ["--out", str(out), "--bank-dir", str(bank), "--no-report", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended_well(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    return out


def process_of(launcher: int, rank: int) -> int:
    """Which of torchrun's children has that number."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return next(int(pid) for pid in children if f"RANK={rank}".encode() in _environment(pid))


def _environment(pid: str) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


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
    program = Path(__file__).parent / "helping" / "several_processes.py"
    subprocess.run([*TORCHRUN, "3", str(program)], check=True, timeout=PATIENCE, capture_output=True)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
@pytest.mark.usefixtures("small_projector")
def test_two_processes_make_the_run_of_one_even_if_one_is_killed(photos, tmp_path):
    alone = discover(photos, Settings(**QUICK), out=tmp_path / "alone", report=False)

    killed = start(photos, tmp_path / "two", tmp_path / "bank")
    second = tmp_path / "two" / "checkpoint" / "stage2.safetensors"
    while len(log := log_of(tmp_path / "two")) < 4 or not second.exists():
        assert killed.poll() is None
        time.sleep(0.01)
    assert_same_log(log, log_of(alone.run)[: len(log)])
    os.kill(process_of(killed.pid, rank=1), signal.SIGKILL)
    out, err = killed.communicate(timeout=PATIENCE)
    assert killed.returncode != 0
    assert re.search("another process of (the|this) run has .*with --resume continues from the last checkpoint", err)
    assert not (tmp_path / "two" / "assignments.csv").exists()
    assert out.count("48 images: 15 labelled in 5 known classes") == 1  # the first process speaks, the other is silent
    assert len(list((tmp_path / "bank").glob("*/shard-*.f16"))) == 2  # each has built its half

    out = ended_well(start(photos, tmp_path / "two", tmp_path / "bank", "--resume"))
    assert out.count("resuming after epoch") == out.count("Discovered classes") == 1
    assert_same_run(tmp_path / "two", alone.run)


@pytest.mark.long
def test_two_processes_with_two_seeds_and_a_page(photos, tmp_path):
    command = [*TORCHRUN, "2", SMALL, "discover", str(photos), *words_of({**QUICK, "epochs": 1, "batch_size": 48})]
    command += ["--out", str(tmp_path / "two"), "--bank-dir", str(tmp_path / "bank"), "--repeat", "2"]
    out = ended_well(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert out.count("seed 1, 2 of 2") == out.count("Discovered classes") == 1
    assert json.loads((tmp_path / "two" / "stability.json").read_text())["seeds"] == [0, 1]
    assert (tmp_path / "two" / "report.html").exists()


def test_a_mistake_is_printed_once(tmp_path):
    process = start(tmp_path / "nowhere", tmp_path / "run", tmp_path / "bank")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert err.count("newfound: ") == 1
    assert "nowhere" in err
    assert "app/main.py" not in err  # torchrun has a traceback of its own; we have none


def test_an_option_that_does_not_exist_is_named_once(tmp_path):
    process = start(tmp_path, tmp_path / "run", tmp_path / "bank", "--oops")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert (out + err).count("Unrecognized options: --oops") == 1


def test_one_of_three_has_the_last_word(tmp_path):
    """Whoever is first to speak, nobody else prints, and nobody leaves before it is printed."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    program, said = Path(__file__).parent / "helping" / "last_words.py", tmp_path / "said.txt"
    with open(said, "w") as file:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "PYTHONUNBUFFERED": "1"}
        started = [
            subprocess.Popen(
                [sys.executable, program], stdout=file, stderr=file, env=os.environ | place | {"RANK": rank}
            )
            for rank in "012"
        ]
        assert [process.wait(PATIENCE) for process in started] == [0, 0, 0]
    first, *others = said.read_text().splitlines()
    assert re.fullmatch(r"newfound: (process [12] on .*: )?something is wrong", first)
    assert sorted(others) == ["0 left", "1 left", "2 left"]


@pytest.mark.long
def test_a_study_of_two_processes(tmp_path):
    images, lists = write_class_folders(tmp_path)
    command = [*TORCHRUN, "2", SMALL, "study", "tsne", "--dataset", "folder", "--root", str(images)]
    command += ["--lists", str(lists), "--seeds", "0", "--backbone", "efficientnet_lite0", "--out", str(tmp_path / "s")]
    command += words_of({"epochs": 1, "image_size": 32, "bank_views": 2, "batch_size": 8, "bank_dir": tmp_path / "b"})
    text = ended_well(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert text.count("3 runs to do") == text.count("the first training is that of") == 1
    assert (tmp_path / "s" / "tsne.png").exists()
