"""The training loop: one function that reads from top to bottom, and what it needs.

Everything random in an epoch is drawn from (seed, epoch or step), and everything else a later epoch depends on is in
the checkpoint, so a run that was stopped resumes exactly as if it had not been. Labels come in with -1 for every
unlabelled image. Where a truth was given, `referee` keeps the score.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.distributed import begin_alike, from_first, share, sum_gradients
from newfound.errors import SettingError
from newfound.settings import Training
from newfound.sharpness import SharpnessAware
from newfound.thread_waiting import adapt_waiting, take_short_turns
from newfound.threads import prefetched
from newfound.training.learner import Batch, Learner, Prediction, Predictor
from newfound.training.referee import judged, scores
from newfound.training.samplers import Draw, Labels, half_labelled
from newfound.training.task import Checkpoint, Task, evaluated

STAGE_OFFSET = 1_000_000


@dataclass(frozen=True)
class Trained:
    """What a training ends with."""

    predictor: Predictor
    prediction: Prediction  # after the last epoch
    labels: Labels  # what the last epoch was trained with
    none: NDArray[np.bool_] | None = None  # N: in none of the classes, whatever the prediction says; None: no one is


def train(task: Task, learner: Learner, *, stage: int = 1, draw: Draw | None = None) -> Trained:
    """Train from the stage's last checkpoint (or from the start) to its last epoch. ``draw`` makes the batches; by
    default, half of each is labelled."""
    t, device = task.training, torch.device(task.training.device)
    draw = draw or partial(half_labelled, balance=t.label_balance)
    take_short_turns()
    learner.to(device)
    descent = SharpnessAware(_optimiser(learner, t), t.rho, _scaler(t))
    done, epochs, labels, prediction = _resumed(task, learner, stage, descent) or _begun(task, learner)
    learner.to(device)  # also what came out of a checkpoint
    for epoch in range(done, epochs):
        started = time.perf_counter()
        rate = learner.learning_rate(epoch, t)
        for group in descent.optimiser.param_groups:
            group["lr"] = rate * group["rate"]
        labels = _labels_for(epoch, task, learner, stage, prediction, labels)
        losses = _one_epoch(task, learner, descent, draw, labels, stage, epoch)
        prediction = _evaluated_epoch(task, learner, losses, epoch)
        entry: dict[str, Any] = {
            "stage": stage,
            "epoch": epoch + 1,
            **losses,
            "learning_rate": rate,
            **learner.schedule(epoch),
            "known_accuracy": _known_accuracy(prediction, task.labels),
            **scores(prediction.classes.numpy()),
            "anchors": int(((labels >= 0) & (task.labels < 0)).sum()),
            "skipped_steps": descent.skipped_steps,
            "empty_classes": prediction.probabilities.shape[1] - len(np.unique(prediction.classes.numpy())),
            "seconds": round(time.perf_counter() - started, 3),
        }
        scaler = None if descent.scaler is None else descent.scaler.state_dict()
        checkpoint = Checkpoint(epoch + 1, epochs, labels, descent.skipped_steps, scaler)
        task.journal.save_epoch(learner, descent.optimiser, checkpoint, entry)
        task.progress.report(stage, epoch + 1, _summary(entry))
    assert prediction is not None  # at least one epoch, or a checkpoint
    return Trained(learner.predictor(), prediction, labels)


def _optimiser(learner: Learner, t: Training) -> torch.optim.Optimizer:
    groups = [{"rate": 1.0, **group} for group in learner.groups(t)]
    fused = torch.device(t.device).type != "mps"  # in one pass
    return torch.optim.SGD(groups, t.learning_rate, t.momentum, fused=fused)


def _scaler(t: Training) -> torch.amp.GradScaler | None:
    """float16 gradients of small losses vanish unless the loss is scaled; bfloat16 has the range of float32."""
    return torch.amp.GradScaler(torch.device(t.device).type) if t.precision == "float16" else None


Standing = tuple[int, int, Labels, Prediction | None]  # epochs done, epochs in all, the last epoch's labels, prediction


def _begun(task: Task, learner: Learner) -> Standing:
    learner.begin(task)
    begin_alike(learner)
    return 0, task.training.epochs, task.labels, None


def _resumed(task: Task, learner: Learner, stage: int, descent: SharpnessAware) -> Standing | None:
    checkpoint = task.journal.restore(stage, learner, descent.optimiser)
    if checkpoint is None:
        return None
    learner.to(task.training.device)
    descent.skipped_steps = checkpoint.skipped_steps
    if descent.scaler is not None and checkpoint.scaler is not None:
        descent.scaler.load_state_dict(checkpoint.scaler)
    if checkpoint.epoch < checkpoint.epochs:
        which = "" if stage == 1 else f" of training {stage}"
        task.screen.say(f"resuming after epoch {checkpoint.epoch} of {checkpoint.epochs}{which}")
    features = all_features(task, learner)
    return checkpoint.epoch, checkpoint.epochs, checkpoint.labels, classified(task, learner, features)


# What an epoch is trained with


def _labels_for(
    epoch: int, task: Task, learner: Learner, stage: int, prediction: Prediction | None, before: Labels
) -> Labels:
    """The labels of this epoch; what the learner remembers is put into its memory."""

    def decided() -> tuple[Labels, Mapping[str, Tensor]]:
        between = learner.between_epochs(epoch, prediction)
        if between.labels is None:
            return task.labels, between.memory
        basis = between.basis or prediction
        assert basis is not None  # pseudo-labels come from a prediction
        labels, judgement = judged(task.labels, between.labels, basis.classes.numpy())
        facts = {"stage": stage, "epoch": epoch + 1, **_counted(task, labels)}
        overlap = {"overlap": _overlap(task, labels, before)}
        task.journal.save_pseudo_labels({**facts, **between.facts, **overlap, **judgement})
        return labels, between.memory

    labels, memory = from_first(decided)
    _remember(learner, memory, task)
    return labels


def _remember(learner: Learner, memory: Mapping[str, Tensor], task: Task) -> None:
    for name, tensor in memory.items():
        learner.memory.put(name, tensor.to(task.training.device), checkpointed=name not in learner.temporary)


def _counted(task: Task, labels: Labels) -> dict[str, Any]:
    """How many pseudo-labels there are, in all and by new class."""
    pseudo = labels[(labels >= 0) & (task.labels < 0)]
    new = pseudo[pseudo >= task.n_known] - task.n_known
    return {"anchors": len(pseudo), "per_class": np.bincount(new, minlength=task.classes - task.n_known).tolist()}


def _overlap(task: Task, labels: Labels, before: Labels) -> float | None:
    """Share of the pseudo-labels that the epoch before had, too; None where it had none."""
    unlabelled = task.labels < 0
    pseudo = (labels >= 0) & unlabelled
    if not (before[unlabelled] >= 0).any() or not pseudo.any():
        return None
    return float((before[pseudo] == labels[pseudo]).mean())


# Steps


def _one_epoch(
    task: Task, learner: Learner, descent: SharpnessAware, draw: Draw, labels: Labels, stage: int, epoch: int
) -> dict[str, float]:
    """All steps of an epoch; the mean of each part of the loss and, with LSP, of its rise at the end of the climb."""
    t, device = task.training, torch.device(task.training.device)
    moment = (stage - 1) * STAGE_OFFSET + epoch  # of the random draws: no two stages share them
    batches = draw(labels, t.batch_size, task.seed, moment)
    part = share(len(batches[0]))  # of every batch: the others are in other processes
    taken, sums = 0, dict[str, float]()

    def read(b: int) -> NDArray[Any]:
        step = moment * len(batches) + b
        return task.source.read_pair(batches[b], task.seed, step, part, strong=learner.strong_view)

    tokens: Tensor | None = None  # of the step before: its memory serves the next one
    with ThreadPoolExecutor(1) as pool:  # reads the next batches meanwhile
        views = prefetched(pool, read, range(len(batches)), ahead=2)
        for b, (images, pixels) in enumerate(zip(batches, views, strict=True)):
            tokens = task.source.tokens_of(pixels, device, into=tokens)
            batch = Batch(
                tokens, torch.from_numpy(images).to(device), torch.from_numpy(labels[images]).to(device), epoch,
                epoch * len(batches) + b, t.epochs * len(batches), task.seed, stage, t.precision,
            )  # fmt: skip
            parts = one_step(learner, descent, batch)
            adapt_waiting()
            if parts is not None:
                taken += 1
                sums = {name: sums.get(name, 0.0) + value.item() for name, value in parts.items()}
    return {name: total / taken for name, total in sums.items()}


def one_step(learner: Learner, descent: SharpnessAware, batch: Batch) -> dict[str, Tensor] | None:
    """The parts of the loss and, with LSP, its rise; None for a step that was skipped. Both passes share the tokens."""
    totals: list[Tensor] = []  # here and, with LSP, uphill
    trained = learner.trains(batch.step)

    def gradients() -> Any:
        learner.zero_grad()
        step = learner.losses(batch)
        descent.backward(step.parts["total"])
        sum_gradients(learner)
        if trained is not None:
            _leave_out(descent.optimiser, trained)
        totals.append(step.parts["total"].detach())
        return step

    step = descent.step(gradients)
    if step is None:
        return None
    with torch.no_grad():
        learner.after_step(batch, step.kept)
    parts: dict[str, Tensor] = dict(step.parts)
    if len(totals) > 1:
        parts["rise"] = totals[1] - totals[0]
    return parts


def _leave_out(optimiser: torch.optim.Optimizer, trained: Any) -> None:
    """Groups of other names do not move in this step."""
    for group in optimiser.param_groups:
        if group["name"] not in trained:
            for parameter in group["params"]:
                parameter.grad = None


# After an epoch


@torch.inference_mode()
def all_features(task: Task, learner: Learner) -> Tensor:
    """N×d: one pass over the evaluation views."""
    device = torch.device(task.training.device)
    learner.eval()
    (features,) = evaluated(task.source, task.training.batch_size, lambda tokens: (learner.encode(tokens.to(device)),))
    learner.train()
    return features


@torch.inference_mode()
def classified(task: Task, learner: Learner, features: Tensor) -> Prediction:
    """What the learner predicts from features."""
    predictor, device = learner.predictor(), torch.device(task.training.device)
    learner.eval()
    chunks = torch.split(features, task.training.batch_size)
    probabilities = torch.cat([predictor.probabilities(chunk.to(device)).cpu() for chunk in chunks])
    learner.train()
    return Prediction(features, probabilities)


def _evaluated_epoch(task: Task, learner: Learner, losses: dict[str, float], epoch: int) -> Prediction:
    """One pass: the score, and what the next epoch starts from."""
    features = all_features(task, learner)
    _check_finite(losses, features, epoch, task.training)
    _remember(learner, from_first(lambda: learner.after_epoch(epoch, features)), task)
    prediction = classified(task, learner, features)
    _check_finite(losses, prediction.probabilities, epoch, task.training)
    return prediction


def _check_finite(losses: dict[str, float], numbers: Tensor, epoch: int, t: Training) -> None:
    """Before anything is saved: the losses are those before the last step, features and prediction are after it."""
    if not (math.isfinite(losses.get("total", math.nan)) and bool(numbers.isfinite().all())):
        raise SettingError(
            "learning_rate", t.learning_rate,
            f"is probably too high: training diverged in epoch {epoch + 1}, the loss or the weights are no longer "
            f"finite numbers ({losses}). Start a new run with a lower one.",
        )  # fmt: skip


def _known_accuracy(prediction: Prediction, labels: Labels) -> float | None:
    """Share of labelled images that are given their own label; None without labelled images."""
    labelled = labels >= 0
    if not labelled.any():
        return None
    return float((prediction.classes.numpy()[labelled] == labels[labelled]).mean())


def _summary(entry: dict[str, Any]) -> str:
    text = f"loss {entry['total']:.3f}"
    if entry["known_accuracy"] is not None:
        text += f"  known {100 * entry['known_accuracy']:.1f} %"
    for name in ("anchors", "empty_classes", "skipped_steps"):
        text += f"  {name.replace('_', ' ')} {entry[name]:,}" if entry[name] else ""
    return text
