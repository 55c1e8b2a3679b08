"""Semi-supervised k-means, as GCD (Vaze et al.) groups features: labelled samples never leave their class's cluster.

``features`` is N×d, L2-normalised by the caller if that is wanted; ``labels`` has -1 for unlabelled, and with nothing
labelled this is plain k-means. Every sample goes where the distance in double precision is smallest, a tie to the lower
cluster: single precision and matrix products only sort out which clusters need a closer look. So the answer depends on
the seed, but not on the number of threads or the maker of the matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from newfound.random_streams import SEMI_KMEANS

BLOCK = 2**20  # numbers held at a time: a block of doubles is 8 MB, small enough to stay near the processor
LARGEST = 1e15  # sizes whose squares and their sums are far from the end of single precision


@dataclass(frozen=True)
class SemiKMeans:
    """Clusters 0, 1, ... are the labelled classes in ascending order, then come the new ones."""

    labels: NDArray[np.int64]  # N: clusters
    centres: NDArray[np.float64]  # K×d: means of the clusters
    inertia: float  # sum of squared distances to the centres that ``labels`` were found with, one update before
    iterations: int


def semi_kmeans(
    features: ArrayLike,
    labels: ArrayLike,
    n_clusters: int,
    *,
    seed: int = 0,
    starts: int = 10,
    max_iterations: int = 200,
    tolerance: float = 1e-4,
    initial_centres: ArrayLike | None = None,
    on_start: Callable[[int], None] | None = None,
) -> SemiKMeans:
    """The best of several starts; k-means++ over the unlabelled samples draws the centres that no class gives.

    A start ends when the square of the centres' summed shifts is at most ``tolerance``. ``initial_centres`` (K×d, in
    the order of the clusters) leaves nothing to chance, so there is one start only. ``on_start`` hears how many starts
    are done.

    A new cluster that loses its last sample moves to the unlabelled sample that is farthest from its own centre. It
    stays empty, and where it is, only while every unlabelled sample lies exactly on a centre.

    >>> features = [[0.0], [0.2], [0.1], [5.0], [5.2], [9.0], [9.4]]
    >>> found = semi_kmeans(features, [7, 7, -1, 4, -1, -1, -1], 3)
    >>> found.labels.tolist(), found.centres.round(6).tolist(), round(found.inertia, 6)
    ([1, 1, 1, 0, 0, 2, 2], [[5.1], [0.1], [9.2]], 0.12)
    """
    _check_at_least(1, n_clusters=n_clusters, starts=starts, max_iterations=max_iterations)
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more; found {tolerance}")
    samples = _samples(_checked_features(features), labels, int(n_clusters))
    run = partial(_lloyd, samples, max_iterations=int(max_iterations), tolerance=tolerance)
    if initial_centres is not None:
        return run(_checked_centres(initial_centres, samples))
    if samples.n_known == n_clusters:
        starts = 1  # nothing is drawn
    found = []
    for start in range(int(starts)):
        found.append(run(_first_centres(samples, np.random.default_rng([seed, SEMI_KMEANS, start]).random)))
        if on_start is not None:
            on_start(start + 1)
    return min(found, key=lambda one: one.inertia)


@dataclass(frozen=True)
class _Samples:
    """The features, and what the labels settle once and for all."""

    features: NDArray[Any]  # N×d, single or double precision
    middle: NDArray[Any]  # d, of the same type: distances do not depend on it, their rounding errors do
    cluster: NDArray[np.int64]  # N: the cluster of a labelled sample, -1 for an unlabelled one
    free: NDArray[np.int64]  # the unlabelled samples
    n_known: int  # labelled classes
    sums: NDArray[np.float64]  # K×d, of the labelled samples
    counts: NDArray[np.int64]  # K, of the labelled samples


def _samples(features: NDArray[Any], labels: ArrayLike, n_clusters: int) -> _Samples:
    labels = _checked_labels(labels, len(features))
    free, held = np.flatnonzero(labels == -1), np.flatnonzero(labels >= 0)
    classes, held_clusters = np.unique(labels[held], return_inverse=True)
    _check_clusters(n_clusters, len(classes), features, free)
    cluster = np.full(len(features), -1, dtype=np.int64)
    cluster[held] = held_clusters
    sums = np.zeros((n_clusters, features.shape[1]))
    for rows in _blocks(len(held), features.shape[1]):
        _add_to_clusters(sums, features[held[rows]], cluster[held[rows]])
    counts = np.bincount(cluster[held], minlength=n_clusters)
    middle = features.mean(axis=0, dtype=np.float64).astype(features.dtype)
    return _Samples(features, middle, cluster, free, len(classes), sums, counts)


def _first_centres(samples: _Samples, draw: Callable[[], float]) -> NDArray[np.float64]:
    """Means of the labelled classes, then k-means++: samples drawn by their squared distance to the nearest centre."""
    known = samples.n_known
    centres = samples.sums / np.maximum(samples.counts, 1)[:, None]  # K×d, of which the known ones count
    weights = np.ones(len(samples.free))  # the very first centre may be anywhere
    if known:
        nearest = _nearest(samples, centres[:known]).cluster
        weights = _squared_distances(samples.features, samples.free, centres, nearest)
    for j in range(known, len(centres)):
        point = samples.features[samples.free[_drawn(weights, draw())]]
        centres[j] = point
        weights = _nearer(weights if j else np.inf, samples, point)
    return centres


def _drawn(weights: NDArray[np.float64], draw: float) -> int:
    """The sample at a number in [0, 1): never one without weight, unless none has any."""
    if not weights.any():
        weights = np.ones_like(weights)
    cumulative = np.cumsum(weights)
    found = np.searchsorted(cumulative, draw * cumulative[-1], side="right")
    return int(min(found, np.flatnonzero(weights)[-1]))  # rounding may lead past the end


def _nearer(distances: NDArray[np.float64] | float, samples: _Samples, point: NDArray[Any]) -> NDArray[np.float64]:
    """Squared distances of the unlabelled samples, now that there is one more point to be near to.

    From differences, not products: a duplicate is exactly 0 away.
    """
    squared = np.empty(len(samples.free))
    for rows in _blocks(len(squared), len(point)):
        difference = samples.features[samples.free[rows]]
        difference -= point
        squared[rows] = np.einsum("nd,nd->n", difference, difference)
    return np.minimum(squared, distances, out=squared)


def _lloyd(samples: _Samples, centres: NDArray[np.float64], *, max_iterations: int, tolerance: float) -> SemiKMeans:
    """Assign, move, repeat. No step raises the inertia, so the last iteration is the best one."""
    iterations = 0
    while True:
        iterations += 1
        before, found = _without_empty_clusters(samples, centres)
        counts = (samples.counts + found.counts)[:, None]  # K×1
        centres = np.where(counts > 0, (samples.sums + found.sums) / np.maximum(counts, 1), before)
        shift = float(np.linalg.norm(centres - before, axis=1).sum())
        if shift**2 <= tolerance or iterations == max_iterations:
            break
    labels = samples.cluster.copy()
    labels[samples.free] = found.cluster
    inertia = float(_squared_distances(samples.features, np.arange(len(labels)), before, labels).sum())
    return SemiKMeans(labels, centres, inertia, iterations)


@dataclass(frozen=True)
class _Found:
    """Where the unlabelled samples went."""

    cluster: NDArray[np.int64]  # one for each of them
    sums: NDArray[np.float64]  # K×d
    counts: NDArray[np.int64]  # K


def _without_empty_clusters(samples: _Samples, centres: NDArray[np.float64]) -> tuple[NDArray[np.float64], _Found]:
    """The nearest clusters, and the centres they were found with: empty ones are moved first.

    A moved centre keeps at least the sample it was moved to, so this comes to an end.
    """
    found = _nearest(samples, centres)
    while len(empty := np.flatnonzero(samples.counts + found.counts == 0)):
        distances = _squared_distances(samples.features, samples.free, centres, found.cluster)
        if not distances.any():
            break
        centres = _moved_to_farthest(samples, centres, empty, distances)
        found = _nearest(samples, centres)
    return centres, found


def _moved_to_farthest(
    samples: _Samples, centres: NDArray[np.float64], which: NDArray[np.int64], distances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Each of some centres at the unlabelled sample that is then farthest from all, as long as there is a distance."""
    centres = centres.copy()
    for j in which:
        if distances.any():
            point = samples.features[samples.free[distances.argmax()]]
            centres[j] = point
            distances = _nearer(distances, samples, point)
    return centres


