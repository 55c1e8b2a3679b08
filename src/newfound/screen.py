"""What a person sees while newfound works: lines, tables, and progress with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from newfound.errors import MUST, SettingError

if TYPE_CHECKING:
    from newfound.notebook_progress import NotebookTracker

SECONDS_BETWEEN_LINES = 15.0


class Tracker(Protocol):
    """Progress of one piece of work."""

    def update(self, done: int, note: str = "", total: int | None = None) -> None: ...


class Screen:
    """A terminal gets live bars; a log file gets a line every quarter of a minute; ``quiet`` gets nothing."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(quiet=quiet, highlight=False)
        self._warned: set[str] = set()

    def say(self, text: str) -> None:
        self._print(Text(shown(text)))  # Text: names from the user's folder are never read as markup

    def warn(self, text: str) -> None:
        self._print(Text("warning: ", style="yellow bold").append(shown(text), style="not bold default"))

    def warn_once(self, text: str) -> None:
        """What need not be repeated after every epoch."""
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True)  # a path is never broken in two

    def table(self, table: Table) -> None:
        self.console.print(table)

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Tracker]:
        """Follow ``total`` units of work, ``done`` of which are there already."""
        with self._tracker(what, total, done) as tracker:
            yield tracker

    def _tracker(self, what: str, total: int, done: int) -> _LiveTracker | NotebookTracker | _LineTracker:
        if self.console.is_jupyter and not self.console.quiet:
            from newfound.notebook_progress import NotebookTracker

            return NotebookTracker(what, total, done)
        return (_LiveTracker if self.console.is_terminal else _LineTracker)(self.console, what, total, done)


def screen_for(wanted: Screen | bool | None) -> Screen:
    """What a caller from Python sees. True: everything, False: nothing, None: everything where somebody watches, in a
    terminal or a notebook."""
    if isinstance(wanted, Screen):
        return wanted
    if wanted is not None and not isinstance(wanted, bool):
        raise SettingError("screen", wanted, "True, False or a newfound.Screen", MUST)
    screen = Screen()
    watched = screen.console.is_terminal or screen.console.is_jupyter
    return screen if wanted or (wanted is None and watched) else Screen(quiet=True)


class _LiveTracker:
    def __init__(self, console: Console, what: str, total: int, done: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self._task = self._progress.add_task(what, total=total, completed=done, note="")

    def __enter__(self) -> _LiveTracker:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, note=note, total=total)


class _LineTracker:
    def __init__(self, console: Console, what: str, total: int, done: int) -> None:
        self._console, self._what, self._total, self._first = console, what, total, done
        self._start = self._last = time.monotonic()

    def __enter__(self) -> _LineTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        return

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        now, self._total = time.monotonic(), total or self._total
        if now - self._last < SECONDS_BETWEEN_LINES and done < self._total:
            return
        self._last, elapsed = now, now - self._start
        left = elapsed / max(done - self._first, 1) * (self._total - done)
        text = f"{self._what} {done}/{self._total}, {_clock(elapsed)} elapsed, {_clock(left)} left  {note}"
        self._console.print(Text(text.rstrip()), soft_wrap=True)


def shown(text: str) -> str:
    r"""Text that a terminal can take: control characters and bytes that are not UTF-8 are spelt out.

    >>> print(shown("a\x1b[31mb\udcff.jpg"))
    a\x1b[31mb\udcff.jpg
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def megabytes(n_bytes: float) -> str:
    """
    >>> megabytes(138_240_000), megabytes(16.1e9)
    ('138 MB', '16.1 GB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
