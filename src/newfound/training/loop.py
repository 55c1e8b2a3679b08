"""The training loop: one function that reads from top to bottom, and what it needs.

Everything random in an epoch is drawn from (seed, epoch or step), so a run that was stopped goes on exactly as if it
had not been. Labels come in with -1 for every unlabelled image. A referee may know the truth; it is asked for numbers
to write down, never for labels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.distributed import begin_alike, from_first, gathered, processes, share, sum_gradients
from newfound.errors import UserError
from newfound.runs.folder import Checkpoint, RunFolder
from newfound.screen import Screen, Tracker
from newfound.settings import Settings
from newfound.sharpness import SharpnessAware
from newfound.thread_waiting import take_short_turns
from newfound.threads import prefetched
from newfound.training.heads import parameter_groups
from newfound.training.schedules import learning_rate

if TYPE_CHECKING:
    from newfound.methods.gcd import GCD
    from newfound.methods.kmeans import Clusters, Grouping
    from newfound.methods.simgcd import SimGCD


STAGE_OFFSET = 1_000_000
Parts = dict[str, Tensor]  # of the loss


class Source(Protocol):
    """Where tokens come from: a bank, or fresh views. Reading needs no device and may run ahead in another thread."""

    def __len__(self) -> int: ...
    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor: ...
    def read_pair(self, images: NDArray[np.int64], seed: int, step: int, part: slice = ...) -> NDArray[Any]: ...
    def tokens_of(self, read: NDArray[Any], device: torch.device, into: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Prediction:
    """What the model says of every image, in the table's order."""

    features: Tensor  # N×d
    probabilities: Tensor  # N×K

    @property
    def classes(self) -> Tensor:
        return self.probabilities.argmax(dim=1)  # N

    def of(self, classes: Tensor) -> Prediction:
        """Had there been these classes alone."""
        if len(classes) == self.probabilities.shape[1]:
            return self
        share = self.probabilities[:, classes]
        return Prediction(self.features, share / share.sum(dim=1, keepdim=True))


