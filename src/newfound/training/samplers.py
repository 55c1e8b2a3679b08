"""Which images an epoch is trained on, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from newfound.random_streams import SAMPLER

Labels = NDArray[np.int64]
Draw = Callable[[Labels, int, int, int], list[NDArray[np.int64]]]  # labels, batch size, seed, moment: an epoch


def half_labelled(
    labels: Labels, batch_size: int, seed: int, moment: int, *, balance: float = 0.0
) -> list[NDArray[np.int64]]:
    """One epoch: N+M draws with replacement, half of them labelled on average, the last incomplete batch dropped.

    ``balance`` says how the labelled half is shared by the classes, see `label_weights`.

    >>> batches = half_labelled(np.array([0, 1] + [-1] * 98), 20, seed=0, moment=0)
    >>> len(batches), len(batches[0])
    (5, 20)
    """
    n, labelled = len(labels), labels >= 0
    n_labelled = int(labelled.sum())
    weights = np.ones(n)
    weights[labelled] = label_weights(labels[labelled], balance)
    if 0 < n_labelled < n:  # otherwise there is only one of the two halves
        weights[~labelled] = n_labelled / (n - n_labelled)
    drawn = np.random.default_rng([seed, SAMPLER, moment]).choice(n, size=n, p=weights / weights.sum())
    return _batches(drawn, batch_size)


def label_weights(labels: Labels, balance: float) -> NDArray[np.float64]:
    """The chance of each labelled image, 1 on average.

    It is proportional to n^-``balance``, where n is the number of labels of its class: with 0 all images are alike,
    with 1 all classes that have a label.

    >>> label_weights(np.array([0, 0, 0, 1]), 0.0).tolist()
    [1.0, 1.0, 1.0, 1.0]
    >>> label_weights(np.array([0, 0, 0, 1]), 1.0).round(4).tolist()
    [0.6667, 0.6667, 0.6667, 2.0]
    """
    if not len(labels):
        return np.ones(0)
    labels_of_its_class = np.bincount(labels)[labels].astype(np.float64)
    weights = np.power(labels_of_its_class, -balance)
    return np.asarray(weights * (len(labels) / weights.sum()))


def all_alike(labels: Labels, batch_size: int, seed: int, moment: int) -> list[NDArray[np.int64]]:
    """The same with equal chances for every image, labelled or not.

    >>> batches = all_alike(np.array([0, 1] + [-1] * 98), 20, seed=0, moment=0)
    >>> len(batches), len(batches[0])
    (5, 20)
    """
    n = len(labels)
    return _batches(np.random.default_rng([seed, SAMPLER, moment]).integers(n, size=n), batch_size)


def _batches(drawn: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """The last incomplete one is dropped; a smaller set is one batch."""
    n, size = len(drawn), min(batch_size, len(drawn))
    return [drawn[i : i + size] for i in range(0, n - size + 1, size)]
