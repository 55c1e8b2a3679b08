"""Where the classifier starts: at the clusters that are already there, instead of at random (ours, not SimGCD's).

From random directions, self-distillation settles like k-means from one random start: two groups share a class, another
group is cut in two, and the seed decides. Labelled means and k-means centres of the frozen features avoid that.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from newfound.evaluate import claimed_clusters
from newfound.training.classifiers import LinearClassifier
from newfound.training.heads import CosineClassifier

ROW_LENGTH = 3**-0.5  # what random initialisation gives; only the direction counts, but the length sets the pace


def start_at_clusters(
    classifier: CosineClassifier | LinearClassifier,
    features: NDArray[np.float32],
    clusters: NDArray[np.int64],
    labels: NDArray[np.int64],
) -> None:
    """Turn each known class to the mean of its labelled images, each new class to a cluster that no known class claims.

    ``features`` are the frozen ones, N×d; ``clusters`` their k-means clusters, as many as there are classes; ``labels``
    has -1 for unlabelled. Where there are fewer clusters than classes, the last classes stay random.
    """
    from sklearn.preprocessing import normalize

    means = means_at_clusters(normalize(features), clusters, labels)
    directions = normalize(means[: len(classifier.weight)]) * ROW_LENGTH
    with torch.no_grad():
        classifier.weight[: len(directions)] = torch.from_numpy(directions)


def start_at_labelled_means(
    classifier: CosineClassifier, features: NDArray[np.float32], labels: NDArray[np.int64]
) -> None:
    """Turn each known class to the mean of its labelled images; there are no others. Rows have length 1."""
    from sklearn.preprocessing import normalize

    means = labelled_means(normalize(features), labels)
    if means:
        with torch.no_grad():
            classifier.weight.copy_(torch.from_numpy(normalize(np.stack(means))))


def means_at_clusters(
    features: NDArray[np.float32], clusters: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """One row per class: means of the labelled images of each known class, then of the clusters none of them claims.

    >>> rows = np.array([[0, 0], [2, 0], [0, 9]], dtype=np.float32)
    >>> means_at_clusters(rows, clusters=np.array([0, 0, 1]), labels=np.array([-1, 0, -1])).tolist()
    [[2.0, 0.0], [0.0, 9.0]]
    """
    means = labelled_means(features, labels)
    means += [features[clusters == c].mean(axis=0) for c in claimed_clusters(clusters, labels, len(means))[1]]
    return np.stack(means)


def labelled_means(features: NDArray[np.float32], labels: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    """One row per known class: the mean of its labelled images."""
    n_known = int(labels.max(initial=-1)) + 1
    return [features[labels == k].mean(axis=0) for k in range(n_known)]