def _nearest(samples: _Samples, centres: NDArray[np.float64]) -> _Found:
    """The nearest centre of every unlabelled sample, and the sums that the next centres are made of."""
    clusters, width = centres.shape
    cluster = np.empty(len(samples.free), dtype=np.int64)
    sums = np.zeros_like(centres)
    screen = _Screen(samples.middle, centres)
    for rows in _blocks(len(cluster), max(width, clusters)):
        block = samples.features[samples.free[rows]]  # block×d
        cluster[rows] = screen.nearest(block)
        _add_to_clusters(sums, block, cluster[rows])
    return _Found(cluster, sums, np.bincount(cluster, minlength=clusters))


class _Screen:
    """Finds nearest centres by a quick product where that is beyond doubt, by exact distances elsewhere.

    With a and b for a sample and a centre relative to the middle, the score |b|² − 2ab ranks centres like the squared
    distance. Rounding changes it by less than (d + 8)·ε·(|a|² + |b|²) / 2: the usual bounds for a dot product, for the
    roundings of a and b and for the sum. Four times that also covers the rounding of exact distances and of comparing.
    """

    def __init__(self, middle: NDArray[Any], centres: NDArray[np.float64]) -> None:
        relative, limits = centres - middle, np.finfo(middle.dtype)
        self._centres, self._middle = centres, middle
        self._twice = (2 * relative).astype(middle.dtype).T  # d×K
        self._squares = np.einsum("kd,kd->k", relative, relative).astype(middle.dtype)  # K
        self._relative_error = middle.dtype.type(2 * (len(middle) + 8) * limits.eps)
        self._least_error = middle.dtype.type(len(middle) * limits.tiny)  # of products too small to be represented

    def nearest(self, block: NDArray[Any]) -> NDArray[np.int64]:
        """The first of the nearest centres of each row."""
        relative = block - self._middle  # block×d
        scores = self._squares - relative @ self._twice  # block×K
        best: NDArray[np.int64] = scores.argmin(axis=1)
        own = 2 * np.einsum("nd,nd->n", relative, relative) + self._squares[best]
        highest = scores[np.arange(len(block)), best] + (self._relative_error * own + self._least_error)
        scores -= self._relative_error * self._squares
        possible = scores <= highest[:, None]  # block×K
        unclear = np.flatnonzero(np.count_nonzero(possible, axis=1) > 1)
        best[unclear] = self._exactly_nearest(block[unclear], possible[unclear])
        return best

    def _exactly_nearest(self, rows: NDArray[Any], possible: NDArray[np.bool_]) -> NDArray[np.int64]:
        distances = np.full(possible.shape, np.inf)
        row, cluster = np.nonzero(possible)
        for pairs in _blocks(len(row), rows.shape[1]):
            squared = _squared_rows(rows[row[pairs]], self._centres[cluster[pairs]])
            distances[row[pairs], cluster[pairs]] = squared
        nearest: NDArray[np.int64] = distances.argmin(axis=1)
        return nearest


