"""What a person sees while newfound works: lines, tables, and progress with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column, Table
from rich.text import Text

from newfound.errors import MUST, SettingError

if TYPE_CHECKING:
    from newfound.notebook_progress import NotebookTracker

SECONDS_BETWEEN_LINES = 15.0
WITH_BAR, WITH_NOTE = 80, 110  # columns of a terminal from which on a line of progress has room for them


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
        columns: list[ProgressColumn] = [TextColumn("{task.description}"), MofNCompleteColumn(), _TimesColumn()]
        if console.width >= WITH_BAR:
            columns.insert(1, BarColumn(bar_width=24))
        if console.width >= WITH_NOTE:
            columns.append(TextColumn("{task.fields[note]}", style="dim"))
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task(what, total=total, completed=done, note="")

    def __enter__(self) -> _LiveTracker:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, note=note, total=total)


class _TimesColumn(ProgressColumn):
    """How long it has taken, and about how long it will take."""

    def render(self, task: Task) -> Text:
        return Text(times(task.elapsed or 0.0, None if task.finished else task.time_remaining))

    def get_table_column(self) -> Column:
        return Column(no_wrap=True)


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
        left = elapsed / max(done - self._first, 1) * (self._total - done) if done < self._total else None
        text = f"{self._what} {done}/{self._total}, {times(elapsed, left)}  {note}"
        self._console.print(Text(text.rstrip()), soft_wrap=True)


def shown(text: str) -> str:
    r"""Text that a terminal can take: control characters and bytes that are not UTF-8 are spelt out.

    >>> print(shown("a\x1b[31mb\udcff.jpg"))
    a\x1b[31mb\udcff.jpg
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def times(elapsed: float, left: float | None) -> str:
    """How long something has taken, and about how long it will take where that is known.

    >>> times(9.2, 2), times(4000, None)
    ('0:09 elapsed, about 0:02 left', '1:06:40 elapsed')
    """
    return f"{clock(elapsed)} elapsed" + ("" if left is None else f", about {clock(left)} left")


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any.

    >>> clock(9.2), clock(4000), clock(100_000)
    ('0:09', '1:06:40', '27:46:40')
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def megabytes(n_bytes: float) -> str:
    """
    >>> megabytes(138_240_000), megabytes(16.1e9)
    ('138 MB', '16.1 GB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
