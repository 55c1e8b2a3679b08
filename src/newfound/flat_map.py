"""The map: a place in the plane for every image, alike ones close together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from newfound.nearest_rows import Floats, Ints, nearest_among, unit_rows

DIRECTIONS = 50  # principal ones that t-SNE starts from
LAID_OUT = 5000  # images by t-SNE itself; the others are placed among them
FEWEST = 30  # with fewer t-SNE has hardly a neighbourhood to keep, and the last bits decide who is near whom
AMONG = 3  # neighbours whose middle an image is placed in
TIED = 1e-4  # of the largest: directions whose lengths differ by less have no order of their own


def flat_map(embeddings: NDArray[np.floating], laid_out: int = LAID_OUT) -> Floats:
    """N×2 between 0 and 1, by t-SNE of the principal directions; the same embeddings give the same map.

    On another kind of processor the last bits of sums differ, and t-SNE amplifies them: groups stay together there, but
    single images may lie elsewhere in them.

    >>> flat_map(np.eye(3)).shape
    (3, 2)
    """
    unit = unit_rows(embeddings)
    # One thread: t-SNE is several times slower with two, and partial sums in another order give another map.
    with threadpool_limits(1):
        drawn = _drawn(len(unit), laid_out)
        places = np.empty((len(unit), 2), dtype=np.float32)
        few = _principal(unit, drawn)
        places[drawn] = _laid_out(few[drawn])
        _place_others(places, few, drawn)
    return _within_square(places)


def _drawn(total: int, wanted: int) -> Ints:
    return np.sort(np.random.default_rng(0).permutation(total)[:wanted])


def _principal(unit: Floats, drawn: Ints) -> Floats:
    """Coordinates along the principal directions, N×up to 50."""
    count = min(DIRECTIONS, len(drawn), unit.shape[1])
    if np.ptp(unit[drawn], axis=0).max() < 1e-6:  # all the same
        return np.zeros((len(unit), 2), dtype=np.float32)
    fitted = PCA(count, svd_solver="randomized" if min(len(drawn), unit.shape[1]) > 500 else "full", random_state=0)
    few = fitted.fit(unit[drawn]).transform(unit)
    return np.asarray(few @ _settled(few[drawn], fitted.singular_values_), dtype=np.float32)


def _settled(few: Floats, lengths: Floats) -> NDArray[np.float64]:
    """The rotation, d×d, that settles what a decomposition leaves open: signs, and directions of the same length.

    Among tied directions the decomposition returns whichever the last bits of its sums favour, and two of them may show
    different images in one place. Each group of tied directions is turned as near as it can be to a fixed random
    picture of the images, which is the same whatever basis came in.
    """
    picture = np.random.default_rng(0).normal(size=few.shape)
    starts = [0, *(np.flatnonzero(np.diff(lengths) < -TIED * lengths[0]) + 1), len(lengths)]
    rotation = np.zeros((few.shape[1], few.shape[1]))
    for start, stop in pairwise(starts):
        tied = slice(start, stop)
        rotation[tied, tied] = orthogonal_procrustes(few[:, tied], picture[:, tied])[0]
    return rotation


def _laid_out(few: Floats) -> Floats:
    """t-SNE; or the two principal directions where there are too few images, or all are the same."""
    start = np.pad(few[:, :2], ((0, 0), (0, max(0, 2 - few.shape[1]))))
    if len(few) < FEWEST or np.ptp(few[:, 0]) < 1e-6:
        return start
    perplexity = min(30.0, (len(few) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init=start / start[:, 0].std() * 1e-4, random_state=0, n_jobs=1)
    return np.asarray(tsne.fit_transform(few), dtype=np.float32)


def _place_others(places: Floats, few: Floats, drawn: Ints) -> None:
    """In the middle of the nearest images that have a place, the nearer the heavier."""
    others = np.setdiff1d(np.arange(len(places)), drawn)
    if not len(others):
        return
    around, distance = nearest_among(few[others], few[drawn], AMONG)
    weight = 1 / (distance + 1e-6)
    weight /= weight.sum(axis=1, keepdims=True)
    places[others] = np.einsum("nk,nkd->nd", weight, places[drawn][around])


def _within_square(places: Floats) -> Floats:
    """Centred, and both directions by the same scale: distances keep their meaning."""
    low, high = places.min(axis=0), places.max(axis=0)
    span = float((high - low).max()) or 1.0
    return np.asarray((places - (low + high) / 2) / span + 0.5, dtype=np.float32)
