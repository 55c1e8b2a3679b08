"""Ward's hierarchical clustering: in each step the two clusters are merged that raise the squared error least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

MOST_ROWS = 20_000  # SciPy holds two tables of all pairs in double precision: 3.2 GB together


def ward_cut(rows: NDArray[np.floating], n_clusters: int) -> NDArray[np.int64]:
    """Ward's clusters after exactly N − ``n_clusters`` merges, numbered by their lowest member.

    ``rows`` is N×d. Where there are no more rows than clusters, each row is one.

    >>> ward_cut(np.array([[0.0], [10.0], [1.0], [12.0]]), 2).tolist()
    [0, 1, 0, 1]
    """
    n = len(rows)
    if n > MOST_ROWS:
        raise ValueError(
            f"Ward's clustering of {n} rows would need {8 * n * n / 1e9:.1f} GB of memory; "
            f"it is made for at most {MOST_ROWS} rows"
        )
    if n <= n_clusters:
        return np.arange(n)
    merges = linkage(rows, "ward")[: n - n_clusters, :2].astype(np.int64)  # merge j makes node n + j of two nodes
    top = np.arange(n + len(merges))
    for node in reversed(range(n, len(top))):
        top[merges[node - n]] = top[node]
    _, first, cluster = np.unique(top[:n], return_index=True, return_inverse=True)
    return first.argsort().argsort()[cluster]
