"""In which ranges the settings of methods lie. Each function names the settings that it checks."""

from __future__ import annotations

import math

from newfound.errors import require


def require_positive(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        require(name, value, 0 < value < math.inf, "a number above 0")


def require_not_negative(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        require(name, value, 0 <= value < math.inf, "0 or more")


def require_at_least_1(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        require(name, value, 1 <= value < math.inf, "at least 1")


def require_share(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        require(name, value, 0 <= value <= 1, "between 0 and 1")