class Referee(Protocol):
    """Knows the truth and tells only how well a prediction agrees with it."""

    def accuracy(self, predicted: NDArray[np.int64]) -> dict[str, float | None]: ...
    def knows(self, images: NDArray[np.int64]) -> NDArray[np.bool_]: ...
    def clean(
        self, predicted: NDArray[np.int64], images: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> NDArray[np.bool_]: ...


class Progress:
    """One bar over all trainings of a run, so that the time left is that of the whole."""

    def __init__(self, tracker: Tracker, epochs: int, stages: Sequence[int]) -> None:
        self._tracker, self._epochs, self._stages = tracker, epochs, stages

    def report(self, stage: int, epoch: int, note: str) -> None:
        before = self._stages.index(stage) * self._epochs
        self._tracker.update(before + epoch, note if len(self._stages) == 1 else f"training {stage}: {note}")


@dataclass(frozen=True)
class Job:
    """What all trainings of a run share."""

    source: Source
    labels: NDArray[np.int64]  # N: known classes from 0, -1 for unlabelled
    settings: Settings
    run: RunFolder
    screen: Screen
    referee: Referee | None = None  # keeps the score where a truth was given; training learns nothing from it
    grouping: Grouping | None = None  # k-means on the frozen features

    @property
    def n_known(self) -> int:
        return int(self.labels.max(initial=-1)) + 1

    @contextmanager
    def progress(self, stages: Sequence[int]) -> Iterator[Progress]:
        """Follow these stages."""
        epochs = self.settings.epochs
        assert epochs is not None
        done = sum(self.run.epochs_done(stage) for stage in stages)
        with self.screen.track("training", epochs * len(stages), done) as tracker:
            yield Progress(tracker, epochs, stages)


class Anchoring(Protocol):
    """Decides which labels an epoch trains with, given what the model said and which labels it had before it."""

    def __call__(self, epoch: int, said: Prediction | None, before: NDArray[np.int64]) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Trained:
    model: SimGCD | GCD | Clusters
    prediction: Prediction  # after the last epoch
    labels: NDArray[np.int64]  # what the last epoch was trained with


def train(
    job: Job,
    model: SimGCD | GCD,
    progress: Progress,
    *,
    stage: int = 1,
    anchoring: Anchoring | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> Trained:
    """Train from the stage's last checkpoint (or from the start) to its last epoch.

    ``after_epoch`` may change what the model predicts with, before it is asked.
    """
    s, device = job.settings, torch.device(job.settings.device)
    take_short_turns()
    model.to(device)
    groups = parameter_groups(model, weight_decay=s.weight_decay)
    optimiser = torch.optim.SGD(groups, s.learning_rate, s.momentum, fused=device.type != "mps")  # in one pass
    assert s.rho is not None  # resolved settings have it
    descent = SharpnessAware(optimiser, s.rho, _scaler(s))
    done, epochs, labels, prediction = _go_on(job, model, stage, descent)
    for epoch in range(done, epochs):
        started = time.perf_counter()
        rate = learning_rate(epoch, epochs, s.learning_rate)
        for group in optimiser.param_groups:
            group["lr"] = rate
        if anchoring is not None:
            labels = from_first(partial(anchoring, epoch, prediction, labels))
        losses = _one_epoch(job, model, descent, labels, stage, epoch)
        after_epoch()
        prediction = predict(model, job.source, s.batch_size)  # one pass: the score, and the next epoch's anchors
        _check_finite(losses, prediction, epoch)
        entry: dict[str, Any] = {
            "stage": stage,
            "epoch": epoch + 1,
            **losses,
            "learning_rate": rate,
            **model.schedule(epoch),
            "known_accuracy": _known_accuracy(prediction, job.labels),
            **(from_first(partial(job.referee.accuracy, prediction.classes.numpy())) if job.referee else {}),
            **({"oracle": True} if s.oracle_clean_anchors else {}),
            "anchors": int(((labels >= 0) & (job.labels < 0)).sum()),
            "skipped_steps": descent.skipped_steps,
            "empty_classes": s.classes - len(np.unique(prediction.classes.numpy())),
            "seconds": round(time.perf_counter() - started, 3),
        }
        scaler = None if descent.scaler is None else descent.scaler.state_dict()
        job.run.save_epoch(
            model, optimiser, Checkpoint(epoch + 1, epochs, labels, descent.skipped_steps, scaler), entry
        )
        progress.report(stage, epoch + 1, _summary(entry))
    assert prediction is not None  # at least one epoch, or a checkpoint
    return Trained(model, prediction, labels)


def _go_on(
    job: Job, model: SimGCD | GCD, stage: int, descent: SharpnessAware
) -> tuple[int, int, NDArray[np.int64], Prediction | None]:
    """Epochs done, epochs in all, labels and prediction of the last one: from a checkpoint, or of a beginning."""
    checkpoint = job.run.restore(stage, model, descent.optimiser)
    if checkpoint is None:
        begin_alike(model)
        assert job.settings.epochs is not None
        return 0, job.settings.epochs, job.labels, None
    descent.skipped_steps = checkpoint.skipped_steps
    if descent.scaler is not None and checkpoint.scaler is not None:
        descent.scaler.load_state_dict(checkpoint.scaler)
    if checkpoint.epoch < checkpoint.epochs:
        of = f" of training {stage}" if job.settings.stages > 1 else ""
        job.screen.say(f"going on after epoch {checkpoint.epoch} of {checkpoint.epochs}{of}")
    said = predict(model, job.source, job.settings.batch_size)
    return checkpoint.epoch, checkpoint.epochs, checkpoint.labels, said


def _one_epoch(
    job: Job, model: SimGCD | GCD, descent: SharpnessAware, labels: NDArray[np.int64], stage: int, epoch: int
) -> dict[str, float]:
    """All steps of an epoch; the mean of each part of the loss and, with LSP, of its rise at the end of the climb."""
    s, device = job.settings, torch.device(job.settings.device)
    moment = (stage - 1) * STAGE_OFFSET + epoch  # of the random draws: no two stages share them
    batches = draw_batches(labels, s.batch_size, s.seed, moment)
    part = share(len(batches[0]))  # of every batch: the others are in other processes
    taken, sums = 0, dict[str, float]()

    def read(b: int) -> NDArray[Any]:
        return job.source.read_pair(batches[b], s.seed, moment * len(batches) + b, part)

    tokens: Tensor | None = None  # of the step before: its memory serves the next one
    with ThreadPoolExecutor(1) as pool:  # reads the next batches meanwhile
        for images, views in zip(batches, prefetched(pool, read, range(len(batches)), ahead=2), strict=True):
            tokens = job.source.tokens_of(views, device, into=tokens)
            parts = one_step(model, descent, tokens, torch.from_numpy(labels[images]).to(device), epoch)
            if parts is not None:
                taken += 1
                sums = {name: sums.get(name, 0.0) + value.item() for name, value in parts.items()}
    return {name: total / taken for name, total in sums.items()}


def one_step(model: SimGCD | GCD, descent: SharpnessAware, tokens: Tensor, labels: Tensor, epoch: int) -> Parts | None:
    """The parts of the loss and, with LSP, its rise; None for a step that was skipped. Tokens left the frozen trunk:
    both passes share them."""
    totals: list[Tensor] = []  # here and, with LSP, uphill

    def gradients() -> Parts:
        model.zero_grad()
        parts = model.losses(tokens, labels, epoch)
        descent.backward(parts["total"])
        sum_gradients(model)
        totals.append(parts["total"].detach())
        return parts

    parts = descent.step(gradients)
    if parts is not None and len(totals) > 1:
        parts["rise"] = totals[1] - totals[0]
    return parts


def _scaler(settings: Settings) -> torch.amp.GradScaler | None:
    """float16 gradients of small losses vanish unless the loss is scaled; bfloat16 has the range of float32."""
    return torch.amp.GradScaler(torch.device(settings.device).type) if settings.precision == "float16" else None


def training_pair(source: Source, images: NDArray[np.int64], seed: int, step: int) -> Tensor:
    """Tokens of two views of each image, on the CPU."""
    return source.tokens_of(source.read_pair(images, seed, step), torch.device("cpu"))


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
def predict(model: SimGCD | GCD | Clusters, source: Source, batch_size: int) -> Prediction:
    """One pass over the evaluation views."""
    device = next(model.tail.parameters()).device
    model.eval()
    features, probabilities = evaluated(source, batch_size, lambda tokens: model.predict(tokens.to(device)))
    model.train()
    return Prediction(features, probabilities)


def evaluated(source: Source, batch_size: int, answers: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """What is answered to all evaluation views, a row each; every process asks for its share of them."""
    if len(source) < processes():
        raise UserError(f"{processes()} processes are too many for {len(source)} images: start fewer")
    mine = range(len(source))[share(len(source))]
    batches = (mine[i : i + batch_size] for i in range(0, len(mine), batch_size))
    parts = [[rows.cpu() for rows in answers(source.evaluation(images))] for images in batches]
    return tuple(gathered(torch.cat(column), len(source)) for column in zip(*parts, strict=True))


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
    for name in ("anchors", "empty_classes", "skipped_steps"):
        text += f"  {name.replace('_', ' ')} {entry[name]:,}" if entry[name] else ""
    return text
