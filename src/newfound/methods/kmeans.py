"""Plain k-means on the frozen features: nothing is trained, and every method has to beat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from newfound.evaluate import claimed_clusters
from newfound.methods import Needs
from newfound.settings import DataFacts, Training
from newfound.settings.ranges import require_positive
from newfound.settings.value_types import checks_names
from newfound.training.learner import Learner, Predictor
from newfound.training.loop import Trained, all_features, classified
from newfound.training.nearest_centre import FAR, NearestCentre
from newfound.training.task import Task

NAME = "kmeans"
ABOUT = "k-means on the frozen features; nothing is trained."
SOURCE = """\
The usual baseline: scikit-learn's k-means, best of ten starts. A cluster takes the name of the known class that most of
its labelled images agree on."""
DEFAULTS: Mapping[str, object] = {"whitening": "auto"}
PRESETS: Mapping[str, Mapping[str, object]] = {}
NEEDS = Needs(training=False)


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of k-means."""

    temperature: float = 0.1
    """How sharply distances from the centres become probabilities."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    require_positive(s, "temperature")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 0


def fit(task: Task, s: Settings) -> Trained:
    """Clusters of the frozen features, named."""
    learner = Clusters(task, s).to(task.training.device)
    return Trained(learner.predictor(), classified(task, learner, all_features(task, learner)), task.labels)


class Clusters(Learner):
    """Frozen features, and the nearest of the clusters' centres."""

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        found = task.clusters()
        named, others = claimed_clusters(found.clusters, task.labels, task.n_known)
        centres = np.full((task.classes, found.centres.shape[1]), FAR, dtype=np.float32)
        for k, cluster in [*named.items(), *enumerate(others, start=task.n_known)]:
            centres[k] = found.centres[cluster]
        with task.drawn():
            self.tail = task.new_tail()
        self.classifier, self.temperature = NearestCentre(torch.from_numpy(centres)), s.temperature

    def predictor(self) -> Predictor:
        return Predictor(self.tail, self.classifier, self.temperature)
