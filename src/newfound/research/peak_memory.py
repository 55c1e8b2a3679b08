"""The most memory that a run needs, where the system tells (Linux)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PEAK_ALONE = "5"  # of what `CLEAR` can forget


def peak_memory(work: Callable[[], object]) -> float | None:
    """Do the work; the most gigabytes that this process held meanwhile, all that it held before included."""
    known = _forget()
    work()
    return _peak() if known else None


def _forget() -> bool:
    """Has the system forgotten the peak of earlier work?"""
    try:
        CLEAR.write_text(PEAK_ALONE)
    except OSError:
        return False
    return True


def _peak() -> float | None:
    found = re.search(r"^VmHWM:\s*(\d+) kB", STATUS.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 / 1e9 if found else None