def _squared_distances(
    features: NDArray[Any], index: NDArray[np.int64], centres: NDArray[np.float64], cluster: NDArray[np.int64]
) -> NDArray[np.float64]:
    """From each of some samples to the centre of its cluster."""
    squared = np.empty(len(index))
    for rows in _blocks(len(index), centres.shape[1]):
        squared[rows] = _squared_rows(features[index[rows]], centres[cluster[rows]])
    return squared


def _squared_rows(rows: NDArray[Any], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances row by row, from differences in double precision: ties where the true values tie."""
    difference = rows - points
    squared: NDArray[np.float64] = np.square(difference, out=difference).sum(axis=1)
    return squared


def _add_to_clusters(sums: NDArray[np.float64], rows: NDArray[Any], cluster: NDArray[np.int64]) -> None:
    """As ``np.add.at``, many times faster: a sparse product, in doubles and in the order of the rows."""
    ones, starts = np.ones(len(rows)), np.arange(len(rows) + 1)
    sums += csr_array((ones, cluster, starts), shape=(len(rows), len(sums))).T @ rows.astype(np.float64)


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """So many rows at a time that a block of that width stays within ``BLOCK`` numbers."""
    step = max(1, BLOCK // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _checked_features(features: ArrayLike) -> NDArray[Any]:
    rows = np.asarray(features)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"features must be a table of samples by numbers; found shape {rows.shape}")
    single = rows.dtype in (np.float16, np.float32)
    rows = np.ascontiguousarray(rows, dtype=np.float32 if single else np.float64)
    for block in _blocks(*rows.shape):
        fits = (np.abs(rows[block]) <= LARGEST).all(axis=1)  # false for NaN, too
        if not fits.all():
            row = block.start + int(fits.argmin())
            raise ValueError(f"features must be finite and at most {LARGEST:g} in size; row {row} is not")
    return rows


def _checked_labels(labels: ArrayLike, samples: int) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != (samples,):
        raise ValueError(f"labels must be one number for each of {samples} samples; found shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers, -1 for unlabelled; found type {array.dtype}")
    if array.min() < -1:
        raise ValueError(f"labels must be classes from 0 on, or -1 for unlabelled; found {array.min()}")
    return array.astype(np.int64)


def _check_clusters(n_clusters: int, n_known: int, features: NDArray[Any], free: NDArray[np.int64]) -> None:
    if n_clusters < n_known:
        raise ValueError(f"n_clusters must be at least the {n_known} labelled classes; found {n_clusters}")
    wanted, different = n_clusters - n_known, set[bytes]()
    for i in free:
        if len(different) == wanted:
            break
        different.add((features[i] + 0.0).tobytes())  # -0.0 is 0.0
    if len(different) < wanted:
        raise ValueError(
            f"{n_clusters} clusters with {n_known} labelled classes need {wanted} different unlabelled samples; "
            f"found {len(different)}"
        )


def _checked_centres(centres: ArrayLike, samples: _Samples) -> NDArray[np.float64]:
    array = np.array(centres, dtype=np.float64)
    if array.shape != samples.sums.shape:
        raise ValueError(f"initial_centres must have shape {samples.sums.shape}; found {array.shape}")
    if not (np.abs(array) <= LARGEST).all():
        raise ValueError(f"initial_centres must be finite and at most {LARGEST:g} in size; found others")
    return array


def _check_at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if not (number >= least and number == int(number)):
            raise ValueError(f"{name} must be a whole number, {least} or more; found {number}")
