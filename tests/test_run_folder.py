import csv
import os

import pytest

from newfound.atomic import write_atomically
from newfound.config import Settings
from newfound.errors import UserError
from newfound.run_folder import RunFolder

SECTIONS = {"data": {"fingerprint": "abc"}}


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.begin(Settings(3), SECTIONS, resume=False)
    with pytest.raises(UserError, match="--resume"):
        run.begin(Settings(3), SECTIONS, resume=False)
    run.begin(Settings(3), SECTIONS, resume=True)


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for resume in (False, True):
        with pytest.raises(UserError, match="not a newfound run"):
            RunFolder(tmp_path).begin(Settings(3), SECTIONS, resume=resume)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_an_empty_folder_will_do_and_resuming_nothing_starts(tmp_path):
    RunFolder(tmp_path).begin(Settings(3), SECTIONS, resume=True)
    assert (tmp_path / "config.toml").exists()


def test_resuming_with_other_settings_or_data_is_refused(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.begin(Settings(3, seed=1), SECTIONS, resume=False)
    with pytest.raises(UserError, match="seed was 1, is 2"):
        run.begin(Settings(3, seed=2), SECTIONS, resume=True)
    with pytest.raises(UserError, match="images or labels have changed"):
        run.begin(Settings(3, seed=1), {"data": {"fingerprint": "other"}}, resume=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be made"):
        RunFolder(tmp_path / "run").begin(Settings(3), SECTIONS, resume=False)


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        RunFolder(tmp_path / "file" / "run").begin(Settings(3), SECTIONS, resume=False)


def test_odd_names_survive_the_csv(tmp_path):
    names = [
        "a,b.png",
        'quote".png',
        "new\nline.png",
        "ünï.png",
        "😀.png",
        b"\xff\xfe.png".decode(errors="surrogateescape"),
    ]
    RunFolder(tmp_path).write_csv("table.csv", ["file"], ([name] for name in names))
    with open(tmp_path / "table.csv", encoding="utf-8", errors="surrogateescape", newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == names


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail_in_the_middle():
        with write_atomically(path) as file:
            file.write("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]
