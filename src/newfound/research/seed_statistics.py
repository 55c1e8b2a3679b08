"""One setting run with several seeds: which ones, and their numbers as mean ± sample standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from newfound.errors import UserError


def check_seeds(seeds: Sequence[int]) -> None:
    """At least one, and each once: the same run twice would count as two."""
    if not seeds:
        raise UserError("--seeds needs at least one number")
    if repeated := [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]:
        raise UserError(f"--seeds has {repeated[0]} more than once: give each seed once")


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1 in the denominator); None of a single value.

    >>> deviation([1.0, 3.0]), deviation([1.0])
    (1.4142135623730951, None)
    """
    return statistics.stdev(values) if len(values) > 1 else None


def mean_text(mean: float, std: float | None) -> str:
    """As tables have it; of a single seed the number alone.

    >>> mean_text(55.0, 7.071), mean_text(55.0, None)
    ('55.0 ± 7.1', '55.0')
    """
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def over_seeds(seeds: Sequence[int]) -> str:
    """What the numbers of a table are.

    >>> over_seeds([0, 1]), over_seeds([3])
    ('mean ± sample standard deviation over seeds 0, 1', 'seed 3')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"mean ± sample standard deviation over seeds {', '.join(map(str, seeds))}"
