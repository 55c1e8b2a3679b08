"""What speaks for a number of classes: the accuracy on labelled images, or without labels the silhouette."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances, silhouette_samples

from newfound.evaluate import matched_classes
from newfound.random_streams import CLASS_COUNT

SAMPLED = 3000  # images whose silhouettes are taken
OF_RESAMPLING, OF_TREE, OF_SILHOUETTE, OF_KMEANS = range(4)  # what is drawn


class Criterion(Protocol):
    """Judges clusters unit by unit: the score is the sum of the values over the sum of the sizes."""

    name: str
    sizes: NDArray[np.float64]

    def values(self, clusters: NDArray[np.int64]) -> NDArray[np.float64]: ...


class Accuracy:
    """The unit is a known class: how many of its labelled images lie in the cluster matched with it."""

    name = "accuracy on labelled images"

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self._labelled = np.flatnonzero(labels >= 0)
        _, first, classes = np.unique(labels[self._labelled], return_index=True, return_inverse=True)
        self._classes = first.argsort().argsort()[classes]  # by first image: what a class is called does not matter
        self.sizes = np.bincount(self._classes).astype(np.float64)

    def values(self, clusters: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.unique(clusters[self._labelled], return_inverse=True)[1]
        correct = matched_classes(self._classes, found) == self._classes
        return np.asarray(np.bincount(self._classes, weights=correct), dtype=np.float64)


class Silhouette:
    """The unit is an image of a sample: how much nearer its cluster is than the next one, from -1 to 1."""

    name = "silhouette"

    def __init__(self, places: NDArray[np.float32], seed: int) -> None:
        self._sample = drawn_images(len(places), SAMPLED, seed, OF_SILHOUETTE)
        self._distances = pairwise_distances(places[self._sample])
        self.sizes = np.ones(len(self._sample))

    def values(self, clusters: NDArray[np.int64]) -> NDArray[np.float64]:
        found = clusters[self._sample]
        if not 1 < len(np.unique(found)) < len(found):
            return np.zeros(len(found))
        values: NDArray[np.float64] = silhouette_samples(self._distances, found, metric="precomputed")
        return values


def criterion_for(places: NDArray[np.float32], labels: NDArray[np.int64], seed: int) -> Criterion:
    return Accuracy(labels) if labels_tell(labels) else Silhouette(places, seed)


def labels_tell(labels: NDArray[np.int64]) -> bool:
    """Whether clusters too few and clusters too many can both show in the accuracy."""
    images = np.unique(labels[labels >= 0], return_counts=True)[1]
    return int((images > 1).sum()) > 1


def drawn_images(images: int, wanted: int, seed: int, purpose: int) -> NDArray[np.int64]:
    random = np.random.default_rng([seed, CLASS_COUNT, purpose])
    return np.sort(random.permutation(images)[:wanted])
