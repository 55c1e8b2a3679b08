"""What deserves a person's look: given labels that look wrong, classes that may be one.

Near duplicates and large classes have files of their own. Each is a pure function of arrays. The thresholds are
measured: docs/report.md says on what.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from newfound.nearest_rows import Floats, Ints, nearest, unit_rows
from newfound.report.large_classes import LargeClass
from newfound.report.near_duplicates import Duplicates
from newfound.runs.nearest_class import nearest_classes

SURE, CLEARLY = 0.3, 3.0  # confidence, and how many times that of the runner-up, to stand against a label
CONFUSED = 0.05  # share of a label's images that go the same way, from which it is the model that confuses the two
NEIGHBOURS = 10  # whose word is asked, too
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

    A neighbour votes for its label, or else for the class that the model gives it. Where the model contradicts many
    labels of a class in the same way it is more likely to be at fault itself, so those are left out.

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
