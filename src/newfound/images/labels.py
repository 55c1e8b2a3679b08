"""A table of labels (labels.csv, or Hugging Face's metadata.csv and metadata.jsonl), read into rows."""

from __future__ import annotations

import csv
import io
import json
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from newfound.errors import UserError

FILE_COLUMNS = ("file", "file_name")
LABEL_COLUMN = "label"
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class LabelRow:
    """One row; a blank label is None, `place` is how a message names the row ("row 3", "line 3")."""

    row: int
    file: str
    label: str | None
    place: str


@dataclass(frozen=True)
class LabelFile:
    """The rows of a labels file, each file named once, and what the reader has to say about them."""

    path: Path
    rows: tuple[LabelRow, ...]
    warnings: tuple[str, ...]


def read_labels(path: Path) -> LabelFile:
    """Read a labels file; its name's ending decides between JSON lines and CSV.

    A CSV has a header row with a column `file` (or `file_name`) and a column `label`, separated by commas,
    semicolons or tabs; rows are numbered as a spreadsheet does, the header is row 1. JSON lines hold one
    object each with the same names. A blank or null label means unlabelled.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("file,label\\na.jpg,cat\\nb.jpg,\\n")
    >>> [(row.place, row.file, row.label) for row in read_labels(path).rows]
    [('row 2', 'a.jpg', 'cat'), ('row 3', 'b.jpg', None)]
    """
    path = Path(path)
    text = _read_text(path)
    is_json = path.suffix.lower() in JSON_SUFFIXES
    rows, ignored = _read_json_lines(path, text) if is_json else _read_csv(path, text)
    warnings = []
    if ignored:
        warnings.append(f"{path}: columns other than file and label are ignored: {listed(ignored, limit=20)}")
    kept, repeats = merge_repeats(path, ((row.file, row) for row in rows))
    return LabelFile(path, tuple(kept.values()), (*warnings, *repeats))


def merge_repeats(path: Path, keyed_rows: Iterable[tuple[str, LabelRow]]) -> tuple[dict[str, LabelRow], list[str]]:
    """Keep the first row of each file, warn of later ones that agree with it, refuse those that do not."""
    first: dict[str, LabelRow] = {}
    repeats: list[str] = []
    conflicts: list[str] = []
    for key, row in keyed_rows:
        kept = first.setdefault(key, row)
        if kept is row:
            continue
        both = f"{kept.place} and {row.place} both name {row.file!r}"
        if kept.label == row.label:
            repeats.append(both)
        else:
            conflicts.append(f"{both}, as {_label_shown(kept)} and as {_label_shown(row)}")
    if conflicts:
        raise UserError(f"{path}: a file can have one label only; correct these rows: {listed(conflicts)}")
    return first, [f"{path}: the same file and label twice: {listed(repeats)}"] if repeats else []


def listed(items: Sequence[str], limit: int = 5) -> str:
    """Join the first few of many items and count the rest.

    >>> listed(["a", "b", "c"], limit=2)
    'a; b; and 1 more'
    """
    shown = list(items[:limit])
    if len(items) > limit:
        shown.append(f"and {len(items) - limit:,} more")
    return "; ".join(shown)


def _label_shown(row: LabelRow) -> str:
    return "unlabelled" if row.label is None else repr(row.label)


def _read_text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, for ever
            raise UserError(f"{path}: the labels file cannot be read: this is not a file of text")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such labels file") from None
    except OSError as error:
        raise UserError(f"{path}: the labels file cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 text: byte {content[error.start]:#04x} at offset {error.start}; "
            'save it as UTF-8 (in a spreadsheet: "CSV UTF-8")'
        ) from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise UserError(f"{path}: the labels file is empty; it needs a header row such as file,label")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(f"{path}: line {line} holds a NUL byte, so this is not a text file; save it as UTF-8 text")
    return text


# CSV


