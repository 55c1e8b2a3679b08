"""What trainings leave behind: logs that fit the checkpoint beside them."""

import json

import numpy as np
import pytest
import torch

from newfound.errors import UserError
from newfound.runs import checkpoints
from newfound.runs.journal import MemoryJournal, RunJournal
from newfound.training.task import Checkpoint

MODEL = torch.nn.Linear(1, 1)
OPTIMISER = torch.optim.SGD(MODEL.parameters())


@pytest.fixture
def journal(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    return RunJournal(tmp_path)


def save(journal, *epochs, stage=1, of=9, **more):
    for epoch in epochs:
        entry = {"stage": stage, "epoch": epoch, **more}
        journal.save_pseudo_labels(entry)
        journal.save_epoch(MODEL, OPTIMISER, Checkpoint(epoch, of, np.zeros(1, dtype=np.int64)), entry)


def epochs(lines):
    return [(line["stage"], line["epoch"]) for line in lines]


def test_epochs_are_logged_and_saved(journal, tmp_path):
    assert journal.log() == journal.pseudo_labels() == []
    assert journal.epochs_done(1) == 0
    assert not journal.has_first_training()
    save(journal, 1, 2, total=0.5)
    assert journal.log() == [{"stage": 1, "epoch": 1, "total": 0.5}, {"stage": 1, "epoch": 2, "total": 0.5}]
    assert journal.epochs_done(1) == 2
    assert journal.has_first_training()
    assert RunJournal(tmp_path).log() == journal.log()


def test_what_came_after_the_checkpoint_is_forgotten(journal, monkeypatch):
    """It will be trained again."""
    save(journal, 1, 2)
    monkeypatch.setattr(checkpoints, "PAUSE", 1e9)  # from now on the log alone grows
    save(journal, 3, 4, 5)
    assert epochs(journal.log()) == [(1, e) for e in range(1, 6)]
    assert (done := journal.epochs_done(1)) == 3
    journal.save_pseudo_labels({"stage": 1, "epoch": 6})  # an epoch that did not come to its end
    checkpoint = journal.restore(1, MODEL, OPTIMISER)
    assert checkpoint.epoch == done
    assert epochs(journal.log()) == epochs(journal.pseudo_labels()) == [(1, 1), (1, 2), (1, 3)]


def test_a_stage_without_a_checkpoint_begins_from_nothing(journal):
    save(journal, 1, 2, stage=1)
    save(journal, 1, stage=2)
    journal.checkpoints.path(2).unlink()
    assert journal.restore(2, MODEL, OPTIMISER) is None
    assert epochs(journal.log()) == [(1, 1), (1, 2)]  # the other stage is left as it is
    assert journal.restore(1, MODEL, OPTIMISER).epoch == 2


def test_half_a_line_is_forgotten(journal, tmp_path):
    """Killed while it was written."""
    save(journal, 1, 2)
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"stage": 1, "epo')
    assert epochs(journal.log()) == [(1, 1), (1, 2)]
    journal.restore(1, MODEL, OPTIMISER)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "line",
    ['{"stage": 1}', '{"epoch": 1}', '{"stage": "1", "epoch": 1}', "[]}", '{"a"}',
     '{"stage": 1, "epoch": 1, "seconds": "long"}', '{"a": ' + "[" * 100_000 + "}"],
)  # fmt: skip
def test_a_line_that_is_not_ours_is_named(journal, line, tmp_path):
    save(journal, 1)
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match="line 2 is malformed"):
        journal.log()


def test_the_first_training_of_another_run(journal, tmp_path):
    save(journal, 1, 2, stage=1, of=2)
    save(journal, 1, stage=2)
    (tmp_path / "other" / "checkpoint").mkdir(parents=True)
    other = RunJournal(tmp_path / "other")
    save(other, 1, stage=1)  # half of one of its own, which gives way
    other.take_first_training(journal)
    assert epochs(other.log()) == [(1, 1), (1, 2)]
    assert other.epochs_done(1) == 2
    assert other.epochs_done(2) == 0


def test_training_takes_as_long_as_the_median_epoch(journal):
    """A pause of the machine does not count."""
    for epoch, seconds in enumerate([1.0, 1.0, 1000.0], start=1):
        save(journal, epoch, seconds=seconds)
    save(journal, 1, 2, stage=2, seconds=3.0)
    assert journal.training_seconds() == 3 * 1.0 + 2 * 3.0


def test_what_is_made_once_is_kept(journal, tmp_path):
    assert journal.kept("kmeans") is None
    journal.keep("kmeans", {"clusters": torch.arange(3)})
    assert torch.equal(RunJournal(tmp_path).kept("kmeans")["clusters"], torch.arange(3))
    (tmp_path / "checkpoint" / "kept-kmeans.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match=r"kmeans\.safetensors is damaged .* Delete it, and it is made again\."):
        journal.kept("kmeans")


def test_every_line_is_json(journal, tmp_path):
    save(journal, 1, note="two\nlines")
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["note"] == "two\nlines"


def test_memory_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = MemoryJournal()
    save(journal, 1, 2)
    journal.keep("kmeans", {"clusters": torch.arange(3)})
    assert epochs(journal.entries) == epochs(journal.pseudo_label_entries) == [(1, 1), (1, 2)]
    assert journal.restore(1, MODEL, OPTIMISER) is None
    assert journal.epochs_done(1) == 0
    assert torch.equal(journal.kept("kmeans")["clusters"], torch.arange(3))
    assert journal.kept("other") is None
    assert not list(tmp_path.iterdir())
