"""How many classes are there?

The published way: k-means on all frozen features for a number of classes K, then the share of labelled images whose
cluster is the one matched with their class. The K with the highest share is the answer. Beside it stands a second one
from a tree of the images, cut at every K and scored alike: no starting points, and a curve without holes.

What the score cannot see: two new classes in one cluster, a new class in the cluster of a known one, a new class in
two clusters. So the number leans low where few of the classes are known, and where classes overlap it is the number of
clusters that serves the known classes best, which may lie to either side (published with DINO: 231 for the 200 of CUB).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from newfound.count_clusterings import kmeans_clusters, tree_cuts
from newfound.count_criteria import (
    OF_KMEANS,
    OF_RESAMPLING,
    SAMPLED,
    Criterion,
    Silhouette,
    criterion_for,
    drawn_images,
    labels_tell,
)
from newfound.random_streams import CLASS_COUNT

DIRECTIONS = 128  # principal ones that k-means and the tree work in
MOST_STARTS, DISTANCES = 5, 1_000_000  # of each k-means run: small data have time for more
COARSE, TRIED = 12, 32  # numbers of classes tried at first, and at most
RESOLUTION = 0.02  # of a number of classes: nothing is told apart below that
MOST_NEW = 1000  # classes looked for unless the caller asks for more
FITTED = 20_000  # images that k-means moves its centres by: more cost time and hardly move them
RESAMPLINGS, PLAUSIBLE = 500, 0.9
TIE = 1e-9


@dataclass(frozen=True)
class Point:
    """The score of a number of classes: mean and standard deviation over seeds."""

    classes: int
    score: float
    spread: float


@dataclass(frozen=True)
class Estimate:
    """A number of classes, and what speaks for it.

    ``best`` has the highest score, the largest such number if there are several: with too few clusters a known class
    often shares its own with a new one, which costs nothing. ``low`` to ``high``: if known classes (sampled images, for
    the silhouette) and seeds are drawn again, with replacement, the highest score lies in between nine times out of
    ten. That is how much chance is in the answer; what the score cannot see is not in it.
    """

    best: int
    low: int
    high: int
    curve: tuple[Point, ...]  # by number of classes


@dataclass(frozen=True)
class ClassCount(Estimate):
    """The published estimate, and a second one."""

    tree: Estimate
    known: int
    most: int  # the largest number looked at
    criterion: str

    def sentence(self) -> str:
        """In plain words."""
        text = f"about {self.best} {'class' if self.best == 1 else 'classes'}"
        text += f", {self.low} to {self.high} plausible" if self.low < self.high else ""
        text += f"; {({0: 'none is', 1: '1 is'}).get(self.known, f'{self.known} are')} known"
        text += f"; more than {self.most} were not looked for" if self.high == self.most > self.known else ""
        text += "" if self.low <= self.tree.best <= self.high else f"; a tree of the images says {self.tree.best}"
        blind = self.criterion == Silhouette.name and self.most > self.known
        return text + ("; judged without labels, by silhouette" if blind else "")

    __str__ = sentence


def count_classes(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    most: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    on_progress: Callable[[int, int], None] | None = None,
) -> ClassCount:
    """Estimate the number of classes from frozen features (N×d) and labels, -1 for unlabelled.

    ``most`` is the largest number to consider. Default: room for new classes as small as the labelled part of a known
    one, or of five images (of ten in the sample, for the silhouette); at least the square root of N and at most 1000
    new ones. ``on_progress`` gets how many numbers have been tried and are planned; the search plans more as it goes.

    Accuracy says nothing unless two known classes have two labelled images each: one cluster is right for one class,
    and single images cannot be torn apart. The criterion is then the silhouette, which needs no labels; it never finds
    fewer than two classes in images that differ, and likes broad groups.

    Of more than 20,000 images a sample sets the centres of k-means, and all are sorted by them.

    The answer depends on the seeds, but not on the order of the images, the names of the classes or the number of
    threads.

    >>> centres = np.eye(6).repeat(20, axis=0)
    >>> features = centres + 0.1 * np.random.default_rng(0).normal(size=centres.shape)
    >>> labels = np.where(np.arange(120) % 2, -1, np.arange(120) // 20)
    >>> found = count_classes(features, np.where(labels < 4, labels, -1))
    >>> found.best, found.tree.best, found.criterion
    (6, 6, 'accuracy on labelled images')
    >>> print(found)  # doctest: +ELLIPSIS
    about 6 classes, ... plausible; 4 are known
    """
    rows = _checked_features(features)
    classes = _checked_labels(labels, len(rows))
    _check_seeds(seeds)
    order, different = _order_of_content(rows)
    rows, classes = rows[order], classes[order]
    fewest, most = _range(classes, different, most)
    # One thread: with several, the order of their partial sums, and with it the last bits, is left to chance.
    with threadpool_limits(1):
        places = _fewer_directions(_on_sphere(rows))
        criterion = criterion_for(places, classes, seeds[0])

        fitted = drawn_images(len(places), max(FITTED, most), seeds[0], OF_KMEANS)
        starts = int(np.clip(DISTANCES // (len(fitted) * most), 1, MOST_STARTS))

        def runs(count: int) -> NDArray[np.float64]:
            return np.stack([criterion.values(kmeans_clusters(places, fitted, count, seed, starts)) for seed in seeds])

        found = _search(runs, fewest, most, lambda tried: _estimate(tried, criterion, seeds[0]), on_progress)
        cuts = {count: criterion.values(cut)[None] for count, cut in tree_cuts(places, fewest, most, seeds[0])}
        tree = _estimate(cuts, criterion, seeds[0])
    return ClassCount(**vars(found), tree=tree, known=_known(classes), most=most, criterion=criterion.name)


Tried = dict[int, NDArray[np.float64]]  # number of classes: seeds×units, see Criterion


def _search(
    runs: Callable[[int], NDArray[np.float64]],
    fewest: int,
    most: int,
    estimate: Callable[[Tried], Estimate],
    on_progress: Callable[[int, int], None] | None,
) -> Estimate:
    """From coarse to fine. The score has many peaks, so gaps are narrowed wherever the highest one may plausibly be."""
    tried: Tried = {}
    wanted = sorted({round(count) for count in np.geomspace(fewest, most, COARSE)})
    while True:
        planned = len(tried) + len(wanted)
        for count in wanted:
            tried[count] = runs(count)
            if on_progress is not None:
                on_progress(len(tried), planned)
        found = estimate(tried)
        wanted = _middles(sorted(tried), found.low, found.high)[: TRIED - len(tried)]
        if not wanted:
            return found


def _middles(tried: Sequence[int], low: int, high: int) -> list[int]:
    """Of the gaps that reach into the plausible range and are wide enough to matter, the widest first."""
    gaps = [(a, b) for a, b in pairwise(tried) if b >= low and a <= high and b - a > max(1, RESOLUTION * a)]
    return [round(math.sqrt(a * b)) for a, b in sorted(gaps, key=lambda gap: gap[0] / gap[1])]


def _estimate(tried: Tried, criterion: Criterion, seed: int) -> Estimate:
    counts = np.array(sorted(tried))
    values = np.stack([tried[count] for count in counts.tolist()])  # counts×seeds×units
    scores = values.sum(axis=2) / criterion.sizes.sum()  # counts×seeds
    mean, spread = scores.mean(axis=1), scores.std(axis=1)
    best = int(counts[_ends(mean[None])[1]].item())
    first, last = (counts[end] for end in _ends(_resampled(values, criterion.sizes, seed)))
    low = int(np.quantile(first, (1 - PLAUSIBLE) / 2, method="lower"))
    high = int(np.quantile(last, (1 + PLAUSIBLE) / 2, method="higher"))
    points = zip(counts.tolist(), mean.tolist(), spread.tolist(), strict=True)
    return Estimate(best, min(low, best), max(high, best), tuple(Point(*point) for point in points))


def _resampled(values: NDArray[np.float64], sizes: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Mean scores, had other units and other runs been drawn: resamplings×counts."""
    random = np.random.default_rng([seed, CLASS_COUNT, OF_RESAMPLING])
    _, n_runs, n_units = values.shape
    runs = random.multinomial(n_runs, np.full(n_runs, 1 / n_runs), RESAMPLINGS) / n_runs
    units = random.multinomial(n_units, np.full(n_units, 1 / n_units), RESAMPLINGS)
    mean: NDArray[np.float64] = np.einsum("ksr,rs->rk", values @ units.T, runs) / (units @ sizes)[:, None]
    return mean


def _ends(scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where in each row the highest score is first and last reached."""
    highest = scores >= scores.max(axis=1, keepdims=True) - TIE
    return highest.argmax(axis=1), scores.shape[1] - 1 - highest[:, ::-1].argmax(axis=1)


def _range(labels: NDArray[np.int64], different: int, most: int | None) -> tuple[int, int]:
    """The fewest and the most classes to consider."""
    known, labelled = _known(labels), int((labels >= 0).sum())
    if most is not None and not (most >= known and most >= 1 and most == int(most)):
        raise ValueError(f"most must be a whole number, at least 1 and the {known} known classes; found {most}")
    if labelled == len(labels):
        return known, known
    if most is None:
        per_class = max(labelled // max(known, 1), 5)
        room = (len(labels) - labelled) // per_class if labels_tell(labels) else min(len(labels), SAMPLED) // 10
        most = known + min(max(room, math.isqrt(len(labels))), MOST_NEW)
    fewest = max(known, 1)
    return fewest, max(fewest, min(int(most), different, known + len(labels) - labelled))


def _known(labels: NDArray[np.int64]) -> int:
    return len(np.unique(labels[labels >= 0]))


def _on_sphere(rows: NDArray[Any]) -> NDArray[np.float32]:
    """L2-normalised; first by the largest number in a row, whose square may be too large to hold."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    unit: NDArray[np.float32] = normalize((rows / np.where(largest > 0, largest, 1)).astype(np.float32))
    return unit


def _fewer_directions(unit: NDArray[np.float32]) -> NDArray[np.float32]:
    """The principal ones: many times faster, and what is left out is mostly noise to k-means."""
    if min(unit.shape) <= DIRECTIONS:
        return unit
    places: NDArray[np.float32] = PCA(DIRECTIONS, svd_solver="randomized", random_state=0).fit_transform(unit)
    return np.ascontiguousarray(places, dtype=np.float32)


def _order_of_content(rows: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """An order that no other order of the same images would change, and how many different ones there are."""
    digests = [blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
    return np.array(sorted(range(len(rows)), key=digests.__getitem__)), len(set(digests))


def _checked_features(features: ArrayLike) -> NDArray[Any]:
    rows = np.asarray(features)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"features must be a table of images by numbers; found shape {rows.shape}")
    rows = rows.astype(np.float32 if rows.dtype in (np.float16, np.float32) else np.float64)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise ValueError(f"features must be finite; found NaN or infinity in row {int(finite.argmin())}")
    rows += 0.0  # -0.0 is 0.0
    return rows


def _checked_labels(labels: ArrayLike, images: int) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != (images,):
        raise ValueError(f"labels must be one number for each of {images} images; found shape {array.shape}")
    if array.dtype.kind not in "iu" or array.min() < -1:
        raise ValueError("labels must be whole numbers from 0 on, or -1 for unlabelled; found others")
    return array.astype(np.int64)


def _check_seeds(seeds: Sequence[int]) -> None:
    if not len(seeds) or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be different whole numbers, 0 or more, and at least one; found {list(seeds)}")
