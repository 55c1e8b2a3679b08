"""How much memory a call needs beyond what is there already."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

PAGE = 4096


def peak_of(run: Callable[[], object]) -> float:
    """Megabytes, by looking at the process every few milliseconds (Linux)."""
    before, highest, ended = _resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not ended.wait(0.002):
            highest = max(highest, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    ended.set()
    watcher.join()
    return max(0, highest - before) * PAGE / 1e6


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])
