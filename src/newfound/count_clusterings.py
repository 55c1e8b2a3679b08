"""The clusterings that a number of classes is judged by: k-means, and a tree that is cut at every number."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import ClusterWarning, cut_tree, linkage
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from newfound.count_criteria import OF_TREE, drawn_images

LINKED = 5000  # images in the tree: 100 MB of distances, held twice


def kmeans_clusters(
    places: NDArray[np.float32], fitted: NDArray[np.int64], count: int, seed: int, starts: int
) -> NDArray[np.int64]:
    """The cluster of each image; the centres are those of the ``fitted`` images."""
    kmeans = KMeans(count, n_init=starts, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than clusters: some stay empty
        if len(fitted) == len(places):
            return np.asarray(kmeans.fit_predict(places), dtype=np.int64)
        return np.asarray(kmeans.fit(places[fitted]).predict(places), dtype=np.int64)


def tree_cuts(
    places: NDArray[np.float32], fewest: int, most: int, seed: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Clusters of all images for every number of them: Ward's tree of a sample, and the others with their nearest."""
    if most == 1:
        yield 1, np.zeros(len(places), dtype=np.int64)
        return
    linked, nearest = drawn_images(len(places), max(LINKED, most), seed, OF_TREE), np.arange(len(places))
    if len(linked) < len(places):
        nearest = pairwise_distances_argmin(places, places[linked])
    counts = range(fewest, most + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterWarning)  # places may happen to look like a table of distances
        tree = linkage(places[linked], "ward")
    for count, cut in zip(counts, cut_tree(tree, counts).T, strict=True):
        yield count, cut[nearest]
