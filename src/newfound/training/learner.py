"""What a method hands to the training loop: a learner that turns batches into losses, and what it predicts with.

Only ``losses`` and ``predictor`` have to be written. The other hooks do nothing unless a method needs them. The rules
that keep a run exact, whatever happens to it:

- ``losses`` changes nothing: with the sharpness penalty it is called twice per step. What happens once per step
  happens in ``after_step``.
- What a later epoch depends on is in the state dict: parameters, buffers, submodules, ``memory``. No attribute counts
  up, nothing is drawn from a global random state.
- No parameter acts behind ``batch.everyone``: its gradient would count once per process.
- A learner never sees the truth, a file or the number of a process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from newfound.distributed import summed, whole_batch
from newfound.random_streams import METHOD_STEP
from newfound.settings import Training
from newfound.training.heads import Classifier, WideHead, parameter_groups
from newfound.training.schedules import learning_rate
from newfound.training.task import Task


@dataclass(frozen=True)
class Batch:
    """Two views of some images; tokens are this process's share of them, everything else is of the whole batch."""

    tokens: Tensor  # 2b×…: what left the frozen trunk, first views then second views; valid during this step
    images: Tensor  # B: their numbers
    labels: Tensor  # B: -1 for unlabelled
    epoch: int
    step: int  # of the training, from 0
    steps: int  # of the training
    seed: int
    stage: int
    precision: str = "float32"

    @property
    def done(self) -> float:
        """How much of the training lies behind: 0 in the first step, nearly 1 in the last."""
        return self.step / self.steps

    def random(self) -> np.random.Generator:
        """The same in every process, and in both passes of the sharpness penalty."""
        return np.random.default_rng([self.seed, METHOD_STEP, self.stage, self.step])

    def everyone(self, rows: Tensor) -> Tensor:
        """2b×d of this process to 2B×d of all: first views of all images, then second views."""
        return whole_batch(rows, len(self.labels))

    def mean(self, rows: Tensor) -> Tensor:
        """2b×d of this process to 2×d: the mean of each view over the images of all processes, with its gradient.

        It is to act on this process's rows, as batch normalisation does, and parameters may act behind it. What enters
        a loss directly is a mean of ``everyone``.
        """
        return summed(rows.view(2, len(rows) // 2, -1).sum(dim=1)) / len(self.labels)

    def autocast(self) -> AbstractContextManager[None]:
        """The precision to run tail and heads in; losses are float32."""
        half = getattr(torch, self.precision)
        context: AbstractContextManager[None] = torch.autocast(
            self.tokens.device.type, half, enabled=self.precision != "float32"
        )
        return context


@dataclass(frozen=True)
class Step:
    """What ``losses`` gives: named parts with their sum as ``total``, and detached tensors for ``after_step``."""

    parts: dict[str, Tensor]
    kept: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction:
    """What a model predicts for every image, in the table's order."""

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


@dataclass(frozen=True)
class Between:
    """What changes before an epoch."""

    labels: NDArray[np.int64] | None = None  # N: given labels and pseudo-labels, -1 for none; None: the given ones
    basis: Prediction | None = None  # what pseudo-labels were chosen from; None: the last epoch's prediction
    facts: Mapping[str, Any] = field(default_factory=dict)  # about them, for the log
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # to be put into the learner's memory


class Memory(nn.Module):
    """Named tensors of a learner that may change their shape, such as queues, centres and pseudo-labels.

    They are part of the state dict, but for those put in with ``checkpointed`` False, which are made again before they
    are used.

    >>> memory = Memory()
    >>> memory.put("centres", torch.zeros(3, 2))
    >>> "centres" in memory, tuple(memory["centres"].shape), list(memory.state_dict())
    (True, (3, 2), ['centres'])
    """

    def put(self, name: str, tensor: Tensor, *, checkpointed: bool = True) -> None:
        """In place of what went by this name before."""
        self.register_buffer(name, tensor.detach(), persistent=checkpointed)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def __contains__(self, name: str) -> bool:
        return name in self._buffers

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
        """Whatever was there, of whatever shape."""
        for key, tensor in state_dict.items():
            if key.startswith(prefix):
                self.put(key[len(prefix) :], tensor)


@dataclass(frozen=True)
class Predictor:
    """All that labelling other images needs."""

    tail: nn.Module
    classifier: Classifier
    temperature: float
    head: WideHead | None = None  # between tail and classifier: its output takes the feature's place

    def features(self, tokens: Tensor) -> Tensor:
        """B×tokens to B×d."""
        features: Tensor = self.tail(tokens)
        return features if self.head is None else self.head(features)

    def probabilities(self, features: Tensor) -> Tensor:
        """B×d to B×K."""
        logits: Tensor = self.classifier(features)
        return (logits / self.temperature).softmax(dim=1)


class Learner(nn.Module):
    """The one base class of methods."""

    tail: nn.Module
    strong_view = False  # True: the first view of each image is strongly augmented, where the source has pixels
    temporary: Collection[str] = ()  # names in memory that are made again before each epoch, not checkpointed

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()

    def losses(self, batch: Batch) -> Step:
        """What is learnt from a batch. Changes nothing."""
        raise NotImplementedError

    def encode(self, tokens: Tensor) -> Tensor:
        """The features it predicts from: B×tokens to B×d."""
        features: Tensor = self.tail(tokens)
        return features

    def predictor(self) -> Predictor:
        """What it predicts with, as it is now; its features are those of ``encode``."""
        raise NotImplementedError

    def begin(self, task: Task) -> None:
        """Once, before the first epoch, and not when a training is resumed."""

    def after_step(self, batch: Batch, kept: Mapping[str, Tensor]) -> None:
        """Once per step that was taken, with what ``losses`` kept at the place before the step."""

    def between_epochs(self, epoch: int, prediction: Prediction | None) -> Between:
        """Before each epoch, in the first process; before the first one there is no prediction."""
        return Between()

    def after_epoch(self, epoch: int, features: Tensor) -> Mapping[str, Tensor]:
        """After each epoch, in the first process, given the features of all images (N×d): what the predictor has to
        know of the whole set, such as centres. It is put into memory, and then the learner predicts."""
        return {}

    def learning_rate(self, epoch: int, training: Training) -> float:
        """A cosine towards a thousandth."""
        return learning_rate(epoch, training.epochs, training.learning_rate)

    def groups(self, training: Training) -> list[dict[str, Any]]:
        """What learns how fast: groups for the optimiser, by ``name``, each with a ``rate`` if it is not to learn at
        the learning rate itself."""
        return parameter_groups(self, weight_decay=training.weight_decay)

    def trains(self, step: int) -> Collection[str] | None:
        """Names of the groups that learn in this step; None: all of them."""
        return None

    def schedule(self, epoch: int) -> dict[str, float]:
        """What changes with the epoch, by name, for the log."""
        return {}
