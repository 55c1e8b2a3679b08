"""Ward's hierarchical clustering: in each step the two clusters are merged that raise the squared error least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

BLOCK = 2**22  # distances computed at a time: 32 MB
NEAR = 1e-4  # squared, as a share of the squared lengths: below it a difference of lengths has lost too many digits
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
    merges = linkage(_distances(rows), "ward")[: n - n_clusters, :2].astype(
        np.int64
    )  # merge j makes node n + j of two nodes
    top = np.arange(n + len(merges))
    for node in reversed(range(n, len(top))):
        top[merges[node - n]] = top[node]
    _, first, cluster = np.unique(top[:n], return_index=True, return_inverse=True)
    return first.argsort().argsort()[cluster]


def _distances(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Euclidean distances of all pairs i < j, in SciPy's order: (0, 1), (0, 2), ..., (1, 2), ...

    As |a|² + |b|² − 2ab: matrix products, on all cores. Rows so near each other that this would cancel are subtracted.

    >>> _distances(np.array([[0.0, 3.0], [4.0, 0.0], [0.0, 3.0]])).tolist()
    [5.0, 0.0, 5.0]
    """
    rows = np.asarray(rows, dtype=np.float64)
    squares, n = np.einsum("ij,ij->i", rows, rows), len(rows)
    found, place, step = np.empty(n * (n - 1) // 2), 0, max(1, BLOCK // n)
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        lengths = squares[block, None] + squares[start:]  # block×(N − start)
        table = lengths - 2 * (rows[block] @ rows[start:].T)
        i, j = np.nonzero(table < NEAR * lengths)
        for some in range(0, len(i), step):  # a difference has as many numbers as a row
            one, other = start + i[some : some + step], start + j[some : some + step]
            table[one - start, other - start] = np.square(rows[one] - rows[other]).sum(axis=1)
        for k, line in enumerate(np.sqrt(table)):
            found[place : place + len(line) - k - 1] = line[k + 1 :]
            place += len(line) - k - 1
    return found
