"""What changes from epoch to epoch (epochs count from 0)."""

from __future__ import annotations

import math


def learning_rate(epoch: int, epochs: int, start: float, floor: float = 1e-3) -> float:
    """Cosine, one value per epoch, towards a share of the start, the ``floor`` (reached only after the last epoch).

    >>> [round(learning_rate(e, 4, 0.1), 4) for e in range(4)]
    [0.1, 0.0854, 0.0501, 0.0147]
    """
    end = start * floor
    return end + (start - end) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def teacher_temperature(epoch: int, warmup_epochs: int, start: float, end: float) -> float:
    """In a straight line from start to end, whose value the last warm-up epoch has; a single one stays at the start.

    >>> [round(teacher_temperature(e, 4, 0.07, 0.04), 3) for e in range(6)]
    [0.07, 0.06, 0.05, 0.04, 0.04, 0.04]
    """
    if epoch >= warmup_epochs:
        return end
    return start + (end - start) * epoch / max(warmup_epochs - 1, 1)
