"""The run folder: who may write into it, and when."""

import csv
import os
from dataclasses import replace

import pytest

from newfound.atomic import write_atomically
from newfound.errors import UserError
from newfound.methods import decide, with_own
from newfound.runs.folder import RunFolder
from newfound.settings import DataFacts, Settings

EARLIER = """\
[settings]
classes = 3
method = "sdas"
epochs = 60
beta = 0.8
student_temperature = 0.1

[data]
fingerprint = "abc"

[backbone]
fingerprint = "def"
"""
SECTIONS = {"data": {"fingerprint": "abc"}, "backbone": {"fingerprint": "def"}}


def resolved(**changes):
    return decide(with_own(Settings(3, device="cpu"), changes), DataFacts(999, 2, 100, 2, 3))


def begin(path, settings, *, data="abc", backbone="def", resume=False):
    run = RunFolder(path)
    run.check_place(resume=resume)
    run.check_same_run(settings, {"data": data, "backbone": backbone})
    with run.begun(settings, SECTIONS):
        pass


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    begin(tmp_path / "run", resolved())
    with pytest.raises(UserError, match=r"was stopped\. Resume it: discover with the same folder, resume=True"):
        begin(tmp_path / "run", resolved())
    begin(tmp_path / "run", resolved(), resume=True)


def test_a_finished_run_is_for_a_review(tmp_path):
    begin(tmp_path / "run", resolved())
    for name in ("assignments.csv", "model.json"):
        (tmp_path / "run" / name).touch()
    with pytest.raises(
        UserError, match=r"holds a finished run\. Look through it: newfound\.Discovery\.load\(.*run.*\)"
    ):
        begin(tmp_path / "run", resolved())


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for resume in (False, True):
        with pytest.raises(UserError, match="not a newfound run"):
            begin(tmp_path, resolved(), resume=resume)
    assert os.listdir(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize("leftover", [None, "checkpoint", "config.toml.tmp"])
def test_a_run_killed_at_its_very_beginning_begins_again(tmp_path, leftover):
    if leftover == "checkpoint":
        (tmp_path / "checkpoint").mkdir()
    elif leftover:
        (tmp_path / leftover).write_text("half a")
    begin(tmp_path, resolved(), resume=True)
    assert (tmp_path / "config.toml").exists()


def test_what_a_kill_left_half_written_is_removed_and_nothing_else(tmp_path):
    begin(tmp_path, resolved())
    for name in ("decisions.json.tmp", "checkpoint/stage1.safetensors.tmp", "mine.tmp", "predictions.csv.tmp"):
        (tmp_path / name).write_text("half a")
    with RunFolder(tmp_path).held():
        assert sorted(path.name for path in tmp_path.rglob("*.tmp")) == ["mine.tmp", "predictions.csv.tmp"]


def test_resuming_with_other_settings_data_or_weights_is_refused(tmp_path):
    begin(tmp_path / "run", resolved(seed=1))
    with pytest.raises(UserError, match="seed was 1, is 2"):
        begin(tmp_path / "run", resolved(seed=2), resume=True)
    with pytest.raises(UserError, match="images or labels have changed"):
        begin(tmp_path / "run", resolved(seed=1), data="other", resume=True)
    with pytest.raises(UserError, match="backbone's weights have changed"):
        begin(tmp_path / "run", resolved(seed=1), backbone="other", resume=True)
    begin(tmp_path / "run", resolved(seed=1, bank_dir=tmp_path, weights=tmp_path), resume=True)  # only places


def test_a_run_of_an_earlier_version_is_not_resumed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(EARLIER)
    with pytest.raises(UserError, match="begun by an earlier version of newfound: its results can be used, but it"):
        begin(tmp_path / "run", resolved(), resume=True)
    assert (tmp_path / "run" / "config.toml").read_text() == EARLIER


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "simgcd"}, "method was sdas, is simgcd"),
        ({"beta": 0.9}, "beta was 0.5, is 0.9"),
        ({"epochs": 7, "k": 0.4}, "epochs was 60, is 7; .*k was 0.5, is 0.4"),
    ],
)
def test_other_settings_of_the_method_are_other_settings(tmp_path, changes, message):
    begin(tmp_path / "run", resolved(preset="fine-grained"))
    with pytest.raises(UserError, match=message):
        begin(tmp_path / "run", resolved(preset="fine-grained", **changes), resume=True)


def test_a_run_resumes_on_another_device(tmp_path):
    """Where it computes is no part of what it is: a run from a GPU may end on a CPU."""
    begin(tmp_path / "run", replace(resolved(seed=1), device="cuda"))
    begin(tmp_path / "run", resolved(seed=1), resume=True)
    with pytest.raises(UserError, match="seed was 1, is 2") as error:
        begin(tmp_path / "run", resolved(seed=2), resume=True)
    assert "device" not in str(error.value)


def test_a_first_training_that_is_here_needs_no_other_run(tmp_path):
    begin(tmp_path / "run", resolved(stage1=tmp_path / "one"))
    with pytest.raises(UserError, match="stage1 was"):
        begin(tmp_path / "run", resolved(), resume=True)
    (tmp_path / "run" / "checkpoint" / "stage1.safetensors").write_bytes(b"copied")
    begin(tmp_path / "run", resolved(), resume=True)
    begin(tmp_path / "run", resolved(stage1=tmp_path / "elsewhere" / "one"), resume=True)
    begin(tmp_path / "other", resolved())
    with pytest.raises(UserError, match="stage1 was None"):
        begin(tmp_path / "other", resolved(stage1=tmp_path / "one"), resume=True)


def test_two_runs_do_not_share_a_folder(tmp_path):
    busy = RunFolder(tmp_path / "run").begun(resolved(), SECTIONS)
    with busy, pytest.raises(UserError, match="another run or review is at work"):
        begin(tmp_path / "run", resolved(), resume=True)
    # `busy` is still referred to here: the lock is freed by leaving the block, not by the garbage collector
    begin(tmp_path / "run", resolved(), resume=True)


def test_a_place_that_is_not_utf8_is_written_down_all_the_same(tmp_path):
    odd = b"caf\xe9".decode(errors="surrogateescape")
    with RunFolder(tmp_path / "run").begun(resolved(), {**SECTIONS, "data": {"fingerprint": "abc", "folder": odd}}):
        pass
    begin(tmp_path / "run", resolved(), resume=True)


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be used"):
        begin(tmp_path / "file" / "run", resolved())


def test_odd_names_survive_the_csv(tmp_path):
    names = [
        "a,b.png",
        'quote".png',
        "new\nline.png",
        "carriage\rreturn.png",
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
