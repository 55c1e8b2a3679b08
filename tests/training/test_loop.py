import copy
import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from newfound.discovery import new_model
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.sources.bank import open_bank
from newfound.sources.fresh_views import FreshViews
from newfound.training.loop import Job, draw_batches, predict, training_pair
from newfound.training.loop import train as train_stage

pytestmark = pytest.mark.usefixtures("small_projector")

QUIET = Screen(quiet=True)


@pytest.fixture
def setting(folder, quick_backbone, tmp_path):
    """A table, its bank, and a function that starts a run."""
    table = read_folder(folder[0])
    bank = open_bank(table, quick_backbone, views=4, folder=tmp_path / "banks", screen=QUIET)

    def start(name, **changes):
        options = {"classes": 4, "method": "simgcd", "epochs": 6, "batch_size": 8, **changes}
        chosen = Settings(**options).resolved(table.n_known, len(table), table.labelled_per_class)
        run = RunFolder(tmp_path / name)
        with run.begun(chosen, {}):
            pass
        return new_model(quick_backbone, bank, chosen), chosen, run

    return table, bank, start


def train(model, source, labels, chosen, run, *, anchoring=None):
    job = Job(source, labels, chosen, run, QUIET)
    with job.progress([1]) as progress:
        return train_stage(job, model, progress, anchoring=anchoring).prediction


