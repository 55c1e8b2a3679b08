"""Plain k-means on frozen features: the number every method has to beat, and where ours starts from."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from newfound.training.heads import NearestCentre
from newfound.training.loop import Job, Trained, predict
from newfound.training.start import claimed_clusters

if TYPE_CHECKING:
    from newfound.methods.simgcd import SimGCD

MOST_STARTS, DISTANCES = 10, 200_000_000
FAR = 100.0  # from every image: where the centre of a class is that no cluster is left for


def fit(job: Job, new_model: Callable[[], SimGCD]) -> Trained:
    """Nothing is trained. A cluster is called by the known class that most of its labelled images agree on."""
    assert job.grouping is not None
    named, others = claimed_clusters(job.grouping.clusters, job.labels, job.n_known)
    centres = np.full((job.settings.classes, job.grouping.centres.shape[1]), FAR, dtype=np.float32)
    for k, cluster in [*named.items(), *enumerate(others, start=job.n_known)]:
        centres[k] = job.grouping.centres[cluster]
    model = Clusters(new_model().tail, torch.from_numpy(centres), job.settings.student_temperature)
    model.to(job.settings.device)
    return Trained(model, predict(model, job.source, job.settings.batch_size), job.labels)


class Clusters(nn.Module):
    """Frozen features, and the nearest of the clusters' centres."""

    def __init__(self, tail: nn.Module, centres: Tensor, temperature: float) -> None:
        super().__init__()
        self.tail = tail
        self.classifier = NearestCentre(centres)
        self.temperature = temperature

    @torch.inference_mode()
    def predict(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Features B×d and class probabilities B×K."""
        features = self.tail(tokens)
        return features, (self.classifier(features) / self.temperature).softmax(dim=1)


@dataclass(frozen=True)
class Grouping:
    """Clusters of L2-normalised features."""

    clusters: NDArray[np.int64]  # N
    centres: NDArray[np.float32]  # K×d: the nearest one is an image's cluster


def kmeans(features: NDArray[np.float32], n_clusters: int, seed: int) -> Grouping:
    """The best of ten starts (fewer on very large data); features N×d of any length."""
    starts = int(np.clip(DISTANCES // (len(features) * n_clusters), 1, MOST_STARTS))
    machine = KMeans(n_clusters, n_init=starts, random_state=seed)
    # One thread: with several, the order of their partial sums, and with it the last bits, is left to chance.
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than clusters: some stay empty
        found = machine.fit_predict(normalize(features))
    return Grouping(np.asarray(found, dtype=np.int64), np.asarray(machine.cluster_centers_, dtype=np.float32))
