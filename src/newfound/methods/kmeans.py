"""Plain k-means on frozen features: the number every method has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize


def kmeans_clusters(features: NDArray[np.float32], n_clusters: int, seed: int) -> NDArray[np.int64]:
    """Cluster numbers of L2-normalised features, the best of ten starts."""
    found = KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(normalize(features))
    return np.asarray(found, dtype=np.int64)
