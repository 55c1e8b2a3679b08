"""HDBSCAN*(BC) on the frozen features: nothing is trained, and density decides the number of classes.

Images that lie in no dense group are in none of the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from newfound.distributed import from_first
from newfound.errors import option, require
from newfound.hdbscan import density_clusters, named_clusters, usual_cluster_size
from newfound.methods import Needs
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_at_least_1, require_not_negative, require_positive
from newfound.settings.value_types import checks_names
from newfound.text import counted
from newfound.training.learner import Learner, Predictor
from newfound.training.loop import Trained, all_features, classified
from newfound.training.nearest_centre import NearestCentre, class_means, with_class_on_top
from newfound.training.task import Task

NAME = "hdbscan"
ABOUT = "dense groups on a map of the frozen features, as many as there are; nothing is trained."
SOURCE = """\
Castro Gertrudes, Zimek, Sander, Campello: A unified view of density-based methods for semi-supervised clustering and
classification, 2019 (HDBSCAN*(BC)), on the tree of dense groups of Campello, Moulavi, Sander, 2013. Tree and choice of
clusters are computed here, and match what fast-hdbscan 0.3.4 (BSD-2) prints, except that edges of equal length are
removed together, as in the paper of 2013. Clusters are found on a t-SNE map, because the features themselves have
hardly any dense places."""
DEFAULTS: Mapping[str, object] = {"whitening": "auto"}
PRESETS: Mapping[str, Mapping[str, object]] = {}
NEEDS = Needs(training=False, own_count=True)

FEWEST_CLASSES = 2  # what comes after a method wants a runner-up; a class without images is far from all of them


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of HDBSCAN."""

    min_cluster_size: int | None = None
    """The fewest images that are a class of their own. Default: half as many as a known class has labelled ones, on
    average, and at least 5."""
    min_samples: int = 1
    """How many neighbours an image must have nearby to lie in a dense place. The more, the more images are in no
    class."""
    directions: int = 0
    """Cluster in this many principal directions. 0: on the t-SNE map that the report shows, where far more
    labelled images are grouped as their labels say."""
    temperature: float = 0.1
    """How sharply distances from the centres become probabilities."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = filled(s, {"min_cluster_size": usual_cluster_size(facts.labelled_per_class)})
    assert s.min_cluster_size is not None
    require("min_cluster_size", s.min_cluster_size, s.min_cluster_size >= 2, "at least 2")
    require_at_least_1(s, "min_samples")
    require_not_negative(s, "directions")
    require_positive(s, "temperature")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 0


def fit(task: Task, s: Settings) -> Trained:
    """Clusters of the frozen features, named; and the means of them, to label other images with."""
    classes = named_clusters(found_clusters(task, s), task.labels, task.n_known)
    _warn_of_classes_without_group(task, classes)
    learner = Means(task, s, classes).to(task.training.device)
    nearest = classified(task, learner, all_features(task, learner))
    placed = classes >= 0
    agree = float((nearest.classes.numpy() == classes)[placed].mean()) if placed.any() else 0.0
    task.screen.say(
        f"{100 * (1 - placed.mean()):.1f} % are in none of the classes; of the others, the nearest centre, which "
        f"labels new ones, agrees with the clustering on {100 * agree:.1f} %"
    )
    probabilities = with_class_on_top(nearest.probabilities, classes)
    return Trained(learner.predictor(), replace(nearest, probabilities=probabilities), task.labels, ~placed)


def _warn_of_classes_without_group(task: Task, classes: NDArray[np.int64]) -> None:
    """A known class is never lost, but without a group only its labelled images say where it is."""
    if missing := len(np.setdiff1d(np.arange(task.n_known), classes)):
        which = f"{missing:,} of {counted(task.n_known, 'known class')}"
        task.screen.warn(
            f"no dense group for {which}, known by the mean of their labelled images alone: a smaller "
            f"{option('min_cluster_size')} may find more groups"
        )


def found_clusters(task: Task, s: Settings) -> NDArray[np.int64]:
    """The clusters, once per run."""
    assert s.min_cluster_size is not None
    size, kept = s.min_cluster_size, task.journal.kept(NAME)
    if kept is None:
        features = task.frozen()  # by all processes together
        found = from_first(lambda: density_clusters(features, task.labels, size, s.min_samples, s.directions))
        kept = {"clusters": torch.from_numpy(found)}
        task.journal.keep(NAME, kept)
    return kept["clusters"].numpy()


class Means(Learner):
    """Frozen features, and the nearest of the classes' means."""

    def __init__(self, task: Task, s: Settings, classes: NDArray[np.int64]) -> None:
        super().__init__()
        with task.drawn():
            self.tail = task.new_tail()
        self.classifier = NearestCentre(centres(torch.from_numpy(task.frozen()), classes, task.labels, task.n_known))
        self.temperature = s.temperature

    def predictor(self) -> Predictor:
        return Predictor(self.tail, self.classifier, self.temperature)


def centres(features: Tensor, classes: NDArray[np.int64], labels: NDArray[np.int64], n_known: int) -> Tensor:
    """K×d: the mean of each class's images, of length 1; of a known class without any, that of its labelled ones.

    ``features`` is N×d, ``classes`` N from `named_clusters`, ``labels`` N with -1 for unlabelled.

    >>> centres(torch.eye(3), np.array([0, 0, -1]), np.array([0, 1, 1]), n_known=2)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    rows, count = F.normalize(features, dim=1), max(int(classes.max()) + 1, n_known, FEWEST_CLASSES)
    placed, labelled = classes >= 0, labels >= 0
    of_groups = class_means(rows[placed], classes[placed], count)
    of_labels = class_means(rows[labelled], labels[labelled], count)
    grouped = torch.from_numpy(np.isin(np.arange(count), classes))
    return torch.where(grouped[:, None], of_groups, of_labels)
