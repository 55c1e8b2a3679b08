"""The nearest rows of arrays, in blocks: memory stays the same however many images there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

CELLS = 1 << 23  # similarities held at a time: 32 MB


def unit_rows(embeddings: NDArray[np.floating]) -> Floats:
    """Rows of length 1; a row without any direction, or with numbers that are none, becomes 0: it is near to nothing.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]])).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0], [0.0, 0.0]]
    """
    rows = np.asarray(embeddings, dtype=np.float32)
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, np.float32(0))
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1), dtype=np.float32)


def nearest(unit: Floats, queries: Ints, count: int) -> Ints:
    """The ``count`` nearest other images of each image in ``queries``, nearest first."""
    count = min(count, len(unit) - 1)
    found = np.empty((len(queries), count), dtype=np.int64)
    for rows in blocks(len(queries), max(1, CELLS // max(len(unit), 1))):
        asked = queries[rows]
        cosine = unit[asked] @ unit.T
        cosine[np.arange(len(asked)), asked] = -np.inf
        # Ties go to the lower index, so that the answer does not depend on how a block was cut.
        best = np.argpartition(-cosine, count - 1, axis=1)[:, :count] if count else np.empty((len(asked), 0), np.int64)
        order = np.lexsort((best, -np.take_along_axis(cosine, best, axis=1)), axis=1)
        found[rows] = np.take_along_axis(best, order, axis=1)
    return found


def blocks(total: int, size: int) -> Iterator[slice]:
    """Slices that cover ``total`` items.

    >>> list(blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def nearest_among(points: Floats, others: Floats, count: int) -> tuple[Ints, Floats]:
    """Which of ``others`` are nearest to each point by Euclidean distance, and how far they are."""
    count = min(count, len(others))
    index = np.empty((len(points), count), dtype=np.int64)
    squares = np.einsum("nd,nd->n", others, others)
    for rows in blocks(len(points), max(1, CELLS // max(len(others), 1))):
        distance = squares[None] - 2 * points[rows] @ others.T
        best = np.argpartition(distance, count - 1, axis=1)[:, :count]
        order = np.lexsort((best, np.take_along_axis(distance, best, axis=1)), axis=1)
        index[rows] = np.take_along_axis(best, order, axis=1)
    return index, np.linalg.norm(points[:, None] - others[index], axis=2)
