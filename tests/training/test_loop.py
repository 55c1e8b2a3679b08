import copy
import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from helping.contract import new_journal
from helping.tasks import Interrupted, batch_of, decided_for, new_task, stopping_after
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.methods.simgcd import SimGCD
from newfound.runs.journal import RunJournal
from newfound.screen import Screen
from newfound.sources.bank import open_bank
from newfound.sources.fresh_views import FreshViews
from newfound.training.loop import all_features, classified
from newfound.training.loop import train as train_learner
from newfound.training.samplers import half_labelled
from newfound.training.task import Pretrained

QUIET = Screen(quiet=True)


@pytest.fixture
def setting(folder, quick_backbone, tmp_path):
    """A table, its bank, and a function that begins a training by its place."""
    table = read_folder(folder[0])
    bank = open_bank(table, quick_backbone, views=4, folder=tmp_path / "banks", screen=QUIET)

    def start(name, *, source=bank, labels=table.labels, kind=RunJournal, precision="float32", **changes):
        options = {"epochs": 6, "batch_size": 8, "projector_width": 64, "start": "random", **changes}
        chosen = decided_for("simgcd", labels, 4, **options)
        pretrained = Pretrained(source, quick_backbone.new_tail, quick_backbone.feature_dim)
        task = new_task(chosen, pretrained, labels, journal=new_journal(tmp_path / name, kind))
        task = replace(task, training=replace(task.training, precision=precision))  # a CPU user is refused it
        return task, SimGCD(task, chosen.method)

    return table, bank, start


def train(task, learner):
    return train_learner(task, learner).prediction


def test_training_sorts_colours(setting):
    table, _, start = setting
    task, learner = start("run", epochs=30)
    prediction = train(task, learner)
    labelled = table.labels >= 0
    assert (prediction.classes.numpy()[labelled] == table.labels[labelled]).all()
    torch.testing.assert_close(prediction.probabilities.sum(dim=1), torch.ones(len(table)))
    log = task.journal.log()
    assert [entry["epoch"] for entry in log] == list(range(1, 31))
    assert log[-1]["total"] < log[0]["total"]
    losses = {"cross_entropy", "distillation", "mean_entropy", "info_nce", "sup_con", "total"}
    others = {"epoch", "learning_rate", "teacher_temperature", "known_accuracy", "empty_classes", "skipped_steps"}
    others |= {"stage", "anchors"}
    assert set(log[0]) == losses | others | {"seconds"}


def test_the_first_step_is_plain_sgd_with_momentum_and_decay(setting):
    """One epoch of one step, against the update written out by hand."""
    table, _, start = setting
    task, learner = start("run", epochs=1, batch_size=1000, weight_decay=0.01)
    before = {name: p.detach().clone() for name, p in learner.named_parameters()}
    (images,) = half_labelled(table.labels, 1000, 0, 0)
    parts = learner.losses(batch_of(task, images)).parts
    gradients = dict(zip(before, torch.autograd.grad(parts["total"], list(learner.parameters())), strict=True))
    train(task, learner)
    for name, parameter in learner.named_parameters():
        decay = 0.01 if parameter.ndim > 1 else 0.0
        expected = before[name] - task.training.learning_rate * (gradients[name] + decay * before[name])
        torch.testing.assert_close(parameter.detach(), expected)


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_a_run_that_was_stopped_resumes_to_the_same_bits(setting, tmp_path, stop_after):
    _, _, start = setting
    whole = train(*start("whole"))
    with pytest.raises(Interrupted):
        train(*start("stopped", kind=stopping_after(stop_after)))
    with open(tmp_path / "stopped" / "log.jsonl", "a") as log:
        log.write(
            '{"stage": 1, "epoch": ' + str(stop_after + 1) + '}\n{"epo'
        )  # killed between log line and checkpoint, in a write
    task, learner = start("stopped")
    resumed = train(task, learner)
    assert torch.equal(resumed.probabilities, whole.probabilities)
    assert torch.equal(resumed.features, whole.features)
    assert [entry["epoch"] for entry in task.journal.log()] == [1, 2, 3, 4, 5, 6]


def test_the_sharpness_penalty_changes_the_training(setting):
    _, _, start = setting
    task, learner = start("run", rho=0.05)
    assert not torch.equal(train(task, learner).probabilities, train(*start("plain")).probabilities)
    assert task.journal.log()[-1]["skipped_steps"] == 0


def test_the_log_has_the_rise_of_the_loss_uphill(setting):
    table, _, start = setting
    task, learner = start("run", rho=0.05, epochs=1, batch_size=1000)
    (images,) = half_labelled(table.labels, 1000, 0, 0)
    batch = batch_of(task, images)
    total = learner.losses(batch).parts["total"]
    gradients = torch.autograd.grad(total, list(learner.parameters()))
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    uphill = copy.deepcopy(learner)
    with torch.no_grad():
        for parameter, gradient in zip(uphill.parameters(), gradients, strict=True):
            parameter.add_(0.05 * gradient / norm)
    train(task, learner)
    rise = (uphill.losses(batch).parts["total"] - total).item()
    assert task.journal.log()[0]["rise"] == pytest.approx(rise, rel=1e-3)


