"""Which unlabelled images may stand for a new class during training (DAS, dynamic anchor selection).

``probabilities`` is N×K, one row per image; the classes from ``n_known`` on are the new ones. ``features`` is N×d,
L2-normalised by the caller. Both may be NumPy arrays or tensors of any floating type on any device. An image belongs
to the cluster of its most probable class. Every tie goes to the lower index: the same output always gives the same
anchors, on every machine. A cluster of fewer than two images gives no anchors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from newfound.neighbours import row_lengths
from newfound.threads import single_threaded_pool

BLOCK = 2**23  # numbers held at a time while distances are computed: 64 MB of doubles
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
        return members[_core(_rows(rows, members), beta, k)]

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
        return members[_densest(_rows(rows, members), k, count)]

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
    return math.floor(_intended(int(counts[below]) + (position - below) * step))


def _intended(number: float) -> float:
    """0.29 · 100 is 29, not the 28.999999999999996 of binary fractions, which would round down to 28."""
    return round(number, 7)


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


def _core(members: Tensor, beta: float, k: float) -> NDArray[np.int64]:
    """Rows of one cluster: its densest point, then those nearest to it, a share ``beta`` of the cluster in all."""
    peak = int(_densest(members, k, 1)[0])
    return _nearest_to(members, peak, max(1, round(_intended(beta * len(members)))))


def _nearest_to(members: Tensor, row: int, count: int) -> NDArray[np.int64]:
    """The ``count`` rows nearest to one, in no special order. It is the first of its duplicates, so among them.

    Plain sums are good to a few roundings per dimension: only rows they cannot tell from the last one are done exactly.
    """
    blocks = _blocks(len(members), members.shape[1])
    here = members[row].double()
    quick = torch.cat([torch.linalg.vector_norm(members[block] - here, dim=1) for block in blocks]).cpu().numpy()
    last = np.partition(quick, count - 1)[count - 1]
    error = 2 * (members.shape[1] + 8) * np.finfo(np.float64).eps * last
    unclear = np.flatnonzero(np.abs(quick - last) <= 2 * error)
    sure = np.flatnonzero(quick < last - 2 * error)
    exact = _distances_from(members, row, unclear)
    return np.concatenate([sure, unclear[np.argsort(exact, kind="stable")][: count - len(sure)]])


def _densest(members: Tensor, k: float, count: int) -> NDArray[np.int64]:
    """The ``count`` rows of one cluster with the smallest mean distance to their neighbours, in no special order.

    Quick distances are good to their ``error`` only and would break ties at random. So they settle what they can: first
    in single precision, what is left in double, and what even that cannot tell apart by exact distances.
    """
    size = len(members)
    neighbours = min(max(math.floor(_intended(k * size)), 1), size - 1)
    chosen, rows, count = [np.empty(0, np.int64)], np.arange(size), min(count, size)
    for precision in _precisions(members.device):
        mean, error = _quick_mean_distances(members, rows, neighbours, precision)
        low, high = mean - error, mean + error
        perhaps_before = np.searchsorted(np.sort(low), high, side="right") - 1  # others that may come first
        in_for_sure = perhaps_before < count
        possible = low <= np.partition(high, count - 1)[count - 1]
        chosen.append(rows[in_for_sure])
        rows, count = rows[possible & ~in_for_sure], count - int(in_for_sure.sum())
        if not count:
            return np.concatenate(chosen)
    exact = _exact_mean_distances(members, rows, neighbours)
    return np.concatenate([*chosen, rows[np.argsort(exact, kind="stable")][:count]])


def _precisions(device: torch.device) -> tuple[torch.dtype, ...]:
    """Single precision is only what it says where nobody has allowed the GPU to multiply in less."""
    exact = device.type == "cpu" or torch.get_float32_matmul_precision() == "highest"
    return (torch.float32, torch.float64) if exact else (torch.float64,)


def _quick_mean_distances(
    members: Tensor, rows: NDArray[np.int64], neighbours: int, precision: torch.dtype
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean distance of these rows to their nearest others by matrix multiplication, and how far off it may be.

    |a|² + |b|² − 2ab has a rounding error of up to about e = 2(d + 8)·ε·r², where r is the largest norm; the root turns
    it into e over the distance found, and never more than √e. Centring leaves distances alone and makes r the cluster's
    own radius; scaling by a power of two makes that about 1, so that no square is too large or too small. Twice that is
    given, which leaves room for the rounding of the centred rows and the root; and what a sum of so many numbers may be
    off, in whatever order.
    """
    wide = members if members.dtype == torch.float64 or precision == torch.float32 else members.double()
    centred = wide - wide.mean(dim=0)  # n×d
    exponent = math.frexp(float(centred.abs().max()))[1]
    half = -exponent // 2  # twice half, as 2^-exponent itself may be too large for a number
    centred = centred.mul_(2.0**half).mul_(2.0 ** (-exponent - half)).to(precision)
    squares, eps = centred.square().sum(dim=1), torch.finfo(precision).eps  # n
    error = 2 * (members.shape[1] + 8) * eps * float(squares.max())
    mean, off = torch.empty(2, len(rows), dtype=torch.float64, device=members.device)
    for block in _blocks(len(rows), len(members)):
        some = torch.from_numpy(rows[block]).to(members.device)
        asking = centred if len(some) == len(centred) else centred[some]
        squared = torch.addmm(squares, asking, centred.T, alpha=-2)  # block×n, but for the row's own square
        squared[torch.arange(len(some), device=some.device), some] = math.inf  # nobody is their own neighbour
        distances = _smallest(squared, neighbours).add_(squares[some, None]).clamp_(min=0).sqrt_()
        mean[block] = distances.mean(dim=1).double()
        nearest = distances.amin(dim=1).double().clamp_(min=math.sqrt(error) or 1.0)
        off[block] = 2 * error / nearest + neighbours * eps * mean[block]
    known = (mean + off).isfinite()  # numbers near the largest of their type may overflow: nothing is said of them
    mean, off = mean.where(known, 0.0), off.where(known, math.inf)
    return np.ldexp(mean.cpu().numpy(), exponent), np.ldexp(off.cpu().numpy(), exponent)


