"""Files that are either whole or not there."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system knows such a thing."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write_atomically(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write beside ``path`` and rename at the end: a kill at any point leaves the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    # surrogateescape: a file name that is not UTF-8 comes out as the bytes it went in with
    text = {} if "b" in mode else {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""}
    try:
        with open(temporary, mode, **text) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number that JSON has")


def load_json(path: Path) -> Any:
    """What a JSON file holds; a ValueError says why it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table, whole or not at all. Lines end in CR LF, as RFC 4180 has it: then both are quoted inside a name."""
    with write_atomically(path) as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
