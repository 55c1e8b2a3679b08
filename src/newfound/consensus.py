"""The consensus of several answers about the same images: the class that most of them give, image by image.

Known classes mean the same in every answer; new ones are numbered as it happens, and there may be more of them in one
answer than in another. So they are matched first, one to one: such that as many pairs of answers as possible agree on
as many images as possible. A class that shares no image with those of the other answers stays a class of its own. Then
the probabilities are averaged, and new classes that no image is left in are dropped.

Nothing depends on the order of the answers, or on how their new classes are numbered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Ints = NDArray[np.int64]
CELLS = 4_000_000  # probabilities that are held at a time
STARTS = 8  # answers, at most, that the matching starts at
NOWHERE = -1  # an image in none of the classes; a class that was dropped


class Rows(Protocol):
    """N×K probabilities that may lie on disk: some rows of them are an array."""

    def __getitem__(self, rows: slice | Ints, /) -> NDArray[np.floating]: ...


@dataclass(frozen=True, eq=False)
class Consensus:
    """Known classes first, then new ones, the largest first."""

    columns: tuple[Ints, ...]  # of each answer, K: the class here that each class there is, or `NOWHERE`
    count: int  # classes
    classes: Ints  # N: `NOWHERE` where more than half of the answers have no class for an image
    unanimous: NDArray[np.bool_]  # N: all answers agree
    _answers: tuple[Ints, ...]
    _probabilities: tuple[Rows, ...]

    def blocks(self) -> Iterator[slice]:
        """All images, some at a time."""
        return _blocks(len(self.classes), self.count)

    def probabilities(self, rows: slice | Ints) -> NDArray[np.float64]:
        """The averaged ones of some images, n×K, also of those without a class."""
        means = _means(self._answers, self._probabilities, self.columns, self.count, rows)
        return np.asarray(means / np.maximum(means.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))


def consensus(answers: Sequence[Ints], probabilities: Sequence[Rows], n_known: int, *, fewest: int = 1) -> Consensus:
    """The consensus of answers about N images: their classes, -1 for none of them, and their N×K probabilities.

    An image's probabilities are averaged over the answers that put it into a class, or over all if none does. There are
    at most as many classes as in the answer that has most, and at least ``fewest``, even if some are empty.

    >>> first, second = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]), np.array([[0.8, 0.1, 0.1], [0.3, 0.1, 0.6]])
    >>> found = consensus([np.array([0, 1]), np.array([0, 2])], [first, second], n_known=1)
    >>> found.classes.tolist(), [columns.tolist() for columns in found.columns]
    ([0, 1], [[0, 1, -1], [0, -1, 1]])
    >>> found.probabilities(slice(1, 2)).round(2).tolist()
    [[0.26, 0.74]]
    """
    counts = [rows[0:1].shape[1] for rows in probabilities]
    matched = match_classes(answers, counts, n_known)
    none = sum((answer < 0).astype(np.int64) for answer in answers) * 2 > len(answers)
    columns = np.ones(max(int(found.max()) for found in matched) + 1, dtype=np.bool_)
    best = _best(answers, probabilities, matched, columns)
    kept = _kept(np.where(none, NOWHERE, best), len(columns), n_known, fewest, max(counts))
    if not kept[best].all():
        best = _best(answers, probabilities, matched, kept)
    number = _numbers(np.where(none, NOWHERE, best), kept, n_known)
    placed = [_at(found, answer) for found, answer in zip(matched, answers, strict=True)]
    return Consensus(
        columns=tuple(number[found] for found in matched),
        count=int(kept.sum()),
        classes=np.where(none, NOWHERE, number[best]),
        unanimous=np.logical_and.reduce([other == placed[0] for other in placed]),
        _answers=tuple(answers),
        _probabilities=tuple(probabilities),
    )


def match_classes(answers: Sequence[Ints], counts: Sequence[int], n_known: int) -> list[Ints]:
    """For each answer, which class of all together each of its K classes is; known ones stay as they are.

    ``counts`` has the K of each. The best of several attempts, each starting at another answer.

    >>> match_classes([np.array([0, 1, 1, 2]), np.array([0, 2, 2, 1])], [3, 3], n_known=1)
    [array([0, 1, 2]), array([0, 2, 1])]
    """
    names = [_by_first_image(answer, k, n_known) for answer, k in zip(answers, counts, strict=True)]
    renamed = [_at(numbers, answer) for numbers, answer in zip(names, answers, strict=True)]
    orders = _orders(renamed, counts, n_known)[:STARTS]
    attempts = [_matched_from(order, renamed, counts, n_known) for order in orders]
    columns = max(attempts, key=lambda attempt: _agreement(renamed, attempt))  # of equal ones the first
    used = np.unique(np.concatenate(columns))
    return [np.searchsorted(used, found[numbers]) for found, numbers in zip(columns, names, strict=True)]


def _matched_from(order: Sequence[int], answers: Sequence[Ints], counts: Sequence[int], n_known: int) -> list[Ints]:
    """Matched one after the other, then each again with all others until no two answers agree on more images."""
    columns: dict[int, Ints] = {}
    for s in order:
        columns[s] = _matched(answers[s], counts[s], [(answers[t], columns[t]) for t in columns], n_known)
    improved = True
    while improved:
        improved = False
        for s in order:
            others = [(answers[t], columns[t]) for t in order if t != s]
            better = _matched(answers[s], counts[s], others, n_known)
            if _agreeing(answers[s], better, others) > _agreeing(answers[s], columns[s], others):
                columns[s], improved = better, True
    return [columns[s] for s in range(len(answers))]


def _at(columns: Ints, classes: Ints) -> Ints:
    """N: the column of each image's class, `NOWHERE` without one."""
    return np.where(classes < 0, NOWHERE, columns[classes])