def test_the_trunk_runs_once_per_step_for_both_passes(setting, quick_backbone):
    table, _, start = setting
    calls = []
    for rho in (0.0, 0.05):
        task, learner = start(f"run-{rho}", source=FreshViews(table, quick_backbone), rho=rho, epochs=1, views="fresh")
        before = quick_backbone.trunk.calls
        train(task, learner)
        calls.append(quick_backbone.trunk.calls - before)
    assert calls[0] == calls[1] > 0


@pytest.fixture
def autocast(monkeypatch):
    """What autocast was asked for; on a CPU nothing is done about it."""
    asked = []

    def record(device, dtype, enabled):
        asked.append((device, dtype, enabled))
        return nullcontext()

    monkeypatch.setattr(torch, "autocast", record)
    return asked


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_precision_reaches_autocast_and_float16_a_scaler(setting, tmp_path, autocast, precision):
    _, _, start = setting
    train(*start("run", rho=0.05, epochs=1, precision=precision))
    assert set(autocast) == {("cpu", getattr(torch, precision), precision != "float32")}
    assert (checkpoint_state(tmp_path / "run")["scaler"] is not None) == (precision == "float16")


def test_precision_reaches_the_trunk_of_fresh_views(setting, autocast, quick_backbone):
    table, _, _ = setting
    FreshViews(table, quick_backbone, "bfloat16").evaluation([0, 1])
    assert autocast == [("cpu", torch.bfloat16, True)]


@pytest.mark.usefixtures("autocast")
def test_a_scaler_resumes_where_it_was(setting, tmp_path):
    _, bank, start = setting
    how = {"source": Broken(bank, {4}), "rho": 0.05, "precision": "float16"}
    train(*start("whole", **how))
    for stop in (2, 4):
        with pytest.raises(Interrupted):
            train(*start("stopped", kind=stopping_after(stop), **how))
    train(*start("stopped", **how))
    whole, stopped = (checkpoint_state(tmp_path / name) for name in ("whole", "stopped"))
    assert whole == stopped
    assert whole["skipped_steps"] == 1
    assert whole["scaler"]["scale"] == 2.0**15  # one overflow from 2**16
    assert whole["scaler"]["_growth_tracker"] == 17


def checkpoint_state(place):
    with safe_open(place / "checkpoint" / "stage1.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["state"])


class Broken:
    """A bank that gives infinite tokens in chosen steps."""

    def __init__(self, bank, steps):
        self.bank, self.steps = bank, steps

    def __len__(self):
        return len(self.bank)

    def evaluation(self, images):
        return self.bank.evaluation(images)

    def read_pair(self, images, seed, step, part, **how):
        pair = self.bank.read_pair(images, seed, step, part, **how)
        return np.full_like(pair, np.inf) if step in self.steps else pair

    def tokens_of(self, read, device, into=None):
        return self.bank.tokens_of(read, device, into)


def test_a_bad_batch_is_skipped_and_counted_under_the_sharpness_penalty(setting):
    _, bank, start = setting
    task, learner = start("run", source=Broken(bank, {1, 4}), rho=0.05)
    assert train(task, learner).probabilities.isfinite().all()
    log = task.journal.log()
    assert log[-1]["skipped_steps"] == 2
    assert all(np.isfinite(entry["total"]) for entry in log)


def test_an_epoch_of_bad_batches_is_an_error(setting):
    _, bank, start = setting
    with pytest.raises(UserError, match="diverged in epoch 1"):
        train(*start("run", source=Broken(bank, range(100)), rho=0.05))


def test_a_finished_run_is_only_evaluated(setting):
    _, _, start = setting
    first = train(*start("run"))
    task, learner = start("run")
    assert torch.equal(first.probabilities, train(task, learner).probabilities)
    assert len(task.journal.log()) == 6


def test_prediction_does_not_depend_on_the_batch(setting):
    _, _, start = setting
    one, other = (
        classified(task, learner, all_features(task, learner)).probabilities
        for task, learner in (start("run", batch_size=size) for size in (5, 100))
    )
    torch.testing.assert_close(one, other)


def test_nothing_labelled_trains_too(setting):
    table, _, start = setting
    task, learner = start("run", labels=np.full(len(table), -1))
    assert train(task, learner).probabilities.isfinite().all()
    assert task.journal.log()[-1]["known_accuracy"] is None
    assert task.journal.log()[-1]["cross_entropy"] == 0.0


def test_a_loss_that_explodes_is_an_error_and_is_not_saved(setting, tmp_path):
    _, _, start = setting
    with pytest.raises(UserError, match="diverged in epoch 1"):
        train(*start("run", learning_rate=1e30))
    assert not list((tmp_path / "run").rglob("*.safetensors"))  # no poisoned checkpoint to resume from


def test_a_last_step_that_explodes_is_an_error_too(setting):
    """The loss of a single step is measured before it: only the prediction shows the damage."""
    _, _, start = setting
    task, learner = start("run", epochs=1, batch_size=1000, learning_rate=1e30)
    with pytest.raises(UserError, match="diverged in epoch 1"):
        train(task, learner)
    assert task.journal.log() == []


def test_a_damaged_checkpoint_is_named(setting, tmp_path):
    _, _, start = setting
    task, learner = start("run")
    (tmp_path / "run" / "checkpoint" / "stage1.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="is damaged"):
        train(task, learner)
