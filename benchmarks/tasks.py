"""SimGCD that learns, without a run around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.methods import decide, with_own
from newfound.methods.simgcd import SimGCD
from newfound.runs.journal import MemoryJournal
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings, Training
from newfound.sharpness import SharpnessAware
from newfound.training.learner import Batch
from newfound.training.loop import one_step
from newfound.training.task import Pretrained, Progress, Task

QUIET = Screen(quiet=True)


def decided(classes: int, known: int, images: int, **changes: Any) -> Settings:
    """SimGCD with the sharpness penalty unless changes say otherwise; five labelled images of each known class."""
    facts = DataFacts(images, known, 5 * known, known, classes)
    values = {"method": "simgcd", "rho": 0.05, "device": "cpu", **changes}
    return decide(with_own(Settings(classes), values), facts)


def task_of(settings: Settings, pretrained: Pretrained, labels: NDArray[np.int64]) -> Task:
    """All that a method is told."""
    assert settings.classes is not None  # decided settings have it
    training = Training.of(settings)
    with QUIET.track("training", training.epochs) as tracker:
        progress = Progress(tracker, training.epochs, trainings=1)
    return Task(pretrained, labels, settings.classes, settings.seed, training, MemoryJournal(), QUIET, progress)


class Learning:
    """A learner and its optimiser."""

    def __init__(self, settings: Settings, task: Task) -> None:
        self.task, self.learner = task, SimGCD(task, settings.method)  # type: ignore[arg-type]
        t = task.training
        optimiser = torch.optim.SGD(self.learner.groups(t), t.learning_rate, t.momentum, fused=True)
        self.descent = SharpnessAware(optimiser, t.rho)

    def step(self, tokens: Tensor, labels: Tensor, epoch: int = 60) -> None:
        """From two views of each image; by then the targets are as sharp as they get."""
        images = torch.arange(len(labels))  # SimGCD does not ask which ones they are
        one_step(self.learner, self.descent, Batch(tokens, images, labels, epoch, 0, 1, self.task.seed, stage=1))

    @torch.inference_mode()
    def predict(self, tokens: Tensor) -> Tensor:
        """B×K probabilities."""
        predictor = self.learner.predictor()
        return predictor.probabilities(predictor.features(tokens))