def _by_first_image(answer: Ints, count: int, n_known: int) -> Ints:
    """K: other numbers for the new classes, by their first image; so the numbers they had do not matter."""
    appearing, first = np.unique(answer[answer >= n_known], return_index=True)
    appearing = appearing[np.argsort(first)]
    empty = np.setdiff1d(np.arange(n_known, count), appearing)
    numbers = np.arange(count)
    numbers[np.concatenate([appearing, empty])] = np.arange(n_known, count)
    return numbers


def _orders(answers: Sequence[Ints], counts: Sequence[int], n_known: int) -> list[list[int]]:
    """From each answer on, those first that agree more with it; the most typical answer is the first one to start at.

    Of answers that agree equally the content decides, so the order in which they came does not matter.
    """
    pairs = np.zeros((len(answers), len(answers)), dtype=np.int64)
    for s, answer in enumerate(answers):
        for t in range(s):
            other = [(answers[t], np.arange(counts[t]))]
            pairs[s, t] = pairs[t, s] = _agreeing(answer, _matched(answer, counts[s], other, n_known), other)
    content = [answer.tobytes() for answer in answers]
    every = range(len(answers))
    starts = sorted(every, key=lambda s: (-pairs[s].sum(), content[s]))
    return [sorted(every, key=lambda s: (s != first, -pairs[first, s], content[s])) for first in starts]


def _matched(mine: Ints, count: int, others: Sequence[tuple[Ints, Ints]], n_known: int) -> Ints:
    """K: the columns of an answer's classes, given other answers and theirs."""
    width = max((int(columns.max()) + 1 for _, columns in others), default=n_known)
    shared = np.zeros((count, width), dtype=np.int64)  # images
    for answer, columns in others:
        placed = (mine >= 0) & (answer >= 0)
        cells = mine[placed] * width + columns[answer[placed]]
        shared += np.bincount(cells, minlength=count * width).reshape(count, width)
    rows, to = (n_known + found for found in linear_sum_assignment(shared[n_known:, n_known:], maximize=True))
    meet = shared[rows, to] > 0
    found = np.append(np.arange(n_known), np.full(count - n_known, NOWHERE))
    found[rows[meet]] = to[meet]
    alone = found < 0
    found[alone] = width + np.arange(alone.sum())
    return found


def _agreeing(mine: Ints, columns: Ints, others: Sequence[tuple[Ints, Ints]]) -> int:
    """Images of the same class in an answer and another, over all others."""
    placed = _at(columns, mine)
    return sum(int(((placed == _at(theirs, answer)) & (placed >= 0)).sum()) for answer, theirs in others)


def _agreement(answers: Sequence[Ints], columns: Sequence[Ints]) -> int:
    pairs = list(zip(answers, columns, strict=True))
    return sum(_agreeing(*pair, pairs[:s]) for s, pair in enumerate(pairs))


def _means(
    answers: Sequence[Ints], probabilities: Sequence[Rows], columns: Sequence[Ints], count: int, rows: slice | Ints
) -> NDArray[np.float64]:
    """n×count, over the answers that count for each image; what went to no column is lost."""
    placed = np.stack([answer[rows] >= 0 for answer in answers])  # S×n
    counted = placed | ~placed.any(axis=0)
    total = np.zeros((placed.shape[1], count + 1))  # the last column is `NOWHERE`
    for counts, each, to in zip(counted, probabilities, columns, strict=True):
        total[:, to] += counts[:, None] * np.asarray(each[rows], dtype=np.float64)
    return np.asarray(total[:, :count] / counted.sum(axis=0)[:, None])


def _best(
    answers: Sequence[Ints], probabilities: Sequence[Rows], columns: Sequence[Ints], allowed: NDArray[np.bool_]
) -> Ints:
    """N: the most probable column of those allowed."""
    count = len(allowed)
    means = (_means(answers, probabilities, columns, count, rows) for rows in _blocks(len(answers[0]), count))
    return np.concatenate([np.where(allowed, block, NOWHERE).argmax(axis=1) for block in means])


def _kept(best: Ints, count: int, n_known: int, fewest: int, most: int) -> NDArray[np.bool_]:
    """The known columns, and the largest new ones that have an image."""
    order = _by_size(best, count, n_known)
    used = np.isin(order, best)
    kept = np.arange(count) < n_known
    kept[order[: most - n_known][used[: most - n_known]]] = True
    kept[order[~used][: max(0, fewest - int(kept.sum()))]] = True
    return kept


def _numbers(best: Ints, kept: NDArray[np.bool_], n_known: int) -> Ints:
    """The number of each column in the end: known ones, then new ones by size; `NOWHERE` for one that is not kept."""
    order = [k for k in _by_size(best, len(kept), n_known).tolist() if kept[k]]
    numbers = np.where(np.arange(len(kept)) < n_known, np.arange(len(kept)), NOWHERE)
    numbers[order] = n_known + np.arange(len(order))
    return numbers


def _by_size(best: Ints, count: int, n_known: int) -> Ints:
    """The new columns, the largest first; of equal ones the one with the first image."""
    sizes, first = np.zeros(count, dtype=np.int64), np.full(count, len(best))
    placed = np.flatnonzero(best >= 0)
    np.add.at(sizes, best[placed], 1)
    np.minimum.at(first, best[placed], placed)
    return np.lexsort((first[n_known:], -sizes[n_known:])) + n_known


def _blocks(images: int, count: int) -> Iterator[slice]:
    step = max(1, CELLS // count)
    return (slice(start, min(start + step, images)) for start in range(0, images, step))
