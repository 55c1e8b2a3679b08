"""HDBSCAN*(BC) on the frozen features: nothing is trained, and the number of classes is what the density says.

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
from newfound.errors import require
from newfound.evaluate import claimed_clusters
from newfound.hdbscan import NO_CLUSTER, density_clusters, usual_cluster_size
from newfound.methods import Needs
from newfound.methods.cms import class_means, with_class_on_top
from newfound.settings import DataFacts, Training, filled
from newfound.settings.value_types import checks_names
from newfound.text import counted
from newfound.training.heads import NearestCentre
from newfound.training.learner import Learner, Predictor
from newfound.training.loop import Trained, all_features, classified
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
    """How many neighbours an image must have nearby to lie in a dense place. More of them: more images are in no
    class."""
    directions: int = 0
    """Cluster in so many principal directions. 0: on the t-SNE map that the report shows, where far more
    labelled images are grouped as their labels say."""
    temperature: float = 0.1
    """How sharply distances from the centres become probabilities."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = filled(s, {"min_cluster_size": usual_cluster_size(facts.labelled_per_class)})
    assert s.min_cluster_size is not None
    require("min_cluster_size", s.min_cluster_size, s.min_cluster_size >= 2, "at least 2")
    require("min_samples", s.min_samples, s.min_samples >= 1, "at least 1")
    require("directions", s.directions, s.directions >= 0, "0 or more")
    require("temperature", s.temperature, 0 < s.temperature < np.inf, "a number above 0")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 0


def fit(task: Task, s: Settings) -> Trained:
    """Clusters of the frozen features, named; and the means of them, to label other images with."""
    classes = named_clusters(found_clusters(task, s), task.labels, task.n_known)
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


def named_clusters(clusters: NDArray[np.int64], labels: NDArray[np.int64], n_known: int) -> NDArray[np.int64]:
    """The class of each image: a known one for the cluster that most of its labelled images are in, others from
    ``n_known`` on, `NO_CLUSTER` for none.

    >>> named_clusters(np.array([0, 0, 1, 1, 2, -1]), np.array([-1, -1, 0, -1, -1, 0]), n_known=1).tolist()
    [1, 1, 0, 0, 2, -1]
    """
    placed = clusters >= 0
    if not placed.any():
        return clusters
    claimed, _ = claimed_clusters(clusters[placed], labels[placed], n_known)
    meant = {cluster: k for k, cluster in claimed.items() if ((clusters == cluster) & (labels == k)).any()}
    others = [cluster for cluster in range(int(clusters.max()) + 1) if cluster not in meant]
    meant |= {cluster: n_known + i for i, cluster in enumerate(others)}
    number = np.array([meant[cluster] for cluster in range(len(meant))], dtype=np.int64)
    return np.where(placed, number[clusters], NO_CLUSTER)


@dataclass(frozen=True)
class DenseCount:
    """How many classes there seem to be, and the share of images in none of them."""

    classes: int
    known: int
    none: float

    def __str__(self) -> str:
        return (
            f"{counted(self.classes, 'class')} by density, {self.known:,} of them known; "
            f"{100 * self.none:.0f} % of the images are in none of them"
        )


def count_dense(features: NDArray[np.float32], labels: NDArray[np.int64]) -> DenseCount:
    """The known classes and every other dense group, with the usual settings; labels are -1 for unlabelled."""
    labelled, known = int((labels >= 0).sum()), int(labels.max(initial=-1)) + 1
    clusters = density_clusters(features, labels, usual_cluster_size(labelled / max(known, 1)))
    classes = named_clusters(clusters, labels, known)
    return DenseCount(max(int(classes.max()) + 1, known), known, float((classes < 0).mean()))


class Means(Learner):
    """Frozen features, and the nearest of the classes' means."""

    def __init__(self, task: Task, s: Settings, classes: NDArray[np.int64]) -> None:
        super().__init__()
        count, placed = max(int(classes.max()) + 1, task.n_known, FEWEST_CLASSES), classes >= 0
        unit: Tensor = F.normalize(torch.from_numpy(task.frozen()[placed]), dim=1)
        with task.drawn():
            self.tail = task.new_tail()
        self.classifier = NearestCentre(class_means(unit, classes[placed], count))
        self.temperature = s.temperature

    def predictor(self) -> Predictor:
        return Predictor(self.tail, self.classifier, self.temperature)
