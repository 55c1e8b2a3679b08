"""The training loop: one function that reads from top to bottom, and what it needs.

Everything random in an epoch is drawn from (seed, epoch or step), so a run that was stopped goes on exactly as if it
had not been. Labels come in with -1 for every unlabelled image; no truth is in reach here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.config import Settings
from newfound.errors import UserError
from newfound.heads import parameter_groups
from newfound.methods.simgcd import SimGCD
from newfound.run_folder import RunFolder
from newfound.schedules import learning_rate
from newfound.screen import Screen
from newfound.sharpness import SharpnessAware


class Source(Protocol):
    """Where tokens come from: a bank, or fresh views."""

    def __len__(self) -> int: ...
    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor: ...
    def training_pair(self, images: NDArray[np.int64], seed: int, step: int) -> Tensor: ...


@dataclass(frozen=True)
class Prediction:
    """What the model says of every image, in the table's order."""

    features: Tensor  # N×d
    probabilities: Tensor  # N×K

    @property
    def classes(self) -> Tensor:
        return self.probabilities.argmax(dim=1)  # N


def train(
    model: SimGCD, source: Source, labels: NDArray[np.int64], settings: Settings, run: RunFolder, screen: Screen
) -> Prediction:
    """Train from the run's last checkpoint (or from the start) to the last epoch; the last evaluation is returned."""
    s, device = settings, torch.device(settings.device)
    assert s.epochs is not None
    model.to(device)
    optimiser = torch.optim.SGD(parameter_groups(model, weight_decay=s.weight_decay), s.learning_rate, s.momentum)
    descent = SharpnessAware(optimiser, s.rho)
    first_epoch = run.restore(model, optimiser)
    if first_epoch:
        screen.say(f"going on after epoch {first_epoch} of {s.epochs}")
    prediction = None
    with screen.track("training", s.epochs, first_epoch) as progress:
        for epoch in range(first_epoch, s.epochs):
            started = time.perf_counter()
            rate = learning_rate(epoch, s.epochs, s.learning_rate)
            for group in optimiser.param_groups:
                group["lr"] = rate
            batches = draw_batches(labels, s.batch_size, s.seed, epoch)
            taken, sums = 0, dict[str, float]()
            for b, images in enumerate(batches):
                tokens = source.training_pair(images, s.seed, epoch * len(batches) + b).to(device)
                targets = torch.from_numpy(labels[images]).to(device)
                # The tokens left the frozen trunk: both passes of the sharpness penalty share them.
                parts = descent.step(partial(_gradients, model, tokens, targets, epoch))
                if parts is not None:
                    taken += 1
                    sums = {name: sums.get(name, 0.0) + value.item() for name, value in parts.items()}
            losses = {name: total / taken for name, total in sums.items()}
            prediction = predict(model, source, s.batch_size)
            _check_finite(losses, prediction, epoch)
            entry: dict[str, Any] = {
                "epoch": epoch + 1,
                **losses,
                "learning_rate": rate,
                "teacher_temperature": model.teacher_temperature(epoch),
                "known_accuracy": _known_accuracy(prediction, labels),
                "skipped_steps": descent.skipped_steps,
                "empty_classes": s.classes - len(np.unique(prediction.classes.numpy())),
                "seconds": round(time.perf_counter() - started, 3),
            }
            run.save_epoch(model, optimiser, entry)
            progress.update(epoch + 1, _summary(entry))
    return prediction if prediction is not None else predict(model, source, s.batch_size)


def _gradients(model: SimGCD, tokens: Tensor, targets: Tensor, epoch: int) -> dict[str, Tensor]:
    """Forward and backward; the parts of the loss."""
    model.zero_grad()
    parts = model.losses(tokens, targets, epoch)
    parts["total"].backward()  # type: ignore[no-untyped-call]
    return parts


def draw_batches(labels: NDArray[np.int64], batch_size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """One epoch: N+M draws with replacement, half of them labelled on average, the last incomplete batch dropped.

    >>> batches = draw_batches(np.array([0, 1] + [-1] * 98), 20, seed=0, epoch=0)
    >>> len(batches), len(batches[0])
    (5, 20)
    """
    n, labelled = len(labels), labels >= 0
    n_labelled = int(labelled.sum())
    weights = np.ones(n)
    if 0 < n_labelled < n:  # otherwise all are alike
        weights[~labelled] = n_labelled / (n - n_labelled)
    drawn = np.random.default_rng([seed, 1, epoch]).choice(n, size=n, p=weights / weights.sum())
    size = min(batch_size, n)
    return [drawn[i : i + size] for i in range(0, n - size + 1, size)]


def batches_of(source: Source, size: int) -> Iterator[range]:
    """All images, in order, ``size`` at a time."""
    return (range(i, min(i + size, len(source))) for i in range(0, len(source), size))


@torch.inference_mode()
def predict(model: SimGCD, source: Source, batch_size: int) -> Prediction:
    """One pass over the evaluation views."""
    device = next(model.parameters()).device
    model.eval()
    parts = []
    for images in batches_of(source, batch_size):
        features, probabilities = model.predict(source.evaluation(images).to(device))
        parts.append((features.cpu(), probabilities.cpu()))
    model.train()
    features, probabilities = (torch.cat(column) for column in zip(*parts, strict=True))
    return Prediction(features, probabilities)


def _known_accuracy(prediction: Prediction, labels: NDArray[np.int64]) -> float | None:
    """Share of labelled images that are given their own label; None without labelled images."""
    labelled = labels >= 0
    if not labelled.any():
        return None
    return float((prediction.classes.numpy()[labelled] == labels[labelled]).mean())


def _check_finite(losses: dict[str, float], prediction: Prediction, epoch: int) -> None:
    """Before anything is saved: the losses are those before the last step, the prediction is after it."""
    if not (math.isfinite(losses.get("total", math.nan)) and bool(prediction.probabilities.isfinite().all())):
        raise UserError(
            f"training went astray in epoch {epoch + 1}: the loss or the weights are no longer numbers ({losses}). "
            "A lower --learning-rate usually helps; start again with another --out."
        )


def _summary(entry: dict[str, Any]) -> str:
    text = f"loss {entry['total']:.3f}"
    if entry["known_accuracy"] is not None:
        text += f"  known {100 * entry['known_accuracy']:.1f} %"
    for name in ("empty_classes", "skipped_steps"):
        text += f"  {name.replace('_', ' ')} {entry[name]}" if entry[name] else ""
    return text
