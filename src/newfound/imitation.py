"""A classifier of unit features that imitates given probabilities, as well as one direction per class can.

Probabilities that are averaged over several models, such as those of a consensus, come from no single network. This
finds what comes closest on top of one: the directions whose cosines with the features, divided by a temperature and
through a softmax, have the smallest cross-entropy with the probabilities. Directions have no length, so they cannot
become surer than the temperature allows, and images that no direction explains are left to the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float32]
STEPS = 100  # of the descent, at most
CELLS = 4_000_000  # logits that are held at a time


def imitated(features: Floats, probabilities: Floats, temperature: float) -> Floats:
    """K×d, of length 1: a direction for each class, given features N×d of length 1 and their probabilities N×K.

    >>> features = np.float32([[1, 0], [0.8, 0.6], [0, 1]])
    >>> found = imitated(features, np.float32([[1, 0], [0, 1], [0, 1]]), temperature=0.1)
    >>> nearest_direction(features, found).tolist()
    [0, 1, 1]
    """
    shape = probabilities.shape[1], features.shape[1]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, slope = _cross_entropy(flat.reshape(shape), features, probabilities, temperature)
        return value, slope.ravel()

    start = unit(_means(features, probabilities))
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return unit(found.x.reshape(shape)).astype(np.float32)


def nearest_direction(features: Floats, directions: Floats) -> NDArray[np.int64]:
    """N: the class of the largest cosine."""
    parts = (features[rows] @ directions.T for rows in _blocks(len(features), len(directions)))
    return np.concatenate([part.argmax(axis=1) for part in parts])


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Of length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _means(features: Floats, probabilities: Floats) -> NDArray[np.float64]:
    """K×d: the features of each class, added up by its probabilities; away from all of them for a class without any."""
    total = (probabilities.T @ features).astype(np.float64)
    total[~total.any(axis=1)] = -features.mean(axis=0)
    return total


def _cross_entropy(
    weight: NDArray[np.float64], features: Floats, probabilities: Floats, temperature: float
) -> tuple[float, NDArray[np.float64]]:
    """The mean over images, and its gradient: that of the cosines, without what would only change a length."""
    directions = unit(weight)
    value, slope = 0.0, np.zeros_like(weight)
    for rows in _blocks(len(features), len(weight)):
        logits = features[rows] @ directions.T.astype(np.float32) / np.float32(temperature)
        logits -= logits.max(axis=1, keepdims=True)
        powers = np.exp(logits)
        total = powers.sum(axis=1, keepdims=True)
        value -= float((probabilities[rows] * (logits - np.log(total))).sum(dtype=np.float64))
        slope += (powers / total - probabilities[rows]).T @ features[rows]
    slope /= len(features) * temperature
    value /= len(features)
    slope -= (slope * directions).sum(axis=1, keepdims=True) * directions
    return value, slope / np.linalg.norm(weight, axis=1, keepdims=True)


def _blocks(images: int, count: int) -> Iterator[slice]:
    step = max(1, CELLS // count)
    return (slice(start, min(start + step, images)) for start in range(0, images, step))
