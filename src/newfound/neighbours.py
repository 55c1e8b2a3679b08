"""Nearest neighbours, in blocks: exact, and memory stays the same however many rows there are.

`nearest_neighbours` goes by dot product. Rows of length 1 are assumed: then the largest dot product is the largest
cosine and the smallest distance, but for rounding. Rows of other lengths are not refused, but a long one then counts as
nearer than a short one. `nearest_by_distance` goes by distance, also where copies and near copies leave a dot product
no digit to tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 2**23  # similarities held at a time: 32 MB in single precision
PAIRS = 2**18  # numbers of differences held at a time: what a cache holds, which is three times as quick


@torch.no_grad()
def nearest_neighbours(
    rows: Tensor, queries: Tensor, k: int, *, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The ``k`` rows with the largest dot products: these products, largest first, and the rows' indices; both Q×k.

    ``rows`` is N×d, ``queries`` Q×d, of one type and device. Among equal products the lower index comes first. Where
    there are fewer than ``k`` rows, the answer is as wide as there are rows. ``exclude`` (Q) names for each query one
    row that does not count: itself, where the queries are among the rows. No gradient flows.

    >>> rows = torch.eye(3)
    >>> similarity, index = nearest_neighbours(rows, torch.tensor([[0.0, 0.6, 0.8], [1.0, 0.0, 0.0]]), 2)
    >>> index.tolist(), similarity[1].tolist()
    ([[2, 1], [0, 1]], [1.0, 0.0])
    >>> nearest_neighbours(rows, rows, 1, exclude=torch.arange(3))[1].tolist()
    [[1], [0], [0]]
    """
    if k < 1:
        raise ValueError(f"k must be 1 or more; found {k}")
    k = min(k, len(rows) - (exclude is not None))
    similarity = queries.new_empty(len(queries), max(k, 0))
    index = torch.empty(similarity.shape, dtype=torch.int64, device=queries.device)
    for block in _blocks(len(queries) if k > 0 else 0, len(rows)):
        products = queries[block] @ rows.T  # block×N
        if exclude is not None:
            products.scatter_(1, exclude[block, None], -math.inf)
        similarity[block], index[block] = _largest(products, k)
    return similarity, index


@torch.no_grad()
def nearest_by_distance(
    rows: Tensor, queries: Tensor, k: int, *, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The ``k`` rows at the smallest Euclidean distances: these, smallest first, and the rows' indices; both Q×k.

    As ``nearest_neighbours``, for rows of any length. Dot products only say which rows may be among the nearest, with
    what they may be off; the distances of those come from differences, in double precision: copies are exactly 0 apart,
    and equal distances are ties, of which the lower index comes first.

    >>> rows = torch.tensor([[0.0, 3.0], [0.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
    >>> distance, index = nearest_by_distance(rows, rows[1:2], 3, exclude=torch.tensor([1]))
    >>> distance.tolist(), index.tolist()
    ([[0.0, 3.0, 4.0]], [[3, 0, 2]])
    """
    if k < 1:
        raise ValueError(f"k must be 1 or more; found {k}")
    k = min(k, len(rows) - (exclude is not None))
    distance = torch.empty(len(queries), max(k, 0), dtype=torch.float64, device=queries.device)
    index = torch.empty(distance.shape, dtype=torch.int64, device=queries.device)
    squares = rows.square().sum(dim=1)  # N
    largest = float(torch.cat([squares, queries.square().sum(dim=1)]).max()) if k > 0 and len(queries) else 0.0
    error = 2 * (rows.shape[1] + 8) * torch.finfo(rows.dtype).eps * largest  # of a nearness: a sum's rounding, twice
    for block in _blocks(len(queries) if k > 0 else 0, len(rows)):
        nearness = torch.addmm(squares, queries[block], rows.T, beta=-0.5)  # block×N; |a - b|² = |a|² - 2 · nearness
        if exclude is not None:
            nearness.scatter_(1, exclude[block, None], -math.inf)
        last = nearness.topk(k, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
        asking, asked = (nearness >= last - 2 * error).nonzero().unbind(dim=1)  # at least k pairs for each query
        found = _distances(queries[block], rows, asking, asked)
        distance[block], index[block] = _first_of_each(asking, found, asked, k)
    return distance, index


def _distances(queries: Tensor, rows: Tensor, asking: Tensor, asked: Tensor) -> Tensor:
    """Of pairs of a query and a row, given by their numbers."""
    parts = [
        row_lengths(queries[asking[block]].double() - rows[asked[block]].double())
        for block in _blocks(len(asking), rows.shape[1], PAIRS)
    ]
    return torch.cat(parts)


def _first_of_each(group: Tensor, value: Tensor, number: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` smallest values of each group and their numbers; groups and, within them, numbers are ascending."""
    by_value = value.sort(stable=True).indices
    order = by_value[group[by_value].sort(stable=True).indices]
    sizes = torch.bincount(group)
    place = order[(sizes.cumsum(0) - sizes)[:, None] + torch.arange(k, device=group.device)]  # groups×k
    return value[place], number[place]


def row_lengths(vectors: Tensor) -> Tensor:
    """n×d to n. Squares are summed by folding halves onto each other: a library's sum may depend on the device and on
    the shape of the block, and then equal rows would not be of equal length.

    >>> row_lengths(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])).tolist()
    [5.0, 0.0]
    """
    squares = vectors.square()  # n×d
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        odd_one_out = squares[:, 2 * half :]
        squares = torch.cat([squares[:, :half] + squares[:, half : 2 * half], odd_one_out], dim=1)
    return squares[:, 0].sqrt()


def _blocks(rows: int, width: int, most: int | None = None) -> Iterator[slice]:
    """So many rows at a time that a block of that width stays within ``most`` numbers, by default ``BLOCK``."""
    step = max(1, (most or BLOCK) // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _largest(table: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest numbers of each row and their columns, of equal numbers the first ones first.

    ``topk`` leaves to chance which of several equal numbers it takes, and in what order. The order is put right here;
    only a row whose next number equals the last one taken is sorted as a whole.
    """
    top = table.topk(min(k + 1, table.shape[1]), dim=1)
    column = top.indices[:, :k].sort(dim=1).values
    values, order = table.gather(1, column).sort(dim=1, descending=True, stable=True)
    column = column.gather(1, order)
    tied = (top.values[:, k:] == values[:, -1:]).any(dim=1)
    if bool(tied.any()):
        everything = table[tied].sort(dim=1, descending=True, stable=True)
        values[tied], column[tied] = everything.values[:, :k], everything.indices[:, :k]
    return values, column
