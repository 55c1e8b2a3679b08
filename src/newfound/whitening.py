"""Whitening by the scatter within known classes: directions in which images of one class differ count less.

The labelled images show along which directions photos of the same class scatter. With S the scatter within classes,
shrunk towards a multiple of the identity, features are multiplied by S^(-1/2), so that a class is about as wide in
every direction, known or new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NONE = 1.0  # the shrinkage that leaves features as they are
ROWS = 4096  # in double precision at a time
ROUNDING = 1e-28  # of double precision, squared
TINY = 1e-10  # an eigenvalue that is 0 but for rounding, in multiples of their mean


def within_class_scatter(
    rows: NDArray[np.floating], labels: NDArray[np.integer], *, by_class: bool = False
) -> NDArray[np.float64]:
    """The mean of (x - m)(x - m)^T over labelled rows, d×d, where m is the mean of the row's class.

    ``rows`` are N×d, or N×V×d with several views of each image; ``labels`` are N, -1 for unlabelled. With ``by_class``
    every class counts alike, however many images it has.

    >>> rows = np.array([[0.0, 0], [0, 2], [5, 5], [5, 7], [9, 9]])
    >>> within_class_scatter(rows, np.array([0, 0, 1, 1, -1])).tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """
    classes = np.unique(labels[labels >= 0])
    return scatter_of_groups((rows[labels == k] for k in classes), rows.shape[-1], by_class=by_class)


def scatter_of_groups(
    groups: Iterable[NDArray[np.floating]], dim: int, *, by_class: bool = False
) -> NDArray[np.float64]:
    """The same from one group of rows after another (n×d or n×V×d), so that only one has to be in memory."""
    total, weight, energy = np.zeros((dim, dim)), 0.0, 0.0
    for group in groups:
        rows = group.reshape(-1, dim)
        mean, share = rows.mean(axis=0, dtype=np.float64), 1 / len(rows) if by_class else 1.0
        weight += share * len(rows)
        for part in _parts(rows):
            apart = part - mean
            total += share * (apart.T @ apart)
            energy += share * float(np.square(part).sum())
    if np.trace(total) <= ROUNDING * energy:  # copies of one image: what is left is the rounding of their mean
        return np.zeros((dim, dim))
    return total / weight


def _parts(rows: NDArray[np.floating]) -> Iterator[NDArray[np.float64]]:
    return (rows[i : i + ROWS].astype(np.float64) for i in range(0, len(rows), ROWS))


@dataclass(frozen=True)
class Spectrum:
    """A scatter by its eigenvalues, in multiples of their mean, so that it is cheap to shrink in several ways."""

    values: NDArray[np.float64]  # d; empty if there is no scatter at all
    directions: NDArray[np.float64]  # d×d: eigenvectors in columns

    @classmethod
    def of(cls, scatter: NDArray[np.float64]) -> Spectrum:
        mean = float(np.trace(scatter)) / len(scatter)
        if mean <= 0:
            return cls(np.ones(len(scatter)), np.eye(len(scatter)))
        values, directions = np.linalg.eigh(scatter / mean)
        return cls(np.maximum(values, 0.0), directions)  # rounding makes some of those that are 0 negative

    def shrunk(self, shrinkage: float) -> NDArray[np.float64]:
        """The eigenvalues after shrinkage; their mean is 1 as before."""
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage must be between 0 and 1; found {shrinkage}")
        found: NDArray[np.float64] = (1 - shrinkage) * self.values + shrinkage
        if found.min() <= TINY:
            raise ValueError(
                "the scatter has no width in some direction, as with fewer labelled rows than dimensions: "
                "the shrinkage must be above 0"
            )
        return found

    def whitening(self, shrinkage: float) -> NDArray[np.float64]:
        """`whitening_matrix` of the scatter."""
        if shrinkage == NONE:
            return np.eye(len(self.values))
        matrix: NDArray[np.float64] = (self.directions * self.shrunk(shrinkage) ** -0.5) @ self.directions.T
        return (matrix + matrix.T) / 2


def whitening_matrix(scatter: NDArray[np.float64], shrinkage: float) -> NDArray[np.float64]:
    """((1 - shrinkage) S / t + shrinkage I)^(-1/2), symmetric, d×d, where t is the mean of the eigenvalues of S.

    A ``shrinkage`` of 1 gives the identity, and so does any if there is no scatter. It may be 0 only if the scatter has
    full rank; that takes more labelled rows than dimensions.

    >>> np.round(whitening_matrix(np.diag([1.0, 4.0]), 0.0), 3).tolist()
    [[1.581, 0.0], [0.0, 0.791]]
    """
    return Spectrum.of(scatter).whitening(shrinkage)


def length_kept(matrix: NDArray[np.float64], rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """The same matrix times a number, so that ``rows`` (N×d) times it have the mean squared length that they had.

    >>> length_kept(np.diag([1.0, 3.0]), np.array([[2.0, 0], [0, 2]])).round(3).tolist()
    [[0.447, 0.0], [0.0, 1.342]]
    """
    before = after = 0.0
    for part in _parts(rows):
        before += float(np.square(part).sum())
        after += float(np.square(part @ matrix).sum())
    return matrix * (before / after) ** 0.5 if after else matrix
