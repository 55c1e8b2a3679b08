"""Nearest neighbours by dot product, in blocks: exact, and memory stays the same however many rows there are.

Rows of length 1 are assumed: then the largest dot product is the largest cosine and the smallest distance. Rows of
other lengths are not refused, but a long one then counts as nearer than a short one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 2**23  # similarities held at a time: 32 MB in single precision


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
    step = max(1, BLOCK // max(1, len(rows)))
    for start in range(0, len(queries) if k > 0 else 0, step):
        block = slice(start, start + step)
        products = queries[block] @ rows.T  # block×N
        if exclude is not None:
            products.scatter_(1, exclude[block, None], -math.inf)
        similarity[block], index[block] = _largest(products, k)
    return similarity, index


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
