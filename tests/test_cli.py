"""The command as a person types it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pictures import write_folder

FAST = ["--epochs", "3", "--image-size", "32", "--bank-views", "2", "--batch-size", "8"]


def newfound(*args, cwd, wide=True):
    environment = {**os.environ, "COLUMNS": "140"} if wide else dict(os.environ)
    command = [sys.executable, "-m", "newfound", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def test_discover_ends_with_a_table_and_the_place(tmp_path):
    images, truth = write_folder(tmp_path)
    result = newfound("discover", images, "--classes", 4, "--truth", truth, *FAST, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    out = " ".join(result.stdout.split())
    assert "24 images: 6 labelled in 2 known classes, 18 to sort" in out
    assert "Discovered classes" in out
    assert "k-means, same features" in out
    assert "written to newfound-images" in out
    assert (tmp_path / "newfound-images" / "assignments.csv").exists()


def test_skipped_files_are_counted_on_screen(tmp_path):
    images, _ = write_folder(tmp_path)
    (images / "notes.txt").write_text("not an image")
    result = newfound("discover", images, "--classes", 4, *FAST, cwd=tmp_path)
    assert "1 files are not used" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere", "--classes", "4"], "there is no such folder"),
        (["images", "--classes", "1"], "2 classes are known already"),
        (["images", "--classes", "4", "--labels", "nowhere.csv"], "nowhere.csv"),
        (["images", "--classes", "4", "--backbone", "resnet"], "unknown backbone 'resnet'"),
        (["images", "--classes", "4", "--weights", "nowhere.pth"], "nowhere.pth"),
    ],
)
def test_a_mistake_is_one_sentence_and_not_a_traceback(tmp_path, args, message):
    write_folder(tmp_path)
    result = newfound("discover", *args, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("newfound: ")


def test_help_names_the_commands_and_settings(tmp_path):
    assert "discover" in newfound("--help", cwd=tmp_path).stdout
    text = newfound("discover", "--help", cwd=tmp_path).stdout
    for option in ("FOLDER", "--classes", "--labels", "--truth", "--resume", "--views", "--backbone"):
        assert option in text


def test_help_does_not_wait_for_torch(tmp_path):
    code = "import sys, newfound.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path):
    images, _ = write_folder(tmp_path)
    options = ["--classes", 4, *FAST[2:], "--epochs", 40]
    whole = newfound("discover", images, *options, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, "-m", "newfound", "discover", images, *options, "--out", "stopped"]
    process = subprocess.Popen([*map(str, command)], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / "stopped" / "checkpoint" / "last.safetensors"
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert b"--resume" in stderr
    assert b"Traceback" not in stderr
    assert not (tmp_path / "stopped" / "assignments.csv").exists()
    resumed = newfound("discover", images, *options, "--out", "stopped", "--resume", cwd=tmp_path)
    assert "going on after epoch" in resumed.stdout
    for name in ("assignments.csv", "classes.csv", "embeddings.npy"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()
