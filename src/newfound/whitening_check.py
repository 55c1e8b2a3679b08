"""Would whitening help k-means with new classes? A check on labels alone.

Some known classes are set aside. Features are whitened by the scatter within the others, as those of new classes will
be, k-means groups the labelled images of the classes set aside, and their labels say how many it grouped correctly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from newfound.evaluate import matched_classes
from newfound.kmeans import kmeans
from newfound.random_streams import WHITENING_CHECK
from newfound.whitening import NONE, Spectrum, scatter_of_groups

CANDIDATES = (NONE, 0.99, 0.9, 0.5, 0.1)  # shrinkages, the weakest whitening first
TRIALS = 10  # sets of classes that are set aside, one after another
SET_ASIDE = 25  # classes at most: k-means of many more would take minutes
FEWEST_CLASSES = 4  # below that, two of them cannot be set aside with two left to learn from
MOST_CLASSES, MOST_IMAGES, MOST_PER_CLASS = 100, 2000, 100  # of the labelled ones, drawn where there are more
Groups = Sequence[NDArray[np.floating]]  # one of each class
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
        'shrinkage 0.9 (labelled classes set aside: 62 % correct with, 50 % without)'
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
            return f"labelled classes set aside: {without} correct without, no clear gain with"
        chosen = others[self.candidates.index(self.shrinkage) - 1]
        return f"labelled classes set aside: {chosen} correct with, {without} without"


def check_whitening(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    views: Callable[[NDArray[np.int64]], NDArray[np.floating]] | None = None,
    seed: int = 0,
) -> WhiteningCheck:
    """Which shrinkage serves k-means best, judged by known classes that the whitening was not computed from.

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
    drawn = np.random.default_rng([seed, WHITENING_CHECK])
    members = _drawn_members(labels, drawn)
    if len(members) < FEWEST_CLASSES:
        return WhiteningCheck(CANDIDATES, (), NONE)
    rows = [features[images] for images in members]
    scattered = rows if views is None else [views(images) for images in members]
    with threadpool_limits(1):  # with several, the last bits of a sum are left to chance
        accuracy = tuple(islice(_trials(rows, scattered, drawn), TRIALS))
    return WhiteningCheck(CANDIDATES, accuracy, _chosen(np.array(accuracy)))


def _drawn_members(labels: NDArray[np.integer], drawn: np.random.Generator) -> list[NDArray[np.int64]]:
    """Labelled images of each class that takes part."""
    classes, sizes = np.unique(labels[labels >= 0], return_counts=True)
    classes = drawn.permutation(classes[sizes > 1])[:MOST_CLASSES]
    each = min(MOST_IMAGES // max(len(classes), 1), MOST_PER_CLASS)
    return [np.sort(drawn.permutation(np.flatnonzero(labels == k))[:each]) for k in classes]


def _trials(rows: Groups, views: Groups, drawn: np.random.Generator) -> Iterator[tuple[float, ...]]:
    """The accuracy of each candidate, for one set of classes after another, without end; rows and views by class.

    All classes have their turn to be set aside before one of them has another.
    """
    while True:
        sets = np.array_split(drawn.permutation(len(rows)), max(2, -(-len(rows) // SET_ASIDE)))
        scatters = [_summed_scatter([views[k] for k in classes]) for classes in sets]
        for i, classes in enumerate(sets):
            spectrum = Spectrum.of(np.sum(scatters[:i] + scatters[i + 1 :], axis=0))
            truth = np.arange(len(classes)).repeat([len(rows[k]) for k in classes])
            turned = np.concatenate([rows[k] for k in classes]) @ spectrum.directions
            yield tuple(_accuracy(turned * spectrum.shrunk(c) ** -0.5, truth) for c in CANDIDATES)


def _summed_scatter(views: Groups) -> NDArray[np.float64]:
    """So that those of several sets of classes add up."""
    return scatter_of_groups(views, views[0].shape[-1]) * sum(map(len, views))


def _accuracy(rows: NDArray[np.floating], truth: NDArray[np.int64]) -> float:
    """Of k-means with as many clusters as there are classes."""
    if len(rows) < rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows.T, mode="r")).T  # the same distances in fewer dimensions
    found = kmeans(rows.astype(np.float32), int(truth.max()) + 1, seed=0).clusters
    return float((matched_classes(truth, found) == truth).mean())


def _chosen(accuracy: NDArray[np.float64]) -> float:
    """The best candidate, if it is better than none by more than chance among the sets of classes would make it.

    Whitening that is not needed may do harm, so that in doubt there is none. The comparison is by pairs: some sets of
    classes are harder than others, whatever is done to the features.
    """
    gains = accuracy - accuracy[:, :1]
    mean, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / len(gains) ** 0.5
    clear = np.where(mean > ERRORS * error, mean, 0.0)
    return CANDIDATES[int(clear.argmax())]  # the weakest whitening of those that are equal
