"""Which unlabelled images may stand for a new class during training (DAS, dynamic anchor selection).

``probabilities`` is N×K, one row per image; the classes from ``n_known`` on are the new ones. ``features`` is N×d,
L2-normalised by the caller. Both may be NumPy arrays or tensors of any floating type on any device. An image belongs
to the cluster of its most probable class. Every tie goes to the lower index: the same output always gives the same
anchors, on every machine. A cluster of fewer than two images gives no anchors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from newfound.cluster_density import as_intended, blocks, dense_core, densest_rows
from newfound.threads import single_threaded_pool

HALVINGS = 40  # finer than single-precision confidences differ, coarse enough to keep clear of a double's last bits


@dataclass(frozen=True)
class Anchors:
    """The images that act as labelled ones of a new class."""

    index: NDArray[np.int64]  # samples, cluster by cluster, most confident first
    label: NDArray[np.int64]  # the new class each stands for (n_known + j)
    eta: int  # most anchors a class may have (0: none)
    threshold: float  # T, the confidence that counts as high; NaN where nothing is predicted new


def select_anchors(
    probabilities: ArrayLike | Tensor,
    features: ArrayLike | Tensor,
    n_known: int,
    *,
    omega: float,
    gamma: float,
    beta: float,
    k: float,
) -> Anchors:
    """The most confident images around the densest point of each new cluster.

    ``omega`` sets the threshold T between the mean (0) and the highest (1) confidence of what is predicted new;
    ``gamma`` the quantile of the clusters' counts above T that becomes ``eta``; ``beta`` the share of a cluster, from
    its densest point outwards, that anchors may come from; ``k`` the share of a cluster that counts as a
    neighbourhood when density is measured.

    >>> probabilities = [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.9, 0.1]]
    >>> features = [[0.0], [0.3], [0.4], [0.5], [0.0]]
    >>> chosen = select_anchors(probabilities, features, n_known=1, omega=0.0, gamma=0.5, beta=0.8, k=0.5)
    >>> chosen.index.tolist(), chosen.label.tolist(), chosen.eta, round(chosen.threshold, 6)
    ([1, 2], [1, 1], 2, 0.75)
    """
    _check_shares(omega=omega, gamma=gamma, beta=beta, k=k)
    new = _predicted_new(probabilities, n_known)
    rows = _checked_features(features, len(new.cluster))
    threshold = new.threshold(omega)
    eta = _floored_quantile(new.counts_above(threshold), gamma)

    def core(members: NDArray[np.int64]) -> NDArray[np.int64]:
        return members[dense_core(_rows(rows, members), beta, k)]

    return _most_confident_of(core, new, eta, threshold)


def most_confident(probabilities: ArrayLike | Tensor, n_known: int, *, count: int) -> Anchors:
    """The paper's "Max Prob.": the ``count`` most confident images of each new cluster, wherever they lie.

    >>> most_confident([[0.1, 0.9], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]], n_known=1, count=2).index.tolist()
    [0, 2]
    """
    _check_count(count)
    return _most_confident_of(lambda members: members, _predicted_new(probabilities, n_known), count, math.nan)


def densest(
    probabilities: ArrayLike | Tensor, features: ArrayLike | Tensor, n_known: int, *, count: int, k: float
) -> Anchors:
    """The paper's "Max Density": the ``count`` images of each new cluster with the closest neighbours.

    >>> probabilities, features = [[0.1, 0.9]] * 4, [[0.0], [0.3], [0.4], [0.6]]
    >>> densest(probabilities, features, n_known=1, count=2, k=0.5).index.tolist()
    [1, 2]
    """
    _check_count(count)
    _check_shares(k=k)
    new = _predicted_new(probabilities, n_known)
    rows = _checked_features(features, len(new.cluster))

    def top(members: NDArray[np.int64]) -> NDArray[np.int64]:
        return members[densest_rows(_rows(rows, members), k, count)]

    return _most_confident_of(top, new, count, math.nan)


def calibrate(probabilities: ArrayLike | Tensor, n_known: int, target: float) -> tuple[float, float]:
    """``(omega, gamma)`` for which ``eta`` is the smallest value that is not below ``target``.

    ``gamma`` stays at one half as long as some ``omega`` is enough. Where even ``omega`` = 0 is not, ``gamma`` is
    raised as little as possible; where that does not help either, the answer is (0, 1).

    >>> probabilities = [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> omega, gamma = calibrate(probabilities, n_known=1, target=1)
    >>> select_anchors(probabilities, [[0.0]] * 4, 1, omega=omega, gamma=gamma, beta=1, k=1).eta
    1
    >>> calibrate(probabilities, n_known=1, target=3)
    (0.0, 1.0)
    """
    if not 0 < target < math.inf:
        raise ValueError(f"target must be a positive number of anchors per class; found {target}")
    new = _predicted_new(probabilities, n_known)
    counts = new.counts_above(new.threshold(0.0))
    if _floored_quantile(counts, 0.5) < target:
        return 0.0, _smallest_gamma(counts, target)
    return _largest_omega(new, target), 0.5


@dataclass(frozen=True)
class _New:
    """Who is predicted to be new, and how firmly."""

    cluster: NDArray[np.int64]  # N: j for the new class n_known + j, negative for a known class
    confidence: NDArray[np.float64]  # N
    n_known: int
    n_new: int

    def threshold(self, omega: float) -> float:
        """T. Kept between the mean and the highest confidence, which rounding may leave by a hair."""
        confidence = self.confidence[self.cluster >= 0]
        if not len(confidence):
            return math.nan
        low, high = float(confidence.min()), float(confidence.max())
        mean = min(max(math.fsum(confidence.tolist()) / len(confidence), low), high)
        return high if omega == 1 else min(mean + omega * (high - mean), high)

    def counts_above(self, threshold: float) -> NDArray[np.int64]:
        """How many confidences exceed the threshold in each new class, the empty ones included; sorted."""
        above = (self.cluster >= 0) & (self.confidence > threshold)
        return np.sort(np.bincount(self.cluster[above], minlength=self.n_new))


def _most_confident_of(
    candidates: Callable[[NDArray[np.int64]], NDArray[np.int64]], new: _New, eta: int, threshold: float
) -> Anchors:
    """At most ``eta`` of each cluster's candidates; a short list is not filled up."""

    def of_cluster(j: int) -> NDArray[np.int64]:
        members = np.flatnonzero(new.cluster == j)
        if len(members) < 2:
            return members[:0]
        ordered = np.sort(candidates(members))
        return ordered[np.argsort(-new.confidence[ordered], kind="stable")][:eta]

    with single_threaded_pool() as pool:
        chosen = list(pool.map(of_cluster, range(new.n_new if eta else 0)))
    index, label = [np.empty(0, np.int64), *chosen], np.repeat(np.arange(len(chosen)), [len(c) for c in chosen])
    return Anchors(np.concatenate(index), new.n_known + label, eta, threshold)


def _floored_quantile(counts: NDArray[np.int64], gamma: float) -> int:
    """The linear quantile of sorted counts, rounded down; 0 of nothing."""
    if not len(counts):
        return 0
    position = gamma * (len(counts) - 1)
    below = math.floor(position)
    step = int(counts[min(below + 1, len(counts) - 1)] - counts[below])
    return math.floor(as_intended(int(counts[below]) + (position - below) * step))


def _smallest_gamma(counts: NDArray[np.int64], target: float) -> float:
    """Where the quantile of sorted counts, too small at one half, first reaches the target; 1 if nowhere."""
    if not (counts >= target).any():
        return 1.0
    above = int(np.argmax(counts >= target))  # never 0, since the smallest count is too small
    low, high = int(counts[above - 1]), int(counts[above])
    return (above - 1 + (math.ceil(target) - low) / (high - low)) / (len(counts) - 1)


def _largest_omega(new: _New, target: float) -> float:
    """By bisection: 0 is known to reach the target, 1 never does since no confidence exceeds the highest."""
    enough, too_much = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (enough + too_much) / 2
        if _floored_quantile(new.counts_above(new.threshold(middle)), 0.5) >= target:
            enough = middle
        else:
            too_much = middle
    return enough


def _rows(features: NDArray[Any] | Tensor, members: NDArray[np.int64]) -> Tensor:
    """One cluster's features, in a precision that holds them, on their own device where that can hold doubles."""
    if isinstance(features, Tensor):
        rows = features.detach()[torch.from_numpy(members).to(features.device)]
        rows = rows.cpu() if rows.device.type == "mps" else rows
    else:
        chosen = features[members]
        rows = torch.from_numpy(chosen if chosen.dtype in (np.float16, np.float32) else chosen.astype(np.float64))
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16, torch.float32) else rows.double()


