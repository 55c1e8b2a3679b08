"""What a method is told, without a run around it."""

import numpy as np
import torch

from helping.groups import CLASSES, DIM, LABELS, QUIET, SOURCE
from newfound.backbones.adapter import AdapterTail
from newfound.methods import decide, is_oracle, load, method_of, with_own
from newfound.runs.journal import MemoryJournal, RunJournal
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings, Training
from newfound.training.learner import Batch
from newfound.training.referee import refereed
from newfound.training.task import Pretrained, Progress, Task

QUICK = {"epochs": 4, "batch_size": 48, "projector_width": 32, "device": "cpu"}


def facts_of(labels, classes=CLASSES):
    known = labels[labels >= 0]
    return DataFacts(len(labels), int(labels.max(initial=-1)) + 1, len(known), len(np.unique(known)), classes)


def decided_for(method, labels=LABELS, classes=CLASSES, **changes):
    """Settings of a quick run with nothing left open; changes are of shared or own settings."""
    quick = QUICK if load(method).NEEDS.training else {"device": "cpu"}
    given = None if load(method).NEEDS.own_count else classes
    return decide(with_own(Settings(given, method), {**quick, **changes}), facts_of(labels, classes))


def adapted(source, dim=DIM):
    """Vectors before any training."""
    return Pretrained(source, lambda: AdapterTail(dim, 8), dim)


class NoBar:
    """Where progress is not shown."""

    def update(self, done, note="", total=None):
        """Nothing."""


class Listening(Screen):
    """Keeps what a person would be told."""

    def __init__(self):
        super().__init__(quiet=True)
        self.said, self.warnings = [], []

    def say(self, text):
        self.said.append(text)

    def warn(self, text):
        self.warnings.append(text)


def new_task(settings, pretrained=None, labels=LABELS, *, journal=None, screen=QUIET):
    """A task on the groups of samples, or on others."""
    training = Training.of(settings)
    return Task(
        pretrained or adapted(SOURCE), labels, settings.classes or CLASSES, settings.seed, training,
        journal or MemoryJournal(), screen, Progress(NoBar(), training.epochs, 1),
    )  # fmt: skip


def fitted(settings, *about, referee=None, **more):
    """What the method of these settings makes of such a task."""
    with refereed(referee, oracle=is_oracle(settings)):
        return method_of(settings).fit(new_task(settings, *about, **more), settings.method)


def batch_of(task, images, *, step=0, steps=1, epoch=0, stage=1):
    """Both views of some images, as the loop hands them to a learner in that step."""
    read = task.source.read_pair(images, task.seed, step)
    images, labels = torch.from_numpy(images), torch.from_numpy(task.labels[images])
    tokens = task.source.tokens_of(read, torch.device("cpu"))
    return Batch(tokens, images, labels, epoch, step, steps, task.seed, stage)


class Interrupted(Exception):
    """What ends a run."""


def stopping_after(epoch, stage=1):
    """A kind of journal that ends the run once this epoch is saved."""

    class Stopping(RunJournal):
        def save_epoch(self, learner, optimiser, checkpoint, entry):
            super().save_epoch(learner, optimiser, checkpoint, entry)
            if (entry["stage"], entry["epoch"]) == (stage, epoch):
                raise Interrupted

    return Stopping
