"""RSS (Peng et al., IJCAI 2024): SimGCD, and again from the start with images it surely has right as labelled ones.

An image that was put into a new class is surely right if those near it were put into the same class. Such images are
chosen once, from the first training. In a second one, of a fresh model, they are treated as labelled: the surest of
each class at first, all of them after half of the epochs. As anchors of `sdas` they count as labelled in cross-entropy,
SupCon and the sampler, stay in the unsupervised parts, and are scored like any unlabelled image.

No code is public and the full text could not be read: this is a reading of its summary and of the numbers of selected
images that were published since. No number of ours is a reproduction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from newfound.distributed import from_first
from newfound.methods import Needs, simgcd
from newfound.methods.sdas import at_most_two, nothing_new, usual_per_class
from newfound.methods.simgcd import SimGCD
from newfound.neighbours import nearest_by_distance
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_at_least_1, require_share
from newfound.settings.value_types import checks_names
from newfound.training.learner import Between, Prediction
from newfound.training.loop import Trained, train
from newfound.training.task import Task

NAME = "rss"
ABOUT = (
    "SimGCD, then again with pseudo-labels for images whose neighbours are in the same new class; two trainings "
    "(a reading: no code is public)."
)
SOURCE = """\
Peng, Wang, Liu, Cheng: Let's Start Over: Retraining with Selective Samples for Generalized Category Discovery, IJCAI
2024. No code is public: this is a reading of the paper's summary, not a reproduction; the selection matches an
independent reference of that reading. On your own folder, the classifier starts at clusters."""
READING = True
DEFAULTS: Mapping[str, object] = {}
PRESETS: Mapping[str, Mapping[str, object]] = simgcd.PRESETS  # both trainings are SimGCD's: a reading
NEEDS = Needs(first_training="simgcd", first_training_from="stage1")

ROUNDING = 1e-9  # a share of a number of images that is whole but for rounding counts as whole


@checks_names
@dataclass(frozen=True)
class Settings(simgcd.Settings):
    """Of RSS: SimGCD's, and those of the selection."""

    neighbours: int = 10
    """How many nearest images have to agree with an image. A reading."""
    least_consistency: float = 0.5
    """The share of them, nearer ones counting more, that has to be in the same class. A reading."""
    first_share: float = 0.5
    """The share of the selected images that the second training begins with; from the middle on it has them all. A
    reading."""
    selected_per_class: int | None = None
    """Most images of a new class that are selected. Default: as many as a known class has labelled images on average;
    with nothing labelled, half of an average class."""
    stage1: Path | None = None
    """Take the first training from this run, on the same images with the same backbone and number of classes."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    quota = math.floor(usual_per_class(facts) + 0.5)
    published = {**simgcd.rules(facts, t), **PRESETS.get(facts.preset, {}), "selected_per_class": quota}
    s = simgcd.checked(filled(s, published))
    require_at_least_1(s, "neighbours", "selected_per_class")
    require_share(s, "least_consistency", "first_share")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    """Two, unless nothing is new; nobody knows before the first one whether anything is selected for the second."""
    return at_most_two(facts)


def fit(task: Task, s: Settings) -> Trained:
    """SimGCD, the selection, and SimGCD with it; the first training alone where nothing is selected."""
    alone = nothing_new(task)
    first = train(task, SimGCD(task, s))
    if alone:
        return first
    selection = from_first(lambda: selected(task, s, first.prediction))
    _warn(task, selection, first.prediction)
    if not len(selection.images):
        task.progress.end_after(1)
        return first
    return train(task, Retrained(task, s, first.prediction, selection), stage=2)


def selected(task: Task, s: Settings, prediction: Prediction) -> Selection:
    """What the second training begins with."""
    assert s.selected_per_class is not None  # decided settings have it
    return select(
        prediction.features, prediction.probabilities.numpy(), task.labels, task.n_known, quota=s.selected_per_class,
        neighbours=s.neighbours, least_consistency=s.least_consistency,
    )  # fmt: skip


def _warn(task: Task, selection: Selection, prediction: Prediction) -> None:
    """What a person should know."""
    if not len(selection.images):
        some = bool((prediction.classes.numpy()[task.labels < 0] >= task.n_known).any())
        why = "no image of a new class agrees with its neighbours" if some else "no image was put into a new class"
        task.screen.warn_once(f"{why}: there is nothing to retrain with, and the first training is the result")
    elif len(np.unique(selection.classes)) < task.classes - task.n_known:
        text = (
            "in some new classes no image agrees with its neighbours: they get no labels; anchors.jsonl has the counts"
        )
        task.screen.warn_once(text)


class Retrained(SimGCD):
    """A fresh SimGCD for which the selected images are labelled, more of them from epoch to epoch."""

    def __init__(self, task: Task, s: Settings, initial: Prediction, selection: Selection) -> None:
        super().__init__(task, s)
        self.task, self.initial, self.selection = task, initial, selection
        self.first_share, self.quota = s.first_share, s.selected_per_class

    def between_epochs(self, epoch: int, prediction: Prediction | None) -> Between:
        share = share_at(epoch, self.task.training.epochs, self.first_share)
        labels = with_selected(self.task.labels, self.selection, share)
        facts = {"quota": self.quota, "scale": self.selection.scale, "share": share}
        return Between(labels, self.initial, facts)


# The mathematics: a reading, so there are no equations to cite


@dataclass(frozen=True)
class Agreement:
    """How far images are in the same class as their neighbours."""

    consistency: NDArray[np.float64]  # C: weighted share of the neighbours in the same class, 0 to 1
    score: NDArray[np.float64]  # C: high only where neighbours are of the same class and near
    scale: float  # the mean distance from a neighbour: what is near is nearer than that


@dataclass(frozen=True)
class Selection:
    """Images that may be treated as labelled, class by class, the surest first."""

    images: NDArray[np.int64]
    classes: NDArray[np.int64]  # of each of them
    scale: float


def agreement(
    features: Tensor, classes: NDArray[np.int64], images: NDArray[np.int64], neighbours: int = 10
) -> Agreement:
    """Do those near these ``images`` (C numbers) belong to the same class?

    ``features`` is N×d, of any lengths; ``classes`` the class of each of the N images. Of all others the nearest
    ``neighbours`` count, with weights exp(−distance / mean distance) of features made length 1.

    >>> angles = torch.tensor([0.0, 10.0, 20.0, 180.0]).double().deg2rad()
    >>> plane = torch.stack([angles.cos(), angles.sin()], dim=1)
    >>> found = agreement(plane, np.array([2, 2, 1, 2]), np.array([0, 1, 3]), neighbours=2)
    >>> found.consistency.round(4).tolist()
    [0.5535, 0.5, 0.4929]
    """
    rows, asked = F.normalize(features, dim=1), torch.from_numpy(images)
    distances, index = (found.numpy() for found in nearest_by_distance(rows, rows[asked], neighbours, exclude=asked))
    scale = float(distances.mean()) if distances.size else 0.0
    weights = np.exp(-distances / scale) if scale > 0 else np.ones_like(distances)  # C×k
    agreeing = (weights * (classes[index] == classes[images, None])).sum(axis=1)
    total, k = weights.sum(axis=1), distances.shape[1]
    return Agreement(agreeing / np.where(total > 0, total, 1.0), agreeing / max(k, 1), scale)


def select(
    features: Tensor,
    probabilities: NDArray[np.floating],
    labels: NDArray[np.int64],
    n_known: int,
    *,
    quota: int,
    neighbours: int = 10,
    least_consistency: float = 0.5,
) -> Selection:
    """Of each new class the images that agree best with their neighbours, at most ``quota``.

    ``features`` is N×d, ``probabilities`` N×K, ``labels`` N with -1 for unlabelled. Only unlabelled images whose most
    probable class is one from ``n_known`` on are selected, and of those only with a consistency of
    ``least_consistency`` or more. Of equal scores the lower index comes first.

    >>> angles = torch.tensor([0.0, 10.0, 20.0, 180.0]).double().deg2rad()
    >>> plane = torch.stack([angles.cos(), angles.sin()], dim=1)
    >>> probabilities = np.eye(3)[[2, 2, 1, 2]]
    >>> select(plane, probabilities, np.full(4, -1), 2, quota=1, neighbours=2).images.tolist()
    [0]
    """
    classes = np.where(labels >= 0, labels, probabilities.argmax(axis=1))  # NumPy takes the first of equal ones
    candidates = np.flatnonzero((labels < 0) & (classes >= n_known))
    found = agreement(features, classes, candidates, neighbours)
    surest_first = np.argsort(-found.score, kind="stable")
    surest_first = surest_first[found.consistency[surest_first] >= least_consistency]
    ranked = candidates[surest_first]
    chosen = [ranked[classes[ranked] == k][:quota] for k in range(n_known, probabilities.shape[1])]
    images = np.concatenate([*chosen, np.empty(0, np.int64)])
    return Selection(images, classes[images], found.scale)


def share_at(epoch: int, epochs: int, first_share: float = 0.5) -> float:
    """How much of the selection an epoch (from 0) has: in a straight line, all of it from the middle on.

    >>> [round(share_at(epoch, 9), 3) for epoch in range(6)]
    [0.5, 0.625, 0.75, 0.875, 1.0, 1.0]
    """
    return min(1.0, first_share + (1 - first_share) * epoch / max(1, epochs // 2))


def with_selected(labels: NDArray[np.int64], selection: Selection, share: float) -> NDArray[np.int64]:
    """N labels with those of the surest of each class, a ``share`` of its selection rounded up, at least one.

    >>> selection = Selection(np.array([3, 1, 2]), np.array([1, 1, 1]), scale=1.0)
    >>> with_selected(np.array([0, -1, -1, -1]), selection, 0.5).tolist()
    [0, 1, -1, 1]
    """
    labels = labels.copy()
    for k in np.unique(selection.classes):
        images = selection.images[selection.classes == k]
        labels[images[: max(1, math.ceil(share * len(images) - ROUNDING))]] = k
    return labels
