"""Checkpoints: what is in them, when they are written, and what is said of damaged ones."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from newfound.errors import UserError
from newfound.runs import checkpoints
from newfound.runs.checkpoints import Checkpoints, load_optimiser
from newfound.training.learner import Memory
from newfound.training.task import Checkpoint


class Model(torch.nn.Module):
    """Parameters whose names end alike, and a memory."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.memory = torch.nn.Parameter(torch.randn(2, 3)), Memory()
        self.inner = torch.nn.ModuleDict({"weight": torch.nn.Linear(3, 2)})

    def forward(self, rows):
        return self.inner["weight"](rows) @ self.weight


def trained(steps=3):
    """A model and its optimiser after some steps."""
    model = Model()
    model.memory.put("queue", torch.zeros(1))
    optimiser = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    for step in range(steps):
        train_step(model, optimiser, step)
    return model, optimiser


def train_step(model, optimiser, step):
    optimiser.zero_grad()
    model(torch.full((4, 3), 0.1 * (step + 1))).square().sum().backward()
    optimiser.step()
    model.memory.put("queue", torch.arange(step + 1.0))  # of another shape each time


@pytest.fixture
def files(tmp_path):
    return Checkpoints(tmp_path)


def at(epoch, epochs=9):
    return Checkpoint(epoch, epochs, np.array([0, -1, 2]), skipped_steps=epoch, scaler={"scale": 2.0**epoch})


def test_a_model_goes_on_as_if_nothing_had_happened(files):
    model, optimiser = trained()
    files.save(1, model, optimiser, at(3))
    train_step(model, optimiser, 3)

    checkpoint, tensors = files.load(1)
    assert (checkpoint.epoch, checkpoint.epochs, checkpoint.skipped_steps, checkpoint.scaler) == (3, 9, 3, {"scale": 8})
    assert checkpoint.labels.tolist() == [0, -1, 2]
    other = Model()
    for parameter in other.parameters():
        parameter.data.zero_()
    its_optimiser = torch.optim.SGD(other.parameters(), 0.1, 0.9)
    files.load_learner(1, other, tensors)
    load_optimiser(other, its_optimiser, tensors)
    assert len(other.memory["queue"]) == 3
    train_step(other, its_optimiser, 3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_stages_are_apart(files):
    model, optimiser = trained()
    assert files.last_stage() == 0
    for stage in (1, 2, 10):
        files.save(stage, model, optimiser, at(9))
    assert files.last_stage() == 10
    assert files.exists(2)
    assert not files.exists(3)


def test_a_training_taken_over_has_no_optimiser(files, tmp_path):
    """It has ended: nothing is trained further."""
    model, optimiser = trained()
    files.save(1, model, optimiser, at(9))
    other = Checkpoints(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.take(1, files)
    taken, whole = load_file(other.path(1)), load_file(files.path(1))
    assert any(name.startswith("optimiser.") for name in whole)
    assert taken.keys() == {name for name in whole if not name.startswith("optimiser.")}
    assert other.load(1)[0].epoch == 9
    other.load_learner(1, Model(), other.load(1)[1])


def test_short_epochs_share_a_checkpoint(files, monkeypatch):
    """Writing takes a second here; none follows within four, but the last epoch always has one."""
    clock, seconds = [0.0], 1.0
    monkeypatch.setattr(checkpoints, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoints, "PAUSE", 4.0)
    write = checkpoints.save_tensors

    def slowly(*args):
        write(*args)
        clock[0] += seconds

    monkeypatch.setattr(checkpoints, "save_tensors", slowly)
    model, done = torch.nn.Linear(1, 1), []
    optimiser = torch.optim.SGD(model.parameters())
    for epoch in range(1, 10):
        if epoch == 5:
            seconds = 1000.0  # the computer slept
        files.save(1, model, optimiser, at(epoch))
        done.append(files.state(1)["epoch"])
        clock[0] += 11.0 if epoch > 4 else 2.0
    assert done == [1, 1, 3, 3, 5, 5, 5, 8, 9]


def other_metadata(path, change):
    """The same tensors; of the state, what ``change`` leaves of it."""
    save_file(load_file(path), path, {"state": json.dumps(change({"epoch": 3, "epochs": 9}))})


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.write_bytes(b""), "is damaged"),
        (lambda path: save_file({"x": torch.zeros(1)}, path), "it has no labels"),
        (lambda path: save_file(load_file(path), path), "it does not say where the training stands"),
        (lambda path: other_metadata(path, lambda state: {**state, "warp": 9}), "does not say where"),
        (lambda path: other_metadata(path, lambda state: {"epoch": 3}), "does not say where"),
        (lambda path: other_metadata(path, lambda state: [1]), "does not say where"),
        (lambda path: save_file(load_file(path), path, {"state": "[" * 100_000}), "does not say where"),
    ],
)
def test_a_damaged_one_is_named(files, spoil, why):
    files.save(1, *trained(), at(3))
    spoil(files.path(1))
    with pytest.raises(UserError, match=why) as error:
        files.load(1)
    assert str(files.path(1)) in str(error.value)


def test_one_of_another_model_is_named(files):
    files.save(1, *trained(), at(3))
    with pytest.raises(UserError, match="its tensors are not those of this model"):
        files.load_learner(1, torch.nn.Linear(2, 2), files.load(1)[1])
