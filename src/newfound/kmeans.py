"""Plain k-means: the baseline every method has to beat, and where a classifier may start."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

MOST_STARTS, DISTANCES = 10, 200_000_000


@dataclass(frozen=True)
class Grouping:
    """Clusters of L2-normalised features."""

    clusters: NDArray[np.int64]  # N
    centres: NDArray[np.float32]  # K×d: the nearest one is an image's cluster


def kmeans(features: NDArray[np.float32], n_clusters: int, seed: int) -> Grouping:
    """The best of ten starts (fewer on very large data); features N×d of any length.

    >>> rows = np.array([[0, 1], [0.1, 1], [1, 0], [1, 0.1]], dtype=np.float32)
    >>> found = kmeans(rows, 2, seed=0).clusters
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.preprocessing import normalize

    starts = int(np.clip(DISTANCES // (len(features) * n_clusters), 1, MOST_STARTS))
    machine = KMeans(n_clusters, n_init=starts, random_state=seed)
    # One thread: with several, the order of their partial sums, and with it the last bits, is left to chance, and many
    # small matrix products beside other programs spend most of their time waiting for a late thread.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than clusters: some stay empty
        found = machine.fit_predict(normalize(features))
    return Grouping(np.asarray(found, dtype=np.int64), np.asarray(machine.cluster_centers_, dtype=np.float32))
