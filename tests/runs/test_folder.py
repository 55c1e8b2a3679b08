import csv
import os

import numpy as np
import pytest
import torch

from newfound.atomic import write_atomically
from newfound.errors import UserError
from newfound.runs import folder as run_folder
from newfound.runs.folder import Checkpoint, RunFolder
from newfound.settings import Settings

SECTIONS = {"data": {"fingerprint": "abc"}, "backbone": {"fingerprint": "def"}}


def resolved(**changes):
    return Settings(3, device="cpu", **changes).resolved(2, 999, 50)


def begin(path, settings, *, data="abc", backbone="def", resume=False):
    run = RunFolder(path)
    run.check_place(resume=resume)
    run.check_same_run(settings, {"data": data, "backbone": backbone})
    with run.begun(settings, SECTIONS):
        pass


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    begin(tmp_path / "run", resolved())
    with pytest.raises(UserError, match="--resume"):
        begin(tmp_path / "run", resolved())
    begin(tmp_path / "run", resolved(), resume=True)


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


def test_a_run_of_an_earlier_version_is_named(tmp_path):
    with RunFolder(tmp_path / "run").begun(Settings(3), SECTIONS):  # nothing decided, as then
        pass
    with pytest.raises(UserError, match="begun by an earlier version"):
        begin(tmp_path / "run", resolved(), resume=True)


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


def test_short_epochs_share_a_checkpoint(tmp_path, monkeypatch):
    """Writing takes a second here; none follows within four, but the last epoch always has one."""
    clock = [0.0]
    monkeypatch.setattr(run_folder, "monotonic", lambda: clock[0])
    monkeypatch.setattr(run_folder, "CHECKPOINT_PAUSE", 4.0)
    write = run_folder._save_tensors

    def slowly(*args):
        write(*args)
        clock[0] += seconds

    monkeypatch.setattr(run_folder, "_save_tensors", slowly)
    run, model = RunFolder(tmp_path), torch.nn.Linear(1, 1)
    (tmp_path / "checkpoint").mkdir()
    optimiser, done = torch.optim.SGD(model.parameters()), []
    seconds = 1.0
    for epoch in range(1, 10):
        if epoch == 5:
            seconds = 1000.0  # the computer slept
        checkpoint = Checkpoint(epoch, 9, np.zeros(1, dtype=np.int64))
        run.save_epoch(model, optimiser, checkpoint, {"stage": 1, "epoch": epoch})
        done.append(run.epochs_done(1))
        clock[0] += 11.0 if epoch > 4 else 2.0
    assert done == [1, 1, 3, 3, 5, 5, 5, 8, 9]
    assert len(run.log()) == 9


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
