"""Where a cluster is dense: its densest rows, and the rows nearest to them, exactly, ties included.

``members`` are the rows of one cluster, n×d, at least two of them, on any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.neighbours import row_lengths

BLOCK = 2**23  # numbers held at a time while distances are computed: 64 MB of doubles


def dense_core(members: Tensor, beta: float, k: float) -> NDArray[np.int64]:
    """Rows of one cluster: its densest point, then those nearest to it, a share ``beta`` of the cluster in all."""
    peak = int(densest_rows(members, k, 1)[0])
    return _nearest_to(members, peak, max(1, round(as_intended(beta * len(members)))))


def _nearest_to(members: Tensor, row: int, count: int) -> NDArray[np.int64]:
    """The ``count`` rows nearest to one, in no special order. It is the first of its duplicates, so among them.

    Plain sums are good to a few roundings per dimension: only rows they cannot tell from the last one are done exactly.
    """
    here = members[row].double()
    quick = (
        torch.cat([torch.linalg.vector_norm(members[block] - here, dim=1) for block in blocks(*members.shape)])
        .cpu()
        .numpy()
    )
    last = np.partition(quick, count - 1)[count - 1]
    error = 2 * (members.shape[1] + 8) * np.finfo(np.float64).eps * last
    unclear = np.flatnonzero(np.abs(quick - last) <= 2 * error)
    sure = np.flatnonzero(quick < last - 2 * error)
    exact = _distances_from(members, row, unclear)
    return np.concatenate([sure, unclear[np.argsort(exact, kind="stable")][: count - len(sure)]])


def densest_rows(members: Tensor, k: float, count: int) -> NDArray[np.int64]:
    """The ``count`` rows of one cluster with the smallest mean distance to their neighbours, in no special order.

    Quick distances are good to their ``error`` only and would break ties at random. So they settle what they can: first
    in single precision, what is left in double, and what even that cannot tell apart by exact distances.
    """
    size = len(members)
    neighbours = min(max(math.floor(as_intended(k * size)), 1), size - 1)
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
    """Single precision may be less than that on a GPU, where the user has allowed it to multiply faster."""
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
    for block in blocks(len(rows), len(members)):
        some = torch.from_numpy(rows[block]).to(members.device)
        asking = centred if len(some) == len(centred) else centred[some]
        squared = torch.addmm(squares, asking, centred.T, alpha=-2)  # block×n, but for the row's own square
        squared[torch.arange(len(some), device=some.device), some] = math.inf  # nobody is their own neighbour
        distances = _smallest(squared, neighbours).add_(squares[some, None]).clamp_(min=0).sqrt_()
        mean[block] = distances.mean(dim=1).double()
        nearest = distances.amin(dim=1).double().clamp_(min=math.sqrt(error) or 1.0)
        off[block] = 2 * error / nearest + neighbours * eps * mean[block]
    known = (mean + off).isfinite()  # numbers near the largest of their type may overflow: these stay open
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
    parts = [row_lengths(there[block].double() - here) for block in blocks(len(there), members.shape[1])]
    distances: NDArray[np.float64] = torch.cat(parts).cpu().numpy()
    return distances


def blocks(rows: int, width: int) -> Iterator[slice]:
    """So many rows at a time that a block of that width stays within ``BLOCK`` numbers."""
    step = max(1, BLOCK // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def as_intended(number: float) -> float:
    """0.29 · 100 is 29, not the 28.999999999999996 of binary fractions, which would round down to 28."""
    return round(number, 7)
