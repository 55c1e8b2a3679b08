"""Which of several settings to choose, given how each of them did on the same splits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ERRORS = 2.0  # standard errors by which a setting has to be better than the default


@dataclass(frozen=True)
class Differences:
    """How much better than the first setting each is, split by split: some are harder than others, whatever is done."""

    means: NDArray[np.float64]  # one for each setting; 0 of the first
    errors: NDArray[np.float64]  # standard errors


def differences(accuracy: NDArray[np.float64]) -> Differences:
    """Of accuracies, settings×splits, two splits or more.

    Two splits may agree by chance. So an error is at least what it is on average over the other settings.

    >>> differences(np.array([[0.5, 0.7], [0.6, 0.8], [0.7, 0.7]])).means.round(2).tolist()
    [0.0, 0.1, 0.1]
    >>> differences(np.array([[0.5, 0.7], [0.6, 0.8], [0.7, 0.7]])).errors.round(2).tolist()
    [0.0, 0.07, 0.1]
    """
    gains = accuracy - accuracy[0]
    errors = gains.std(axis=1, ddof=1) / accuracy.shape[1] ** 0.5
    if len(errors) > 1:
        errors[1:] = np.maximum(errors[1:], np.mean(errors[1:] ** 2) ** 0.5)
    return Differences(gains.mean(axis=1), errors)


def chosen(found: Differences, seconds: NDArray[np.float64]) -> int:
    """The best of those that are better than the first beyond doubt, else the first; of equal ones the quickest.

    >>> found = Differences(np.array([0.0, 0.03, 0.02]), np.array([0.0, 0.02, 0.005]))
    >>> chosen(found, np.ones(3))
    2
    """
    clear = [k for k, mean in enumerate(found.means) if mean > ERRORS * found.errors[k]]
    return max(clear, key=lambda k: (found.means[k], -seconds[k]), default=0)
