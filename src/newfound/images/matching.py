"""Which file of a folder each row of a labels file means."""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from newfound.images.labels import LabelFile, LabelRow, listed, merge_repeats


@dataclass(frozen=True)
class MatchedRows:
    """Which row belongs to which file; `missing` are the rows whose file was not found."""

    by_file: dict[str, LabelRow]
    missing: list[LabelRow]
    warnings: list[str]


def match_rows(label_file: LabelFile, root: Path, files: Collection[str]) -> MatchedRows:
    """Find the file that each row names among `files`, which are relative to `root` with forward slashes.

    A cell is taken relative to `root`, then relative to the labels file's own folder if that lies inside; it
    may be an absolute path, begin with "./" or use backslashes. Two spellings of one file count as a repeat.

    >>> rows = (LabelRow(2, "cats\\\\1.jpg", "cat", "row 2"), LabelRow(3, "no.jpg", "dog", "row 3"))
    >>> matches = match_rows(LabelFile(Path("labels.csv"), rows, ()), Path("photos"), ["cats/1.jpg"])
    >>> {file: row.label for file, row in matches.by_file.items()}, [row.place for row in matches.missing]
    ({'cats/1.jpg': 'cat'}, ['row 3'])
    """
    finder = _FileFinder(root, label_file.path, files)
    found: list[tuple[str, LabelRow]] = []
    missing: list[LabelRow] = []
    doubtful: list[str] = []
    for row in label_file.rows:
        candidates = finder.find(row.file)
        if candidates:
            found.append((candidates[0], row))
        else:
            missing.append(row)
        if len(candidates) > 1:
            doubtful.append(f"{row.place} {row.file!r} was taken as {candidates[0]!r}, not {candidates[1]!r}")
    by_file, warnings = merge_repeats(label_file.path, found)
    if doubtful:
        warnings.append(f"{label_file.path}: rows that could mean two files: {listed(doubtful)}")
    return MatchedRows(by_file, missing, warnings)


class _FileFinder:
    """Knows the files of a folder by every spelling that a cell may use."""

    def __init__(self, root: Path, labels_path: Path, files: Collection[str]) -> None:
        self.files = frozenset(files)
        # macOS decomposes accents in file names, most editors do not.
        self.by_composed = {_composed(file): file for file in sorted(files, reverse=True)}
        self.prefixes = [f"{place.as_posix().rstrip('/')}/" for place in _both_paths(root)]
        self.bases = list(dict.fromkeys(["", *_folder_within(root, labels_path.parent)]))

    def find(self, cell: str) -> list[str]:
        """The files that the most literal reading of a cell yields: one or none, rarely two."""
        for text in dict.fromkeys([cell, cell.strip(), cell.strip().replace("\\", "/")]):
            names = list(self._relative(text))
            found = [name for name in names if name in self.files]
            found = found or [self.by_composed[key] for key in map(_composed, names) if key in self.by_composed]
            if found:
                return list(dict.fromkeys(found))
        return []

    def _relative(self, text: str) -> Iterator[str]:
        if os.path.isabs(text):
            path = posixpath.normpath(text)
            yield from (path.removeprefix(prefix) for prefix in self.prefixes if path.startswith(prefix))
        else:
            yield from (posixpath.normpath(posixpath.join(base, text)) for base in self.bases)


def _both_paths(path: Path) -> list[Path]:
    """A path made absolute: as it is spelled, and with symbolic links resolved."""
    return [Path(os.path.abspath(path)), Path(os.path.realpath(path))]


def _folder_within(root: Path, folder: Path) -> Iterator[str]:
    for outer, inner in zip(_both_paths(root), _both_paths(folder), strict=True):
        if inner.is_relative_to(outer):
            name = inner.relative_to(outer).as_posix()
            yield "" if name == "." else name


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)