def _read_csv(path: Path, text: str) -> tuple[list[LabelRow], list[str]]:
    records = _csv_records(path, text)
    _, header = next(records)
    file_column, label_column, ignored = _find_columns(path, header)
    rows: list[LabelRow] = []
    problems: list[str] = []
    for number, cells in records:
        if not cells:  # an empty line
            continue
        if len(cells) != len(header):
            problems.append(f"row {number} has {_cells(len(cells))}, the header has {len(header)}: {cells[:3]}")
        elif not cells[file_column].strip():
            problems.append(f"row {number} names no file")
        else:
            label = cells[label_column].strip() or None
            rows.append(LabelRow(number, cells[file_column], label, f"row {number}"))
    _refuse(path, problems)
    return rows, ignored


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with its number; a quoted cell that spans lines is one row, as in a spreadsheet."""
    header_line = text.splitlines()[0]
    delimiter = max(",;\t", key=header_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 0
    try:
        for number, cells in enumerate(reader, start=1):
            yield number, cells
    except csv.Error as error:
        raise UserError(f"{path}: row {number + 1} is not valid CSV: {error}; look for an unmatched quote") from None


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


# JSON lines


def _read_json_lines(path: Path, text: str) -> tuple[list[LabelRow], list[str]]:
    objects = _json_objects(path, text)
    keys = list(dict.fromkeys(key for _, item in objects for key in item))
    _, _, ignored = _find_columns(path, keys)
    rows: list[LabelRow] = []
    problems: list[str] = []
    for number, item in objects:
        try:
            rows.append(_json_row(number, item))
        except ValueError as error:
            problems.append(f"line {number} {error}")
    _refuse(path, problems)
    return rows, ignored


def _json_objects(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    objects: list[tuple[int, dict[str, Any]]] = []
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except json.JSONDecodeError as error:
            problems.append(f"line {number} is not valid JSON: {error.msg} at column {error.colno}")
            continue
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
            problems.append(f"line {number} cannot be read: {error}")
            continue
        if isinstance(item, dict):
            objects.append((number, item))
        else:
            problems.append(f"line {number} is not an object such as {{'file_name': 'a.jpg', 'label': 'cat'}}")
    _refuse(path, problems)
    return objects


def _json_row(number: int, item: dict[str, Any]) -> LabelRow:
    values = {_plain(key): value for key, value in item.items()}
    file = next((values[name] for name in FILE_COLUMNS if name in values), None)
    if not isinstance(file, str) or not file.strip():
        raise ValueError("names no file")
    label = values.get(LABEL_COLUMN)
    if isinstance(label, bool) or not isinstance(label, str | int | None):
        raise ValueError(f"has a label that is neither text, a whole number nor null: {label!r:.60}")
    text = "" if label is None else str(label).strip()
    if len(text) > csv.field_size_limit():
        raise ValueError(f"has a label of {len(text):,} characters, more than a table can hold")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # JSON can spell half a character, which no result file could hold
        raise ValueError(f"has a label that is not valid Unicode: {label!r:.60}") from None
    return LabelRow(number, file, text or None, f"line {number}")


# Both


def _find_columns(path: Path, header: Sequence[str]) -> tuple[int, int, list[str]]:
    """Where the file and the label stand, and the names of the columns that are neither."""
    names = [_plain(name) for name in header]
    file_columns = [index for index, name in enumerate(names) if name in FILE_COLUMNS]
    label_columns = [index for index, name in enumerate(names) if name == LABEL_COLUMN]
    if len(file_columns) != 1 or len(label_columns) != 1:
        raise UserError(
            f"{path}: found the columns {listed([repr(name) for name in header], limit=20) or 'none'}; "
            "expected exactly one named file (or file_name) and exactly one named label"
        )
    used = (file_columns[0], label_columns[0])
    ignored = [repr(name) for index, name in enumerate(header) if index not in used]
    return *used, ignored


def _plain(name: str) -> str:
    return name.strip().lower()


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if problems:
        raise UserError(f"{path}: correct or remove what cannot be read: {listed(problems)}")
