"""The command as a person types it."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version

from helping.pictures import write_folder
from newfound.runs.journal import RunJournal

WITH_REPORT = ["--epochs", "3", "--image-size", "32", "--bank-views", "2", "--batch-size", "12"]
FAST = [*WITH_REPORT, "--no-report"]


def command(*args, cwd):
    """In a process of its own; the fixture `newfound` is quicker and runs it in this one."""
    words, wide = [sys.executable, "-m", "newfound", *map(str, args)], {**os.environ, "COLUMNS": "140"}
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=wide, check=False)


def test_discover_ends_with_a_table_and_the_place(tmp_path):
    images, truth = write_folder(tmp_path)
    (images / "notes.txt").write_text("not an image")
    result = command("discover", images, "--classes", 4, "--truth", truth, *WITH_REPORT, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    out = " ".join(result.stdout.split())
    assert "24 images: 6 labelled in 2 known classes, 18 to sort" in out
    assert "1 file skipped" in out
    assert "Discovered classes" in out
    assert "k-means, same features" in out
    assert "written to newfound-images" in out
    assert (tmp_path / "newfound-images" / "assignments.csv").exists()


def test_count_shows_a_curve_and_a_sentence(newfound, tmp_path, monkeypatch):
    images, _ = write_folder(tmp_path)
    (images / "notes.txt").write_text("not an image")
    monkeypatch.chdir(tmp_path)
    answer = newfound("count", images, "--image-size", 32)
    answer.check_done()
    assert "warning: skipped: notes.txt: not a PNG, JPEG, WebP, GIF, BMP or TIFF image" in answer.out
    assert re.search(r"about \d+ classes.*; 2 are known", answer.out)
    assert "By number of classes, accuracy on labelled images:" in answer.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "truth.csv"]  # nothing is written here


def test_a_mistake_is_one_sentence_and_not_a_traceback(tmp_path):
    result = command("discover", "nowhere", "--classes", "4", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "newfound: nowhere: there is no such folder; give the folder that holds the images\n"


def test_help_names_the_commands_and_settings(tmp_path):
    assert "discover" in command("--help", cwd=tmp_path).stdout
    text = command("discover", "--help", cwd=tmp_path).stdout
    for option in ("FOLDER", "--classes", "--labels", "--truth", "--resume", "--views", "--backbone"):
        assert option in text


def test_the_version(newfound):
    answer = newfound("--version")
    assert (answer.status, answer.out) == (0, f"newfound {version('newfound')}\n")


def test_an_interrupted_run_resumes_to_the_same_bytes(newfound, tmp_path, monkeypatch):
    images, _ = write_folder(tmp_path)
    options = ["discover", images, "--classes", 4, *FAST, "--out"]
    newfound(*options, tmp_path / "whole").check_done()
    save = RunJournal.save_epoch

    def interrupted(self, learner, optimiser, checkpoint, entry):
        save(self, learner, optimiser, checkpoint, entry)
        if (entry["stage"], entry["epoch"]) == (2, 2):
            raise KeyboardInterrupt  # what Ctrl-C raises, at a moment that does not depend on the machine's speed

    with monkeypatch.context() as patched:
        patched.setattr(RunJournal, "save_epoch", interrupted)
        stopped = newfound(*options, tmp_path / "stopped")
    assert stopped.status == 130
    assert stopped.err == (
        f"newfound: stopped. newfound resume {tmp_path / 'stopped'} continues from the last checkpoint.\n"
    )
    assert not (tmp_path / "stopped" / "assignments.csv").exists()
    resumed = newfound("resume", tmp_path / "stopped")
    assert "resuming after epoch 2 of 3 of training 2" in resumed.out
    for name in ("assignments.csv", "classes.csv", "embeddings.npy", "anchors.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()


def test_ctrl_c_while_it_reads(tmp_path):
    images, _ = write_folder(tmp_path)
    words = [sys.executable, "-m", "newfound", "discover", str(images), "--classes", "4", "--epochs", "100000"]
    process = subprocess.Popen([*words, *FAST[2:]], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not (tmp_path / "newfound-images" / "checkpoint").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr


def test_demo_runs_and_shows_itself_again(newfound, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["demo", "--epochs", "1", "--image-size", "32", "--no-report"]
    first = newfound(*options)
    first.check_done()
    assert "k-means, same features" in first.out
    newfound(*options).check_done()
    newfound(*options, "--seed", "1").check_refused("seed was 0, is 1")
