"""Anchor selection and semi-supervised k-means beside the straightforward forms."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.memory import peak_of
from benchmarks.peers import anchors_by_full_sort, kmeans_iteration_by_broadcast
from benchmarks.timing import Row, Side, alternated
from newfound.anchors import calibrate, select_anchors
from newfound.semi_kmeans import semi_kmeans

DIM, CLASSES = 768, 100


def around_centres(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit features in overlapping groups, and their groups."""
    random = np.random.default_rng(seed)
    groups = random.integers(CLASSES, size=n)
    rows = 0.3 * random.standard_normal((CLASSES, DIM), dtype=np.float32)[groups]
    rows += random.standard_normal((n, DIM), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), groups


def anchor_row(rounds: int, n: int = 100_000) -> Row:
    """All classes are new, so that there are 100 clusters of about 1,000."""
    features, groups = around_centres(n)
    probabilities = np.random.default_rng(1).dirichlet(np.full(CLASSES, 0.1), n).astype(np.float32)
    rows = np.arange(n)
    top = probabilities.argmax(axis=1)
    probabilities[rows, top], probabilities[rows, groups] = probabilities[rows, groups], probabilities.max(axis=1)
    omega, gamma = calibrate(probabilities, 0, 100)

    def ours() -> object:
        return select_anchors(probabilities, features, 0, omega=omega, gamma=gamma, beta=0.5, k=0.5)

    def usual() -> object:
        return anchors_by_full_sort(probabilities, features, 0, eta=100, beta=0.5, k=0.5)

    note = f"{peak_of(ours):.0f} MB on top of the features; clusters on all cores"  # first: freed memory stays resident
    chosen = select_anchors(probabilities, features, 0, omega=omega, gamma=gamma, beta=0.5, k=0.5)
    theirs = anchors_by_full_sort(probabilities, features, 0, eta=chosen.eta, beta=0.5, k=0.5)
    assert set(chosen.index) == set(np.concatenate(theirs))
    seconds = alternated({"usual": Side(usual), "ours": Side(ours)}, rounds)
    return Row("anchor selection, 100,000 × 768 in 100 clusters", "a full sort per cluster", seconds["usual"],
               seconds["ours"], 1 / 3, note)  # fmt: skip


def kmeans_row(rounds: int, n: int = 5_000, iterations: int = 5) -> Row:
    """From the same centres; 5,000 samples, as the broadcast form needs 1.5 GB for them already."""
    features, _ = around_centres(n)
    centres = features[np.random.default_rng(2).choice(n, CLASSES, replace=False)].astype(np.float64)
    labels = np.full(n, -1)
    rows = torch.from_numpy(features)

    def ours() -> int:
        return semi_kmeans(
            features, labels, CLASSES, initial_centres=centres, max_iterations=iterations, tolerance=0
        ).iterations

    def usual() -> None:
        places = torch.from_numpy(centres.astype(np.float32))
        for _ in range(iterations):
            _, places = kmeans_iteration_by_broadcast(rows, places)

    assert ours() == iterations  # not done earlier
    seconds = alternated({"usual": Side(usual), "ours": Side(ours, times=3)}, rounds)
    name = f"semi-supervised k-means, {iterations} iterations, 5,000 × 768, 100 clusters"
    return Row(name, "N×K×d differences", seconds["usual"], seconds["ours"], 1 / 20)
