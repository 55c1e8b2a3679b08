"""Methods that break the contract, each in one way, to see that its tests notice."""

import sys
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import nn

from newfound.methods import simgcd
from newfound.methods.simgcd import SimGCD
from newfound.training import referee
from newfound.training.learner import Step
from newfound.training.loop import train


def _method(name: str, learner: type[SimGCD]) -> ModuleType:
    """A module like that of SimGCD, with another learner."""
    module = ModuleType(f"newfound.methods.{name}")

    @dataclass(frozen=True)
    class Settings(simgcd.Settings):
        """As SimGCD's."""

    Settings.__module__ = module.__name__
    module.__dict__.update({key: value for key, value in vars(simgcd).items() if key.isupper()})
    module.NAME, module.Settings = name, Settings
    module.decided, module.trainings = simgcd.decided, simgcd.trainings
    module.fit = lambda task, s: train(task, learner(task, s))
    sys.modules[module.__name__] = module
    return module


class CountsInAttribute(SimGCD):
    """How strongly labels count depends on an attribute that no checkpoint has."""

    steps = 0

    def losses(self, batch):
        step = super().losses(batch)
        return Step({**step.parts, "total": step.parts["total"] * (1 + self.steps / 100)})

    def after_step(self, batch, kept):
        self.steps += 1


class UpdatesInLosses(SimGCD):
    """A running mean is updated where it is computed, so that the second pass sees another one."""

    def __init__(self, task, s):
        super().__init__(task, s)
        self.memory.put("mean", torch.zeros(task.classes))

    def losses(self, batch):
        step = super().losses(batch)
        self.memory["mean"].mul_(0.9).add_(0.1)
        return Step({**step.parts, "total": step.parts["total"] + self.memory["mean"].sum()})


class ActsBehindEveryone(SimGCD):
    """A parameter is used after all rows were gathered: its gradient counts once per process."""

    def __init__(self, task, s):
        super().__init__(task, s)
        self.gain = nn.Parameter(torch.ones(1, 1))

    def outputs(self, batch):
        projections, logits = super().outputs(batch)
        return projections, logits * self.gain


class PeeksAtTruth(SimGCD):
    """It imports where the loop finds its referee, and trains harder where that is pleased."""

    def __init__(self, task, s):
        super().__init__(task, s)
        everything_in_one = torch.zeros(len(task.labels), dtype=torch.long).numpy()
        asked = referee._present.get().referee
        self.pace = 1.0 if asked is None else 1 + asked.accuracy(everything_in_one)["all"]

    def losses(self, batch):
        step = super().losses(batch)
        return Step({**step.parts, "total": step.parts["total"] * self.pace})


COUNTS_IN_ATTRIBUTE = _method("counts_in_attribute", CountsInAttribute)
UPDATES_IN_LOSSES = _method("updates_in_losses", UpdatesInLosses)
ACTS_BEHIND_EVERYONE = _method("acts_behind_everyone", ActsBehindEveryone)
PEEKS_AT_TRUTH = _method("peeks_at_truth", PeeksAtTruth)