def _predicted_new(probabilities: ArrayLike | Tensor, n_known: int) -> _New:
    table = _array(probabilities)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"probabilities must be a table of samples by classes; found shape {table.shape}")
    classes = table.shape[1]
    if not 0 <= n_known <= classes:
        raise ValueError(f"n_known must lie between 0 and the {classes} classes of probabilities; found {n_known}")
    _check_finite("probabilities", table)
    predicted = table.argmax(axis=1).astype(np.int64)  # NumPy promises the first of several maxima, torch does not
    return _New(predicted - n_known, table.max(axis=1).astype(np.float64), n_known, classes - n_known)


def _array(probabilities: ArrayLike | Tensor) -> NDArray[Any]:
    if not isinstance(probabilities, Tensor):
        return np.asarray(probabilities)
    table = probabilities.detach().cpu()
    array: NDArray[Any] = (table.float() if table.dtype == torch.bfloat16 else table).numpy()  # NumPy has no bfloat16
    return array


def _checked_features(features: ArrayLike | Tensor, samples: int) -> NDArray[Any] | Tensor:
    rows = features if isinstance(features, Tensor) else np.asarray(features)
    if rows.ndim != 2 or len(rows) != samples or not rows.shape[1]:
        raise ValueError(f"features must be one row for each of {samples} samples; found shape {tuple(rows.shape)}")
    _check_finite("features", rows)
    return rows


def _check_finite(name: str, table: NDArray[Any] | Tensor) -> None:
    for block in blocks(len(table), table.shape[1]):
        rows = table[block]
        finite = (rows.isfinite().cpu().numpy() if isinstance(rows, Tensor) else np.isfinite(rows)).all(axis=1)
        if not finite.all():
            row = block.start + int(finite.argmin())
            raise ValueError(f"{name} must be finite; found NaN or infinity in row {row}")


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must lie between 0 and 1; found {share}")


def _check_count(count: int) -> None:
    if count < 0 or count != int(count):
        raise ValueError(f"count must be a whole number of anchors per class, 0 or more; found {count}")