def _smallest(table: Tensor, count: int) -> Tensor:
    """The smallest numbers of each row, in no special order; the table is reordered."""
    if table.device.type != "cpu":
        return table.topk(count, dim=1, largest=False, sorted=False).values
    table.numpy().partition(count - 1, axis=1)  # several times quicker than topk
    return table[:, :count]


def _exact_mean_distances(members: Tensor, rows: NDArray[np.int64], neighbours: int) -> NDArray[np.float64]:
    """The same one row at a time, with ties where the true values tie."""
    mean = np.full(len(members), math.nan)
    for row in rows:
        if math.isnan(mean[row]):
            distances = _distances_from(members, int(row))
            nearest = np.partition(np.delete(distances, row), neighbours - 1)[:neighbours]
            mean[distances == 0] = math.fsum(nearest.tolist()) / neighbours  # duplicates share it: no need to repeat
    return mean[rows]


def _distances_from(members: Tensor, row: int, others: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """From one row to others, or to all, from differences: from a to b is exactly from b to a, and duplicates are
    exactly 0 apart."""
    there = members if others is None else members[torch.from_numpy(others).to(members.device)]
    here = members[row].double()
    parts = [row_lengths(there[block].double() - here) for block in _blocks(len(there), members.shape[1])]
    distances: NDArray[np.float64] = torch.cat(parts).cpu().numpy()
    return distances


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """So many rows at a time that a block of that width stays within ``BLOCK`` numbers."""
    step = max(1, BLOCK // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


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
    for block in _blocks(len(table), table.shape[1]):
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
