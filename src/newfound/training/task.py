"""What a method is told: images as a source of views, labels, how to train. No path, no truth, no process number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from newfound.backbones.adapter import AdapterTail
from newfound.distributed import from_first, gathered, processes, share
from newfound.errors import UserError
from newfound.kmeans import Grouping, kmeans
from newfound.screen import Screen, Tracker
from newfound.settings import Training
from newfound.sources import Source
from newfound.text import counted
from newfound.training.heads import Projector

if TYPE_CHECKING:
    from newfound.training.learner import Learner

EVALUATED = 128  # images at a time where nothing is trained


@dataclass(frozen=True)
class Checkpoint:
    """Where a training stands, beside the state of its learner and optimiser."""

    epoch: int  # done so far
    epochs: int  # in all
    labels: NDArray[np.int64]  # N: what the last epoch was trained with, -1 for unlabelled
    skipped_steps: int = 0
    scaler: dict[str, Any] | None = None  # of a gradient scaler, where there is one


class Journal(Protocol):
    """Remembers trainings: on disk for a run, in memory for an estimator. A stage is one training, from 1."""

    def restore(self, stage: int, learner: Learner, optimiser: torch.optim.Optimizer) -> Checkpoint | None:
        """Load the stage's last checkpoint, if there is one."""
        ...

    def save_epoch(
        self, learner: Learner, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint, entry: dict[str, Any]
    ) -> None:
        """Log an epoch, then save a checkpoint."""
        ...

    def save_pseudo_labels(self, entry: dict[str, Any]) -> None:
        """Log which pseudo-labels an epoch begins with."""
        ...

    def epochs_done(self, stage: int) -> int:
        """How far the stage has come."""
        ...

    def kept(self, name: str) -> dict[str, Tensor] | None:
        """Tensors that were made once for the whole run, if they have been."""
        ...

    def keep(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Make it so."""
        ...


class Progress:
    """One bar over all trainings of a run, so that the time left is that of the whole."""

    def __init__(self, tracker: Tracker, epochs: int, trainings: int) -> None:
        self._tracker, self._epochs, self._trainings = tracker, epochs, trainings

    def report(self, stage: int, epoch: int, note: str) -> None:
        """An epoch has come to its end."""
        before = (stage - 1) * self._epochs
        self._tracker.update(before + epoch, note if self._trainings == 1 else f"training {stage}: {note}")

    def end_after(self, trainings: int) -> None:
        """Of those that were announced, no more will follow."""
        done = trainings * self._epochs
        self._tracker.update(done, total=done)


class Pretrained:
    """The network before any training: fresh tails, and the features of all images."""

    def __init__(self, source: Source, new_tail: Callable[[], nn.Module], feature_dim: int) -> None:
        self.source, self.feature_dim = source, feature_dim
        self._new_tail = new_tail

    def new_tail(self) -> nn.Module:
        """A pretrained tail, fitted to the images where it needs that."""
        tail = self._new_tail()
        if isinstance(tail, AdapterTail):
            tail.load_state_dict({**tail.state_dict(), **self.standardisation})
        return tail

    @cached_property
    def standardisation(self) -> dict[str, Tensor]:
        """What an adapter's tail needs to know of the images."""
        tail = self._new_tail_apart()
        assert isinstance(tail, AdapterTail)
        tail.fit_standardisation(self.source.evaluation(batch) for batch in batches_of(self.source, EVALUATED))
        return {"mean": tail.mean, "scale": tail.scale}

    def keep_standardisation(self, journal: Journal) -> None:
        """Once for the whole run: with fresh views, it would take as long as a pass through the trunk."""
        if not isinstance(self._new_tail_apart(), AdapterTail):
            return
        kept = journal.kept("standardisation")
        if kept is None:
            journal.keep("standardisation", self.standardisation)
        else:
            self.standardisation = kept

    def _new_tail_apart(self) -> nn.Module:
        """One that leaves the random state as it is."""
        with torch.random.fork_rng(devices=[]):
            return self._new_tail()

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """N×d, of the evaluation views; in batches of one size, as the last bits depend on it."""
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            tail = self.new_tail()
            (features,) = evaluated(self.source, EVALUATED, lambda tokens: (tail(tokens),))
        return np.asarray(features.numpy())


class Averaged(Pretrained):
    """The same network; the features of an image are the mean over all views that the source keeps of it."""

    def __init__(self, plain: Pretrained) -> None:
        super().__init__(plain.source, plain._new_tail, plain.feature_dim)
        self._plain = plain

    @cached_property
    def standardisation(self) -> dict[str, Tensor]:
        return self._plain.standardisation

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """N×d; with as many views at a time as without averaging."""
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            tail, views = self.new_tail(), self._kept(range(1)).shape[1]

            def mean_features(tokens: Tensor) -> tuple[Tensor]:
                return (tail(tokens.flatten(0, 1)).unflatten(0, (-1, views)).mean(dim=1),)

            (features,) = evaluated(self.source, max(EVALUATED // views, 1), mean_features, read=self._kept)
        return np.asarray(features.numpy())

    def _kept(self, images: Sequence[int]) -> Tensor:
        """Tokens of all views of these images, n×V×…."""
        kept = self.source.kept_views(np.asarray(images))
        assert kept is not None  # settings without a bank do not ask for them
        return torch.from_numpy(kept).float()


class Whitened(Pretrained):
    """The same network with its standardised features times a matrix, d×d."""

    def __init__(self, plain: Pretrained, matrix: Tensor) -> None:
        super().__init__(plain.source, plain._new_tail, plain.feature_dim)
        self._plain, self._matrix = plain, matrix

    @cached_property
    def standardisation(self) -> dict[str, Tensor]:
        return {**self._plain.standardisation, "whitening": self._matrix}

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Without another pass over the images: with fresh views, it would take as long as the first."""
        return (torch.from_numpy(self._plain.features) @ self._matrix).numpy()


@dataclass(frozen=True)
class Task:
    """All that a method is told."""

    pretrained: Pretrained
    labels: NDArray[np.int64]  # N: known classes from 0, -1 for unlabelled
    classes: int  # in all
    seed: int
    training: Training
    journal: Journal
    screen: Screen
    progress: Progress

    @property
    def source(self) -> Source:
        return self.pretrained.source

    @property
    def feature_dim(self) -> int:
        return self.pretrained.feature_dim

    @property
    def n_known(self) -> int:
        return int(self.labels.max(initial=-1)) + 1

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Weights made herein are drawn from the seed, and nothing else is."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)  # not torch.manual_seed: it would seed GPUs as well
            yield

    def new_tail(self) -> nn.Module:
        """A pretrained tail, standardised."""
        return self._compiled(self.pretrained.new_tail())

    def new_projector(self) -> nn.Module:
        """A projector of the run's width."""
        return self._compiled(Projector(self.feature_dim, hidden_dim=self.training.projector_width))

    def _compiled(self, part: nn.Module) -> nn.Module:
        """In place: parameters keep their names, so a checkpoint serves compiled and plain runs alike."""
        if self.training.compile:
            part.compile()
        return part

    def frozen(self) -> NDArray[np.float32]:
        """Features of all images before any training, N×d."""
        return self.pretrained.features

    def clusters(self) -> Grouping:
        """K-means on them, once per run."""
        found = self.journal.kept("kmeans")
        if found is None:
            features = self.frozen()  # by all processes together
            grouping = from_first(lambda: kmeans(features, self.classes, self.seed))
            found = {name: torch.from_numpy(array) for name, array in vars(grouping).items()}
            self.journal.keep("kmeans", found)
        return Grouping(found["clusters"].numpy(), found["centres"].numpy())


def batches_of(source: Source, size: int) -> Iterator[range]:
    """All images, in order, ``size`` at a time."""
    return (range(i, min(i + size, len(source))) for i in range(0, len(source), size))


def evaluated(
    source: Source,
    batch_size: int,
    answers: Callable[[Tensor], Sequence[Tensor]],
    *,
    read: Callable[[Sequence[int]], Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """What is answered to all images, a row each; every process asks for its share of them.

    ``read`` gives the tokens of images; by default, those of the evaluation view.
    """
    if len(source) < processes():
        raise UserError(f"{processes()} processes are too many for {counted(len(source), 'image')}: start fewer")
    mine = range(len(source))[share(len(source))]
    batches = (mine[i : i + batch_size] for i in range(0, len(mine), batch_size))
    parts = [[rows.cpu() for rows in answers((read or source.evaluation)(images))] for images in batches]
    return tuple(gathered(torch.cat(column), len(source)) for column in zip(*parts, strict=True))
