"""Keeping the score of a training where a truth was given. The loop asks for it; nothing a method receives leads here.

A referee knows the truth, and answers with numbers to log. Only the oracle, which is for analysis, acts on its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from newfound.distributed import from_first


class Referee(Protocol):
    """Knows the truth, and says only how well a prediction agrees with it."""

    def accuracy(self, predicted: NDArray[np.int64]) -> dict[str, float | None]: ...
    def knows(self, images: NDArray[np.int64]) -> NDArray[np.bool_]: ...
    def clean(
        self, predicted: NDArray[np.int64], images: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class _Present:
    referee: Referee | None = None
    oracle: bool = False


_present: ContextVar[_Present] = ContextVar("referee", default=_Present())  # noqa: B039 - it cannot change


@contextmanager
def refereed(referee: Referee | None, *, oracle: bool = False) -> Iterator[None]:
    """Trainings herein are scored by ``referee``; with ``oracle``, the loop drops wrong pseudo-labels, for analysis."""
    before = _present.set(_Present(referee, oracle))
    try:
        yield
    finally:
        _present.reset(before)


def judged(
    given: NDArray[np.int64], labels: NDArray[np.int64], predicted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Where a truth was given: how many pseudo-labels are clean, for the log. Only the oracle acts on it.

    All are N: ``given`` labels and those with pseudo-labels, -1 for none, and the classes that were predicted.
    """
    present = _present.get()
    if present.referee is None:
        return labels, {}
    images = np.flatnonzero((labels >= 0) & (given < 0))
    clean = present.referee.clean(predicted, images, labels[images])
    known = present.referee.knows(images)
    judgement: dict[str, Any] = {"clean": int(clean.sum()), "overall": int(known.sum())}
    if present.oracle:
        dropped = images[known & ~clean]
        labels = labels.copy()
        labels[dropped] = -1
        judgement["oracle"] = f"{len(dropped)} anchors that are not clean were dropped"
    return labels, judgement


def scores(predicted: NDArray[np.int64]) -> dict[str, Any]:
    """All, Old and New, where a truth was given; the mark of an oracle."""
    present = _present.get()
    marks = {"oracle": True} if present.oracle else {}
    if present.referee is None:
        return marks
    return {**from_first(partial(present.referee.accuracy, predicted)), **marks}
