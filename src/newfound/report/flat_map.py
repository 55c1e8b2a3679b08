"""The map: a place in the plane for every image, alike ones close together. Kept as map.npy in the run folder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from newfound.report.neighbours import Floats, Ints, nearest_among, unit_rows
from newfound.run_folder import RunFolder

DIRECTIONS = 50  # principal ones that t-SNE starts from
LAID_OUT = 5000  # images by t-SNE itself; the others are placed among them
FEWEST = 6  # below that, t-SNE has nothing to do
AMONG = 3  # neighbours whose middle an image is placed in


def map_of(run: RunFolder, embeddings: NDArray[np.floating]) -> Floats:
    """The map of a run, N×2 between 0 and 1: read if it is there and not older than the embeddings, else made."""
    path, source = run.path / "map.npy", run.path / "embeddings.npy"
    if path.is_file() and (not source.is_file() or path.stat().st_mtime_ns >= source.stat().st_mtime_ns):
        try:
            places = run.read_array(path.name)
        except (ValueError, OSError):
            places = np.empty(0)
        if places.shape == (len(embeddings), 2) and np.isfinite(places).all():
            return np.asarray(places, dtype=np.float32)
    places = flat_map(embeddings)
    run.write_array("map.npy", places)
    return places


def flat_map(embeddings: NDArray[np.floating], laid_out: int = LAID_OUT) -> Floats:
    """N×2 between 0 and 1, by t-SNE of the principal directions; the same embeddings give the same map.

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
    count = min(DIRECTIONS, len(drawn), unit.shape[1])
    if np.ptp(unit[drawn], axis=0).max() < 1e-6:  # all the same
        return np.zeros((len(unit), 2), dtype=np.float32)
    fitted = PCA(count, svd_solver="randomized" if min(len(drawn), unit.shape[1]) > 500 else "full", random_state=0)
    return np.asarray(fitted.fit(unit[drawn]).transform(unit), dtype=np.float32)


def _laid_out(few: Floats) -> Floats:
    """t-SNE; or the two principal directions where there are too few images, or all are the same."""
    if len(few) < FEWEST or np.ptp(few[:, 0]) < 1e-6:
        return np.pad(few[:, :2], ((0, 0), (0, max(0, 2 - few.shape[1]))))
    perplexity = min(30.0, (len(few) - 1) / 3)
    placed = TSNE(2, perplexity=perplexity, init="pca", random_state=0, n_jobs=1).fit_transform(few)
    return np.asarray(placed, dtype=np.float32)


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