@settings(max_examples=50, deadline=None)
@given(labelled=st.integers(0, 40), unlabelled=st.integers(0, 60), batch=st.integers(1, 50), epoch=st.integers(0, 5))
def test_batches_are_full_and_as_many_as_fit(labelled, unlabelled, batch, epoch):
    labels = np.array([0] * labelled + [-1] * unlabelled)
    if not len(labels):
        return
    batches = draw_batches(labels, batch, seed=0, epoch=epoch)
    assert len(batches) == max(1, len(labels) // batch)
    assert {len(b) for b in batches} == {min(batch, len(labels))}
    assert all(0 <= i < len(labels) for b in batches for i in b)


def test_half_of_the_draws_are_labelled_on_average():
    labels = np.array([3] * 20 + [-1] * 480)
    drawn = np.concatenate([b for epoch in range(40) for b in draw_batches(labels, 100, 0, epoch)])
    share = (labels[drawn] >= 0).mean()
    assert 0.47 < share < 0.53
    counts = np.bincount(drawn, minlength=500)
    assert counts[:20].std() / counts[:20].mean() < 0.1  # alike within the labelled ones
    assert counts[20:].min() > 0


def test_draws_depend_on_seed_and_epoch_only():
    labels = np.array([0] * 10 + [-1] * 30)
    one = np.concatenate(draw_batches(labels, 8, 0, 3))
    assert np.array_equal(one, np.concatenate(draw_batches(labels, 8, 0, 3)))
    assert not np.array_equal(one, np.concatenate(draw_batches(labels, 8, 0, 4)))
    assert not np.array_equal(one, np.concatenate(draw_batches(labels, 8, 1, 3)))


def test_training_sorts_colours(setting):
    table, bank, start = setting
    model, chosen, run = start("run", epochs=30)
    prediction = train(model, bank, table.labels, chosen, run)
    labelled = table.labels >= 0
    assert (prediction.classes.numpy()[labelled] == table.labels[labelled]).all()
    torch.testing.assert_close(prediction.probabilities.sum(dim=1), torch.ones(len(table)))
    log = run.log()
    assert [entry["epoch"] for entry in log] == list(range(1, 31))
    assert log[-1]["total"] < log[0]["total"]
    losses = {"cross_entropy", "distillation", "mean_entropy", "info_nce", "sup_con", "total"}
    others = {"epoch", "learning_rate", "teacher_temperature", "known_accuracy", "empty_classes", "skipped_steps"}
    others |= {"stage", "anchors"}
    assert set(log[0]) == losses | others | {"seconds"}


def test_the_first_step_is_plain_sgd_with_momentum_and_decay(setting):
    """One epoch of one step, against the update written out by hand."""
    table, bank, start = setting
    model, chosen, run = start("run", epochs=1, batch_size=1000, weight_decay=0.01)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    (images,) = draw_batches(table.labels, 1000, 0, 0)
    parts = model.losses(training_pair(bank, images, 0, 0), torch.from_numpy(table.labels[images]), 0)
    gradients = dict(zip(before, torch.autograd.grad(parts["total"], list(model.parameters())), strict=True))
    train(model, bank, table.labels, chosen, run)
    for name, parameter in model.named_parameters():
        decay = 0.01 if parameter.ndim > 1 else 0.0
        expected = before[name] - chosen.learning_rate * (gradients[name] + decay * before[name])
        torch.testing.assert_close(parameter.detach(), expected)


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(setting, stop_after):
    table, bank, start = setting
    model, chosen, run = start("whole")
    whole = train(model, bank, table.labels, chosen, run)

    model, chosen, run = start("stopped")
    with pytest.raises(KeyboardInterrupt):
        train(model, bank, table.labels, chosen, stopping_after(stop_after)(run.path))
    with open(run.path / "log.jsonl", "a") as log:
        log.write(
            '{"stage": 1, "epoch": ' + str(stop_after + 1) + '}\n{"epo'
        )  # killed between log line and checkpoint, in a write
    model, chosen, run = start("stopped")
    resumed = train(model, bank, table.labels, chosen, run)
    assert torch.equal(resumed.probabilities, whole.probabilities)
    assert torch.equal(resumed.features, whole.features)
    assert [entry["epoch"] for entry in run.log()] == [1, 2, 3, 4, 5, 6]


def test_the_sharpness_penalty_changes_the_training(setting):
    table, bank, start = setting
    model, chosen, run = start("run", rho=0.05)
    sharp = train(model, bank, table.labels, chosen, run)
    plain_model, plain_chosen, plain_run = start("plain")
    plain = train(plain_model, bank, table.labels, plain_chosen, plain_run)
    assert not torch.equal(sharp.probabilities, plain.probabilities)
    assert run.log()[-1]["skipped_steps"] == 0


def test_the_log_has_the_rise_of_the_loss_uphill(setting):
    table, bank, start = setting
    model, chosen, run = start("run", rho=0.05, epochs=1, batch_size=1000)
    (images,) = draw_batches(table.labels, 1000, 0, 0)
    batch = training_pair(bank, images, 0, 0), torch.from_numpy(table.labels[images]), 0
    total = model.losses(*batch)["total"]
    gradients = torch.autograd.grad(total, list(model.parameters()))
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    uphill = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, gradient in zip(uphill.parameters(), gradients, strict=True):
            parameter.add_(0.05 * gradient / norm)
    train(model, bank, table.labels, chosen, run)
    assert run.log()[0]["rise"] == pytest.approx((uphill.losses(*batch)["total"] - total).item(), rel=1e-3)


def test_the_trunk_runs_once_per_step_for_both_passes(setting, quick_backbone):
    table, _, start = setting
    calls = []
    for rho in (0.0, 0.05):
        model, chosen, run = start(f"run-{rho}", rho=rho, epochs=1, views="fresh")
        before = quick_backbone.trunk.calls
        train(model, FreshViews(table, quick_backbone), table.labels, chosen, run)
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
def test_precision_reaches_autocast_and_float16_a_scaler(setting, autocast, precision):
    table, bank, start = setting
    model, chosen, run = start("run", rho=0.05, epochs=1)
    model.settings = chosen = replace(chosen, precision=precision)  # a CPU user is refused it by `resolved`
    train(model, bank, table.labels, chosen, run)
    assert set(autocast) == {("cpu", getattr(torch, precision), precision != "float32")}
    assert (checkpoint_state(run)["scaler"] is not None) == (precision == "float16")


def test_precision_reaches_the_trunk_of_fresh_views(setting, autocast, quick_backbone):
    table, _, _ = setting
    FreshViews(table, quick_backbone, "bfloat16").evaluation([0, 1])
    assert autocast == [("cpu", torch.bfloat16, True)]


def test_a_scaler_goes_on_where_it_was(setting, autocast):
    table, bank, start = setting
    for name, stops in (("whole", []), ("stopped", [2, 4])):
        for stop in [*stops, None]:
            model, chosen, run = start(name, rho=0.05)
            model.settings = chosen = replace(chosen, precision="float16")
            if stop is None:
                train(model, Broken(bank, {4}), table.labels, chosen, run)
            else:
                with pytest.raises(KeyboardInterrupt):
                    train(model, Broken(bank, {4}), table.labels, chosen, stopping_after(stop)(run.path))
    whole, stopped = (checkpoint_state(start(name)[2]) for name in ("whole", "stopped"))
    assert whole == stopped
    assert whole["skipped_steps"] == 1
    assert whole["scaler"]["scale"] == 2.0**15  # one overflow from 2**16
    assert whole["scaler"]["_growth_tracker"] == 17


def checkpoint_state(run):
    with safe_open(run.path / "checkpoint" / "stage1.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["state"])


def stopping_after(epoch):
    class Stopping(RunFolder):
        def save_epoch(self, model, optimiser, checkpoint, entry):
            super().save_epoch(model, optimiser, checkpoint, entry)
            if entry["epoch"] == epoch:
                raise KeyboardInterrupt

    return Stopping


class Broken:
    """A bank that gives infinite tokens in chosen steps."""

    def __init__(self, bank, steps):
        self.bank, self.steps = bank, steps

    def __len__(self):
        return len(self.bank)

    def evaluation(self, images):
        return self.bank.evaluation(images)

    def read_pair(self, images, seed, step, part):
        pair = self.bank.read_pair(images, seed, step, part)
        return np.full_like(pair, np.inf) if step in self.steps else pair

    def tokens_of(self, read, device, into):
        return self.bank.tokens_of(read, device, into)


def test_a_bad_batch_is_skipped_and_counted_under_the_sharpness_penalty(setting):
    table, bank, start = setting
    model, chosen, run = start("run", rho=0.05)
    prediction = train(model, Broken(bank, {1, 4}), table.labels, chosen, run)
    assert prediction.probabilities.isfinite().all()
    assert run.log()[-1]["skipped_steps"] == 2
    assert all(np.isfinite(entry["total"]) for entry in run.log())


def test_an_epoch_of_bad_batches_is_an_error(setting):
    table, bank, start = setting
    model, chosen, run = start("run", rho=0.05)
    with pytest.raises(UserError, match="went astray in epoch 1"):
        train(model, Broken(bank, range(100)), table.labels, chosen, run)


def test_a_finished_run_is_only_evaluated(setting):
    table, bank, start = setting
    model, chosen, run = start("run")
    first = train(model, bank, table.labels, chosen, run)
    model, chosen, run = start("run")
    again = train(model, bank, table.labels, chosen, run)
    assert torch.equal(first.probabilities, again.probabilities)


def test_prediction_does_not_depend_on_the_batch(setting):
    _, bank, start = setting
    model, _, _ = start("run")
    torch.testing.assert_close(predict(model, bank, 5).probabilities, predict(model, bank, 100).probabilities)


def test_nothing_labelled_trains_too(setting):
    table, bank, start = setting
    model, chosen, run = start("run")
    prediction = train(model, bank, np.full(len(table), -1), chosen, run)
    assert prediction.probabilities.isfinite().all()
    assert run.log()[-1]["known_accuracy"] is None
    assert run.log()[-1]["cross_entropy"] == 0.0


def test_a_loss_that_explodes_is_an_error_and_is_not_saved(setting):
    table, bank, start = setting
    model, chosen, run = start("run", learning_rate=1e30)
    with pytest.raises(UserError, match="went astray in epoch 1"):
        train(model, bank, table.labels, chosen, run)
    assert not list(run.path.rglob("*.safetensors"))  # no poisoned checkpoint to resume from


def test_a_last_step_that_explodes_is_an_error_too(setting):
    """The loss of a single step is measured before it: only the prediction shows the damage."""
    table, bank, start = setting
    model, chosen, run = start("run", epochs=1, batch_size=1000, learning_rate=1e30)
    with pytest.raises(UserError, match="went astray in epoch 1"):
        train(model, bank, table.labels, chosen, run)
    assert run.log() == []


def test_a_damaged_checkpoint_is_named(setting):
    table, bank, start = setting
    model, chosen, run = start("run")
    (run.path / "checkpoint" / "stage1.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="is damaged"):
        train(model, bank, table.labels, chosen, run)
