"""How well clusters agree with a truth that training never saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment


@dataclass(frozen=True)
class Accuracy:
    """Shares of correctly grouped samples; ``nan`` for a group without samples."""

    all: float
    old: float
    new: float


def cluster_accuracy(true: ArrayLike, predicted: ArrayLike, known: ArrayLike) -> Accuracy:
    """The field's main number: one best matching of clusters to classes over all samples, then read per group.

    ``known`` says for each sample whether its true class is a known one. A sample in no cluster, -1 in ``predicted``,
    is never right.

    >>> cluster_accuracy([0, 0, 1, 1], [5, 5, 2, 5], [True, True, False, False])
    Accuracy(all=0.75, old=1.0, new=0.5)
    """
    true, predicted, known = _checked(true, predicted, known)
    correct = matched_classes(true, predicted) == true
    return Accuracy(_share(correct), _share(correct[known]), _share(correct[~known]))


def cluster_accuracy_v1(true: ArrayLike, predicted: ArrayLike, known: ArrayLike) -> Accuracy:
    """The older protocol: known and new samples matched each on their own. Optimistic, clusters may serve twice."""
    true, predicted, known = _checked(true, predicted, known)

    def matched_share(mask: NDArray[np.bool_]) -> float:
        if not mask.any():
            return float("nan")
        return _share(matched_classes(true[mask], predicted[mask]) == true[mask])

    old, new = matched_share(known), matched_share(~known)
    share_old = known.mean()
    weighted = np.nan_to_num(old) * share_old + np.nan_to_num(new) * (1 - share_old)
    return Accuracy(float(weighted), old, new)


def cluster_accuracy_v2b(true: ArrayLike, predicted: ArrayLike, known: ArrayLike) -> Accuracy:
    """The main matching, but a mean over classes instead of over samples: rare classes count as much as common ones."""
    true, predicted, known = _checked(true, predicted, known)
    _, per_class = _class_shares(true, matched_classes(true, predicted) == true)
    is_known = _class_shares(true, known)[1] > 0
    return Accuracy(_share(per_class), _share(per_class[is_known]), _share(per_class[~is_known]))


def class_accuracies(true: ArrayLike, predicted: ArrayLike) -> dict[int, float]:
    """For each true class the share of its samples that the main matching puts right.

    >>> class_accuracies([0, 0, 1, 1], [5, 5, 2, 5])
    {0: 1.0, 1: 0.5}
    """
    true, predicted, _ = _checked(true, predicted, np.zeros(len(np.asarray(true)), dtype=bool))
    classes, shares = _class_shares(true, matched_classes(true, predicted) == true)
    return dict(zip(classes.tolist(), shares.tolist(), strict=True))


def mutual_information(true: ArrayLike, predicted: ArrayLike) -> float:
    """Normalised mutual information (arithmetic mean)."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(true, predicted))


def rand_index(true: ArrayLike, predicted: ArrayLike) -> float:
    """Adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(true, predicted))


def matched_classes(true: NDArray[np.int64], predicted: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each sample the class that its cluster is matched with, so that most samples agree (Hungarian method).

    Where there are more clusters than classes, some are matched with a number that is no class. A sample in no cluster
    (-1) has none, which is -1.

    >>> matched_classes(np.array([7, 7, 900, 900, 7]), np.array([5, 5, 2, 5, -1]))
    array([  7,   7, 900,   7,  -1])
    """
    placed = predicted >= 0
    found = np.full(len(true), -1, dtype=np.int64)
    found[placed] = _matched(true[placed], predicted[placed])
    return found


def _matched(true: NDArray[np.int64], predicted: NDArray[np.int64]) -> NDArray[np.int64]:
    ids, places = np.unique(np.concatenate([true, predicted]), return_inverse=True)  # what ids are does not matter
    classes, clusters = np.split(places, 2)
    counts = np.zeros((len(ids), len(ids)), dtype=np.int64)
    np.add.at(counts, (clusters, classes), 1)
    _, matched = linear_sum_assignment(counts, maximize=True)  # rows come in order
    return np.asarray(ids[matched[clusters]])


def _class_shares(true: NDArray[np.int64], chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The classes there are, and which share of each is chosen."""
    classes, places, sizes = np.unique(true, return_inverse=True, return_counts=True)
    return classes, np.bincount(places, weights=chosen) / sizes


def _checked(
    true: ArrayLike, predicted: ArrayLike, known: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    true, predicted, known = np.asarray(true), np.asarray(predicted), np.asarray(known)
    if not (true.shape == predicted.shape == known.shape) or true.ndim != 1 or not len(true):
        raise ValueError(
            "true, predicted and known must be one-dimensional, of one length and not empty; "
            f"found shapes {true.shape}, {predicted.shape}, {known.shape}"
        )
    if known.dtype != bool:
        raise ValueError(f"known must be boolean, one entry per sample; found dtype {known.dtype}")
    for name, array, lowest in (("true", true, 0), ("predicted", predicted, -1)):
        if not np.issubdtype(array.dtype, np.integer) or array.min() < lowest:
            what = "non-negative integers" if lowest == 0 else "non-negative integers, or -1 for none"
            raise ValueError(f"{name} must hold {what}; found dtype {array.dtype}")
    return true.astype(np.int64), predicted.astype(np.int64), known


def _share(correct: NDArray[np.generic]) -> float:
    return float(correct.mean()) if len(correct) else float("nan")


def claimed_clusters(
    clusters: NDArray[np.int64], labels: NDArray[np.int64], n_known: int
) -> tuple[dict[int, int], list[int]]:
    """Match known classes to clusters, so that most labelled images agree: class to cluster; the others, in order."""
    counts = np.zeros((int(clusters.max()) + 1, n_known), dtype=np.int64)
    labelled = labels >= 0
    np.add.at(counts, (clusters[labelled], labels[labelled]), 1)
    claimed, classes = (found.tolist() for found in linear_sum_assignment(counts, maximize=True))
    return dict(sorted(zip(classes, claimed, strict=True))), sorted(set(clusters.tolist()) - set(claimed))
