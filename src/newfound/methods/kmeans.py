"""Plain k-means on frozen features: the number every method has to beat, and where ours starts from."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

MOST_STARTS, DISTANCES = 10, 200_000_000


def kmeans_clusters(features: NDArray[np.float32], n_clusters: int, seed: int) -> NDArray[np.int64]:
    """Cluster numbers of L2-normalised features, the best of ten starts (fewer on very large data)."""
    starts = int(np.clip(DISTANCES // (len(features) * n_clusters), 1, MOST_STARTS))
    kmeans = KMeans(n_clusters, n_init=starts, random_state=seed)
    # One thread: with several, the order of their partial sums, and with it the last bits, is left to chance.
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than clusters: some stay empty
        found = kmeans.fit_predict(normalize(features))
    return np.asarray(found, dtype=np.int64)
