"""Images that are nearly the same picture: by their features, or as small pictures, by how they look."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from newfound.nearest_rows import CELLS, Floats, Ints, blocks, unit_rows

SAME_FEATURES = 0.98  # cosine of embeddings from which two images are called the same picture
SAME_LOOK = 0.995  # cosine of small pictures, see thumbnails.look
PROJECTED = 64  # dimensions in which pairs are sifted
MOST_PAIRS = 100_000
MOST = 200  # groups on the page


@dataclass(frozen=True)
class Duplicates:
    """Images that are nearly the same picture."""

    images: tuple[int, ...]
    similarity: float  # the lowest cosine that links them


@dataclass(frozen=True, eq=False)
class Pairs:
    """Images that are alike, two by two."""

    first: Ints
    second: Ints
    cosine: Floats

    def of(self, images: Ints) -> Pairs:
        """The same pairs, where row r of what was compared was image ``images[r]``."""
        return Pairs(images[self.first], images[self.second], self.cosine)


def duplicate_groups(*alike: Pairs, most: int = MOST) -> list[Duplicates]:
    """Images linked by pairs, in whatever way these were found; the most alike first.

    >>> pairs = similar_pairs(np.array([[1, 0], [0, 1], [1, 0.01], [0, -1]]), 0.99)
    >>> [group.images for group in duplicate_groups(pairs)]
    [(0, 2)]
    """
    first = np.concatenate([pairs.first for pairs in alike])
    second = np.concatenate([pairs.second for pairs in alike])
    cosine = np.concatenate([pairs.cosine for pairs in alike])
    if not len(first):
        return []
    total = int(max(first.max(), second.max())) + 1
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(total, total))
    group_of = connected_components(graph, directed=False)[1]
    lowest = np.full(total, np.inf)
    np.minimum.at(lowest, group_of[first], cosine)
    members = np.unique(np.concatenate([first, second]))
    members = members[np.argsort(group_of[members], kind="stable")]
    starts = np.flatnonzero(np.diff(group_of[members], prepend=-1))
    groups = [
        Duplicates(tuple(images.tolist()), min(1.0, float(lowest[group_of[images[0]]])))
        for images in np.split(members, starts[1:])
    ]
    return sorted(groups, key=lambda group: (-round(group.similarity, 3), group.images))[:most]


def similar_pairs(rows: NDArray[np.floating], threshold: float) -> Pairs:
    """All pairs of rows whose cosine is ``threshold`` or more, or the first ``MOST_PAIRS`` of them.

    A projection never lengthens a distance, so pairs too far apart in few dimensions need no look in all of them:
    the same pairs, many times faster. Memory does not grow with the number of pairs of images.
    """
    unit = unit_rows(rows)
    few = _projected(unit)
    reach = np.einsum("nd,nd->n", few, few)
    limit = 2 * (1 - threshold) + 1e-4  # squared distance of unit rows; the small part is float32's
    found = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))]
    count = 0
    for block in blocks(len(unit), max(1, CELLS // max(len(unit), 1))):
        distance = reach[block, None] + reach[None, block.start :] - 2 * few[block] @ few[block.start :].T
        first, second = np.nonzero(np.triu(distance <= limit, 1))
        found.append(_verified(unit, first + block.start, second + block.start, threshold))
        count += len(found[-1].first)
        if count >= MOST_PAIRS:
            break
    return Pairs(*(np.concatenate([getattr(p, part) for p in found]) for part in ("first", "second", "cosine")))


def _projected(unit: Floats) -> Floats:
    """Along the directions in which the images differ most; orthonormal, so nothing moves apart.

    To find these directions costs more than it saves where images are fewer than dimensions.
    """
    if unit.shape[1] <= PROJECTED or len(unit) <= unit.shape[1]:
        return unit
    sample = unit[:: max(1, len(unit) // 5000)]
    sample = sample - sample.mean(axis=0)
    _, vectors = np.linalg.eigh(sample.T @ sample)
    return np.asarray(unit @ vectors[:, -PROJECTED:], dtype=np.float32)


def _verified(unit: Floats, first: Ints, second: Ints, threshold: float) -> Pairs:
    """Of the sifted pairs those that are similar in all dimensions; twenty thousand pairs at a time."""
    first, second = first[:MOST_PAIRS], second[:MOST_PAIRS]
    cosine = np.empty(len(first), dtype=np.float32)
    for some in blocks(len(first), 20_000):
        cosine[some] = np.einsum("pd,pd->p", unit[first[some]], unit[second[some]])
    kept = cosine >= threshold
    return Pairs(first[kept], second[kept], cosine[kept])
