"""Would whitening help k-means? A check on labels alone.

The labels of some known classes are hidden, which then play new ones, and those of some images of the others. Features
are whitened by the scatter of what is still labelled, k-means groups all images of these classes, and the hidden labels
say how many it grouped correctly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from newfound.hidden_labels import FEWEST_CLASSES, Split, hide
from newfound.kmeans import kmeans
from newfound.random_streams import WHITENING_CHECK
from newfound.whitening import NONE, Spectrum, within_class_scatter

CANDIDATES = (NONE, 0.99, 0.9, 0.5, 0.1)  # shrinkages, the weakest whitening first
TRIALS = 10  # each with other labels hidden
MOST_CLASSES, MOST_IMAGES, MOST_PER_CLASS = 50, 1000, 100  # that k-means groups, drawn where more are labelled
ERRORS = 2.0  # standard errors by which whitening has to be better than none


@dataclass(frozen=True)
class WhiteningCheck:
    """Shares of labelled images that k-means grouped correctly, by trial and candidate, and what follows from them."""

    candidates: tuple[float, ...]  # shrinkages; `NONE` is the first; no candidates where the shrinkage was given
    accuracy: tuple[tuple[float, ...], ...]  # trials×candidates; no trials where there are too few labels
    shrinkage: float  # that of the best candidate, `NONE` if no other is better beyond doubt

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> WhiteningCheck:
        """From its fields, as JSON has them; raises a KeyError, TypeError or ValueError if they are none."""
        candidates = tuple(map(float, content["candidates"]))
        accuracy = tuple(tuple(map(float, trial)) for trial in content["accuracy"])
        shrinkage = float(content["shrinkage"])
        shares = [shrinkage, *candidates, *(share for trial in accuracy for share in trial)]
        if not all(0 <= share <= 1 for share in shares) or any(len(trial) != len(candidates) for trial in accuracy):
            raise ValueError(f"{shares} are no shares, or not one for each candidate")
        if candidates and shrinkage not in candidates:
            raise ValueError(f"{shrinkage} is not among {candidates}")
        return cls(candidates, accuracy, shrinkage)

    @property
    def means(self) -> tuple[float, ...]:
        """The mean accuracy of each candidate; empty without trials."""
        return tuple(np.mean(self.accuracy, axis=0).tolist()) if self.accuracy else ()

    def __str__(self) -> str:
        """What was decided, and why.

        >>> str(WhiteningCheck((NONE, 0.9, 0.1), ((0.5, 0.5, 0.25), (0.5, 0.75, 0.5)), 0.9))
        'shrinkage 0.9 (labels that were hidden: 62 % correct with, 50 % without)'
        >>> str(WhiteningCheck((NONE, 0.9), (), NONE)), str(WhiteningCheck((), (), 0.9))
        ('none (too few known classes to check)', 'shrinkage 0.9')
        """
        decided = "none" if self.shrinkage == NONE else f"shrinkage {self.shrinkage:g}"
        return f"{decided} ({reason})" if (reason := self._reason()) else decided

    def _reason(self) -> str:
        if not self.accuracy:
            return "too few known classes to check" if self.candidates else ""
        without, *others = (f"{100 * mean:.0f} %" for mean in self.means)
        if self.shrinkage == NONE:
            return f"labels that were hidden: {without} correct without, no clear gain with"
        chosen = others[self.candidates.index(self.shrinkage) - 1]
        return f"labels that were hidden: {chosen} correct with, {without} without"


def check_whitening(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    views: Callable[[NDArray[np.int64]], NDArray[np.floating]] | None = None,
    seed: int = 0,
) -> WhiteningCheck:
    """Which shrinkage serves k-means best, judged by labels that the whitening was not computed from.

    ``features`` (N×d) are grouped; ``labels`` are N, -1 for unlabelled. The scatter is that of ``views``, which gives
    several of each image that it is asked for (n×V×d); by default that of the features. Classes with a single labelled
    image play no part, and with fewer than `FEWEST_CLASSES` others there is no trial.

    >>> random = np.random.default_rng(0)
    >>> labels = np.arange(8).repeat(10)
    >>> noise = random.normal(size=(80, 20)) * np.where(np.arange(20) < 4, 8, 0.3)  # the same in each class
    >>> found = check_whitening(random.normal(size=(8, 20))[labels] + noise, labels)
    >>> found.shrinkage < NONE
    True
    """
    images = _drawn_images(labels, np.random.default_rng([seed, WHITENING_CHECK]))
    known, rows = labels[images].astype(np.int64), features[images]
    if len(np.unique(known)) < FEWEST_CLASSES:
        return WhiteningCheck(CANDIDATES, (), NONE)
    several = rows if views is None else views(images)
    with threadpool_limits(1):  # with several, the last bits of a sum are left to chance
        accuracy = tuple(_trial(rows, several, hide(known, number, seed=seed), number) for number in range(TRIALS))
    return WhiteningCheck(CANDIDATES, accuracy, _chosen(np.array(accuracy)))


def _drawn_images(labels: NDArray[np.integer], drawn: np.random.Generator) -> NDArray[np.int64]:
    """Labelled images that take part, in order."""
    classes, sizes = np.unique(labels[labels >= 0], return_counts=True)
    classes = drawn.permutation(classes[sizes > 1])[:MOST_CLASSES]
    each = min(MOST_IMAGES // max(len(classes), 1), MOST_PER_CLASS)
    images = [drawn.permutation(np.flatnonzero(labels == k))[:each] for k in classes]
    return np.sort(np.concatenate(images)) if images else np.zeros(0, dtype=np.int64)


def _trial(rows: NDArray[np.floating], views: NDArray[np.floating], split: Split, number: int) -> tuple[float, ...]:
    """The accuracy of each candidate on the images whose labels are hidden."""
    spectrum = Spectrum.of(within_class_scatter(views, split.labels))
    turned = rows @ spectrum.directions
    return tuple(_accuracy(turned * spectrum.shrunk(candidate) ** -0.5, split, number) for candidate in CANDIDATES)


def _accuracy(rows: NDArray[np.floating], split: Split, number: int) -> float:
    """Of k-means of all rows, with as many clusters as there are classes."""
    if len(rows) < rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows.T, mode="r")).T  # the same distances in fewer dimensions
    return split.accuracy(kmeans(rows.astype(np.float32), split.classes, seed=number).clusters).all


def _chosen(accuracy: NDArray[np.float64]) -> float:
    """The best candidate, if it is better than none by more than chance among the trials would make it.

    Whitening that is not needed may do harm, so that in doubt there is none. The comparison is by pairs: some classes
    are harder than others, whatever is done to the features.
    """
    gains = accuracy - accuracy[:, :1]
    mean, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / len(gains) ** 0.5
    clear = np.where(mean > ERRORS * error, mean, 0.0)
    return CANDIDATES[int(clear.argmax())]  # the weakest whitening of those that are equal
