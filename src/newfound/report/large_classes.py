"""Known classes that are much larger than their labels suggest: such a class may have taken in a new one.

No truth is needed. Where labels were given without regard to the class, every known class has about the same share of
labelled images; a class with far fewer labels than that, among as many images as the model puts into it, stands out.
How much shares differ anyway is taken from the other known classes: where a few labels were given per class, whatever
its size, little stands out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from newfound.nearest_rows import Floats, Ints, unit_rows

FEWEST_OTHERS = 3  # known classes to compare with
CLEARLY_FEWER = 3.0  # standard deviations between the labels there are and those expected
TIMES, IMAGES = 2.0, 5  # how much larger than suggested, as a factor and in images
MEDIAN_OF_CHI2 = 0.4549  # with one degree of freedom
SHOWN = 8  # images of such a class


@dataclass(frozen=True)
class LargeClass:
    """A known class with far fewer labels than the other known classes would have at its size."""

    class_: int
    size: int  # images that have its label, and unlabelled ones that the model puts there
    labelled: int
    expected: int  # the size that its labels suggest
    images: tuple[int, ...]  # of the unlabelled ones, those least like the labelled ones


def large_known_classes(embeddings: NDArray[np.floating], given: Ints, classes: Ints, n_known: int) -> list[LargeClass]:
    """Those that stand out, the largest excess first.

    >>> given = np.array(([0] * 5 + [-1] * 5) + ([1] * 5 + [-1] * 5) + ([2] * 5 + [-1] * 5) + ([3] + [-1] * 19))
    >>> classes = np.repeat([0, 1, 2, 3], [10, 10, 10, 20])
    >>> [(found.class_, found.labelled, found.size, found.expected)
    ...  for found in large_known_classes(np.ones((50, 2)), given, classes, n_known=4)]
    [(3, 1, 20, 2)]
    """
    labelled = np.bincount(given[given >= 0], minlength=n_known)[:n_known]
    sizes = labelled + np.bincount(classes[(given < 0) & (classes >= 0)], minlength=n_known)[:n_known]
    unit = unit_rows(embeddings)
    found = []
    for k in np.flatnonzero(labelled):
        others = np.flatnonzero((labelled > 0) & (np.arange(n_known) != k))
        suggested = _suggested_size(labelled[k], sizes[k], labelled[others], sizes[others])
        if suggested is not None:
            members, own = np.flatnonzero((given < 0) & (classes == k)), np.flatnonzero(given == k)
            images = _least_like(unit, members, own)
            found.append(LargeClass(int(k), int(sizes[k]), int(labelled[k]), suggested, images))
    return sorted(found, key=lambda item: (item.expected - item.size, item.class_))


def _suggested_size(labelled: int, size: int, other_labelled: Ints, other_sizes: Ints) -> int | None:
    """What the labels of a class suggest, if it is much larger than that; None if it is not.

    Medians, so that a second class of the kind does not hide the first.
    """
    if len(other_labelled) < FEWEST_OTHERS:
        return None
    tiny = 0.5 / other_sizes.sum()
    share = float(np.clip(np.median(other_labelled / other_sizes), tiny, 1 - tiny))
    variance = share * (1 - share)
    squares = (other_labelled - share * other_sizes) ** 2 / (variance * other_sizes)
    usual = max(1.0, float(np.median(squares)) / MEDIAN_OF_CHI2)  # times the variance of labels given at random
    clearly = share * size - labelled >= CLEARLY_FEWER * (usual * variance * size) ** 0.5
    suggested = labelled / share
    return round(suggested) if clearly and size >= TIMES * suggested and size >= suggested + IMAGES else None


def _least_like(unit: Floats, members: Ints, labelled: Ints) -> tuple[int, ...]:
    cosines = unit[members] @ unit[labelled].mean(axis=0)
    return tuple(members[np.argsort(cosines, kind="stable")][:SHOWN].tolist())
