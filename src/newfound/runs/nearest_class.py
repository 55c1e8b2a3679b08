"""Which class lies nearest to each: the one definition for tables, report, review and findings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NO_CLASS = -1


def nearest_classes(embeddings: NDArray[np.floating], classes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """For each of ``count`` classes the other one whose images lie closest; `NO_CLASS` where either has no image.

    Compared are the means of the classes' embeddings (N×d, of length 1) by their cosine; of equal ones the first
    counts. Images of no class have a negative number in ``classes``.

    >>> places = np.array([[1, 0], [1, 0.2], [0.8, 0.6], [0, 1]])
    >>> nearest_classes(places, np.array([0, 0, 1, 3]), 4).tolist()
    [1, 0, -1, 1]
    """
    means = np.zeros((count, embeddings.shape[1]))
    for k in range(count):
        members = embeddings[classes == k]
        if len(members):
            means[k] = members.mean(axis=0, dtype=np.float64)
    lengths = np.linalg.norm(means, axis=1)
    there = lengths > 0
    means[there] /= lengths[there, None]
    cosines = means @ means.T
    cosines[:, ~there] = -np.inf
    np.fill_diagonal(cosines, -np.inf)
    found = there & np.isfinite(cosines.max(axis=1, initial=-np.inf))
    return np.where(found, cosines.argmax(axis=1), NO_CLASS) if count else np.empty(0, np.int64)
