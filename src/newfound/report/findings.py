"""What deserves a person's look: given labels that look wrong, near duplicates, classes that may be one.

Each is a pure function of arrays. The thresholds are measured: docs/report.md says on what.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from newfound.report.large_classes import LargeClass
from newfound.runs.nearest_class import nearest_classes
from newfound.similar_images import CELLS, Floats, Ints, blocks, nearest, unit_rows

SURE, CLEARLY = 0.3, 3.0  # confidence, and how many times that of the runner-up, to stand against a label
CONFUSED = 0.05  # share of a label's images that go the same way, from which it is the model that confuses the two
NEIGHBOURS = 10  # whose word is asked, too
SAME_FEATURES = 0.98  # cosine of embeddings from which two images are called the same picture
SAME_LOOK = 0.995  # cosine of small pictures, see thumbnails.look
PROJECTED = 64  # dimensions in which pairs are sifted
MOST_PAIRS = 100_000
ASKED = 40  # images of a class that are asked for their neighbours
ALIKE = 0.35  # from which two classes may be one
MOST = 200  # of each finding on the page


@dataclass(frozen=True)
class WrongLabel:
    """A labelled image which the model puts elsewhere, and whose neighbours agree with the model."""

    image: int
    given: int  # class
    found: int  # class
    confidence: float
    neighbours: float  # share of the nearest images that are of the class found
    neighbours_given: float  # share that are of the class given


@dataclass(frozen=True)
class Duplicates:
    """Images that are nearly the same picture."""

    images: tuple[int, ...]
    similarity: float  # the lowest cosine that links them


@dataclass(frozen=True)
class Merge:
    """Two classes, at least one of them new, that may be one."""

    classes: tuple[int, int]
    mixed: float  # 1: neighbours are drawn from both as if they were one class, 0: each keeps to itself
    runner_up: float  # share of the images of both whose second choice is the other one

    @property
    def alike(self) -> float:
        """Both together: the geometric mean."""
        return float((self.mixed * self.runner_up) ** 0.5)


@dataclass(frozen=True)
class Findings:
    """All of it, for the page."""

    labels: list[WrongLabel]
    duplicates: list[Duplicates]
    merges: list[Merge]
    large: list[LargeClass] = field(default_factory=list)


def wrong_labels(
    embeddings: NDArray[np.floating],
    given: Ints,
    classes: Ints,
    confidence: NDArray[np.float64],
    runner_up_confidence: NDArray[np.float64],
    *,
    most: int = MOST,
) -> list[WrongLabel]:
    """Labels the model contradicts clearly, and the images nearby, too; the surest first.

    A neighbour says what its label says, or else what the model says of it. Where the model contradicts many labels of
    a class in the same way it is more likely to be at fault itself, so those are left out.

    >>> places = np.array([[1, 0.1], [1, 0.2], [1, 0], [0, 1], [0.1, 1], [1, 0.15]])
    >>> given, found = np.array([0, 0, -1, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 0])
    >>> suspects = wrong_labels(places, given, found, np.full(6, 0.9), np.full(6, 0.1))
    >>> [(item.image, item.given, item.found) for item in suspects]
    [(5, 1, 0)]
    """
    clear = (confidence >= SURE) & (confidence >= CLEARLY * runner_up_confidence)
    suspects = np.flatnonzero((given >= 0) & (given != classes) & clear)
    suspects = suspects[_confusion(given, classes)[suspects] <= CONFUSED]
    if not len(suspects):
        return []
    labels, found = given[suspects], classes[suspects]
    votes = np.where(given >= 0, given, classes)
    around = votes[nearest(unit_rows(embeddings), suspects, NEIGHBOURS)]  # S×neighbours
    for_found, for_given = (around == found[:, None]).mean(axis=1), (around == labels[:, None]).mean(axis=1)
    kept = np.flatnonzero((for_found >= 0.5) & (for_found > for_given))
    order = kept[np.lexsort((kept, -(confidence[suspects] * for_found)[kept]))]
    return [
        WrongLabel(
            image=int(suspects[s]),
            given=int(labels[s]),
            found=int(found[s]),
            confidence=float(confidence[suspects[s]]),
            neighbours=float(for_found[s]),
            neighbours_given=float(for_given[s]),
        )
        for s in order[:most]
    ]


def _confusion(given: Ints, classes: Ints) -> NDArray[np.float64]:
    """Of the other images with the same label, the share that the model puts into the same class as this one."""
    labelled = given >= 0
    size = int(max(given.max(), classes.max())) + 2  # the last column, -1, is none of the classes
    counts = np.zeros((size, size))
    np.add.at(counts, (given[labelled], classes[labelled]), 1.0)
    others = np.maximum(counts.sum(axis=1)[given] - 1, 1)
    return np.where(labelled, (counts[given, classes] - 1) / others, 0.0)


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


def similar_classes(
    embeddings: NDArray[np.floating], classes: Ints, runner_up: Ints, n_known: int, *, most: int = MOST
) -> list[Merge]:
    """Pairs of classes that share neighbours and second choices almost as if they were one, the most alike first.

    One of the two is the nearest class of the other (`nearest_classes`), as it is called elsewhere on the page.

    >>> places = np.array([[1, 0.1 * i] for i in range(8)] + [[-1, 0.1 * i] for i in range(4)])
    >>> found = similar_classes(places, np.array([0, 1] * 4 + [2] * 4), np.array([1, 0] * 4 + [0] * 4), n_known=1)
    >>> [pair.classes for pair in found]
    [(0, 1)]
    """
    if not len(classes):
        return []
    size = int(max(classes.max(), runner_up.max())) + 1
    sizes = np.bincount(classes, minlength=size)
    unit = unit_rows(embeddings)
    mixed, closest = _mixing(unit, classes, sizes), nearest_classes(unit, classes, size)
    second = np.zeros((size, size))
    np.add.at(second, (classes, runner_up), 1.0)
    second = (second + second.T) / np.maximum(sizes[:, None] + sizes, 1)
    pairs = [
        Merge((a, b), float(mixed[a, b]), float(second[a, b]))
        for a, b in np.argwhere(np.triu(mixed * second >= ALIKE**2, 1)).tolist()
        if b >= n_known and (closest[a] == b or closest[b] == a)  # two known ones are two by their labels
    ]
    return sorted(pairs, key=lambda pair: (-round(pair.alike, 3), pair.classes))[:most]


def _mixing(unit: Floats, classes: Ints, sizes: Ints) -> NDArray[np.float64]:
    """K×K, symmetric: how far two classes share their neighbours, 1 being what one class torn in two at random would.

    Of the neighbours of images of a that lie in a or b, the share in b, over b's share of the other images of both;
    then the smaller of the two directions, so that a scattered class beside a dense one is not called its twin.
    """
    k = len(sizes)
    asked = np.concatenate([_spread(np.flatnonzero(classes == c)) for c in range(k)])
    around = classes[nearest(unit, asked, NEIGHBOURS)]  # Q×neighbours
    # A small class is asked for fewer neighbours: it has not got ten of its own.
    counted = np.arange(around.shape[1]) < np.maximum(sizes[classes[asked]] // 2, 1)[:, None]
    votes = np.zeros((k, k))
    np.add.at(votes, (np.broadcast_to(classes[asked][:, None], around.shape)[counted], around[counted]), 1.0)
    own = np.diag(votes)[:, None]
    share = votes / np.maximum(votes + own, 1)
    expected = sizes[None, :] / np.maximum(sizes[None, :] + sizes[:, None] - 1, 1)
    ratio = share / np.maximum(expected, 1e-9)
    mixed = np.minimum(ratio, ratio.T)
    np.fill_diagonal(mixed, 0)
    return np.asarray(np.minimum(mixed, 1.0))


def _spread(members: Ints) -> Ints:
    """At most ``ASKED`` of them, evenly spaced."""
    return members[np.unique(np.linspace(0, len(members) - 1, min(ASKED, len(members))).round().astype(np.int64))]
