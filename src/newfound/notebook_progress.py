"""A progress bar in a notebook: one line of HTML that is replaced as the work proceeds."""

from __future__ import annotations

import time
from types import TracebackType

from markupsafe import Markup

from newfound.screen import times

SECONDS_BETWEEN_UPDATES = 0.2  # each is a message to the browser
LINE = Markup('<div><progress max="{total}" value="{done}"></progress> {what} {done:,}/{total:,}, {times} {note}</div>')


class NotebookTracker:
    """Needs IPython, which every notebook has, and nothing else: no widgets."""

    def __init__(self, what: str, total: int, done: int) -> None:
        from IPython.display import display

        self._what, self._total, self._first, self._done, self._note = what, total, done, done, ""
        self._start = self._last = time.monotonic()
        self._handle = display(_Html(self._line()), display_id=True)

    def __enter__(self) -> NotebookTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._show()

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        self._done, self._note, self._total = done, note, total or self._total
        if time.monotonic() - self._last >= SECONDS_BETWEEN_UPDATES or done >= self._total:
            self._show()

    def _show(self) -> None:
        self._last = time.monotonic()
        self._handle.update(_Html(self._line()))

    def _line(self) -> str:
        elapsed, since = time.monotonic() - self._start, self._done - self._first
        left = elapsed / since * (self._total - self._done) if since and self._done < self._total else None
        return LINE.format(
            total=self._total, done=self._done, what=self._what, note=self._note, times=times(elapsed, left)
        )


class _Html:
    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html
