"""Ratios: both sides in the same process, in turn, so that a busy moment of the machine meets both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    baseline: str
    baseline_seconds: float
    seconds: float
    goal: float
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.seconds / self.baseline_seconds


class Side(NamedTuple):
    run: Callable[[], object]
    times: int = 1  # in a round, after one time that does not count: for what is quick


def alternated(
    sides: Mapping[str, Side], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The median over rounds of each side's seconds."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (run, times) in sides.items():
            if times > 1:
                run()
            started = clock()
            for _ in range(times):
                run()
            taken[name].append((clock() - started) / times)
    return {name: median(seconds) for name, seconds in taken.items()}
