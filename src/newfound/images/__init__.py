"""A folder, read into a table: which images there are, and which of them are labelled with what."""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from newfound.errors import UserError, option
from newfound.images.class_folders import UNLABELLED_FOLDERS, FolderMeaning, means_unsorted, refuse_unclear
from newfound.images.decode import Unreadable, open_with_digest
from newfound.images.labels import LabelFile, LabelRow, listed, read_labels
from newfound.images.matching import match_rows
from newfound.images.scan import Scan, Skipped, check_folder, identities, look_through
from newfound.images.table import UNLABELLED, ImageTable
from newfound.text import counted

__all__ = ["UNLABELLED", "ImageTable", "read_folder"]

LABEL_FILE_NAMES = ("labels.csv", "metadata.csv", "metadata.jsonl")

_PROOF_SIDE = 256  # enough pixels to prove a file readable, and quick for large JPEGs


def read_folder(
    root: Path,
    *,
    labels: Path | None = None,
    folders: FolderMeaning = FolderMeaning(),  # noqa: B008 - it cannot change
    exclude: Collection[Path] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> ImageTable:
    """Find, read and check every image below `root`.

    Without `labels`, each top-level folder is a known class (an empty one too), except `unlabelled` and what
    `folders` says, and loose files are unlabelled. A name such as "misc" is refused unless `folders` says what
    it means. With a labels file, folders mean nothing and files it does not name are
    unlabelled. Whatever cannot be used is listed in `skipped`; paths in `exclude` are left out in silence.

    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ["cat/1.png", "dog/2.png", "unlabelled/3.png"]:
    ...     (root / name).parent.mkdir()
    ...     Image.new("RGB", (8, 8)).save(root / name)
    >>> table = read_folder(root)
    >>> table.files, table.class_names, table.labels.tolist()
    (('cat/1.png', 'dog/2.png', 'unlabelled/3.png'), ('cat', 'dog'), [0, 1, -1])
    """
    root = Path(root)
    check_folder(root)
    label_file = None if labels is None else read_labels(labels)
    scan = look_through(root, left_out=identities(exclude if labels is None else [*exclude, labels]))
    # Before the files are read, which may take long: a wrong labels file should show at once.
    if label_file is None:
        refuse_unclear(root, folders.unclear(scan.top_folders))
        given = _labels_of_folders(scan, folders)
    else:
        given = _labels_of_file(root, label_file, scan)
    digests, unreadable = _read_all(root, scan.files, on_progress)
    skipped = sorted([*scan.skipped, *unreadable], key=lambda item: (item.file, item.reason))
    if not digests:
        raise UserError(_nothing_readable(root, len(scan.files), skipped))
    return _make_table(root, digests, given, skipped)


@dataclass
class _Given:
    """What is known before any file is read: the classes, a label for some files, and remarks about both."""

    class_names: tuple[str, ...]
    label_of: dict[str, str]
    warnings: list[str]
    rows: dict[str, LabelRow] = field(default_factory=dict)  # of a labels file, to name them in warnings


def _make_table(root: Path, digests: Mapping[str, str], given: _Given, skipped: Sequence[Skipped]) -> ImageTable:
    files = tuple(sorted(digests))
    index_of = {name: index for index, name in enumerate(given.class_names)}
    labels = [index_of[given.label_of[file]] if file in given.label_of else UNLABELLED for file in files]
    warnings = [
        *given.warnings,
        *_warn_of_skipped_rows(given.rows, skipped),
        *_warn_of_lookalikes(given.class_names),
        *_warn_of_empty_classes(given.class_names, labels),
        *_warn_of_contradictions(digests, given.label_of),
    ]
    return ImageTable(
        root=root,
        files=files,
        labels=np.array(labels, dtype=np.int64),
        class_names=given.class_names,
        digests=tuple(digests[file] for file in files),
        skipped=tuple(skipped),
        warnings=tuple(warnings),
    )


# Reading the files


def _read_all(
    root: Path, files: Sequence[str], on_progress: Callable[[int, int], None] | None
) -> tuple[dict[str, str], list[Skipped]]:
    """The digest of each readable file, and the others with a reason."""
    digests: dict[str, str] = {}
    unreadable: list[Skipped] = []
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        results = pool.map(lambda file: _read_one(root / file), files)
        for done, (file, result) in enumerate(zip(files, results, strict=True), start=1):
            if isinstance(result, Unreadable):
                unreadable.append(Skipped(file, result.reason))
            else:
                digests[file] = result
            if on_progress is not None:
                on_progress(done, len(files))
    finally:
        pool.shutdown(cancel_futures=True)  # so that Ctrl-C does not wait for every file that is left
    return digests, unreadable


def _read_one(path: Path) -> str | Unreadable:
    try:
        return open_with_digest(path, shorter_side=_PROOF_SIDE)[1]
    except Unreadable as error:
        return error


def _nothing_readable(root: Path, n_files: int, skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return f"{root}: the folder holds no files; put images there (PNG, JPEG, WebP, GIF, BMP or TIFF)"
    reasons = Counter(item.reason.split(":")[0] for item in skipped)  # without the details
    by_count = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    reasons_listed = listed([f"{count:,} × {reason}" for reason, count in by_count])
    return f"{root}: no readable image among {counted(n_files, 'file')}; skipped: {reasons_listed}"


# Labels from folders


def _labels_of_folders(scan: Scan, folders: FolderMeaning) -> _Given:
    classes = {name for name in scan.top_folders if folders.is_class(name)}
    top_folder = {file: file.split("/")[0] for file in scan.files if "/" in file}
    label_of = {file: folder for file, folder in top_folder.items() if folder in classes}
    unused = [name for name in sorted(scan.files) if name.lower() in LABEL_FILE_NAMES]
    warnings = [f"{name} is ignored; to take the labels from it, pass {option('labels', 'PATH')}" for name in unused]
    return _Given(tuple(sorted(classes)), label_of, warnings)


# Labels from a file


def _labels_of_file(root: Path, label_file: LabelFile, scan: Scan) -> _Given:
    reasons = {item.file: item.reason for item in scan.skipped}
    matches = match_rows(label_file, root, [*scan.files, *reasons])
    if not matches.by_file:
        raise UserError(_no_row_matches(root, label_file))
    classes = tuple(sorted({row.label for row in label_file.rows if row.label is not None}))
    warnings = [
        *label_file.warnings,
        *matches.warnings,
        *_warn_of_missing_files(root, matches.missing, reasons),
        *_warn_of_unlabelled_class(classes),
    ]
    label_of = {file: row.label for file, row in matches.by_file.items() if row.label is not None}
    return _Given(classes, label_of, warnings, matches.by_file)


def _no_row_matches(root: Path, label_file: LabelFile) -> str:
    rows = [_shown(row) for row in label_file.rows]
    if not rows:
        return f"{label_file.path}: there is a header but no row; name at least one file of {root}"
    return (
        f"{label_file.path}: no file in {root} is named by its {counted(len(rows), 'row')}: {listed(rows)}; "
        "give paths relative to that folder"
    )


def _shown(row: LabelRow) -> str:
    return f"{row.place} {row.file!r}"


def _reason_of_folder_above(cell: str, reasons: Mapping[str, str]) -> str | None:
    """Why a file was never seen, if it lies in a folder that was skipped as a whole."""
    parts = posixpath.normpath(cell.strip().replace("\\", "/")).split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((reasons[folder] for folder in above if folder in reasons), None)


# Remarks


def _warn_of_missing_files(root: Path, missing: Iterable[LabelRow], reasons: Mapping[str, str]) -> Iterator[str]:
    rows: list[str] = []
    for row in missing:
        reason = _reason_of_folder_above(row.file, reasons)
        rows.append(_shown(row) if reason is None else f"{_shown(row)} ({reason})")
    if rows:
        yield f"label rows whose file is not in {root}; their labels still make known classes: {listed(rows)}"


def _warn_of_skipped_rows(rows: Mapping[str, LabelRow], skipped: Iterable[Skipped]) -> Iterator[str]:
    unused = [f"{_shown(rows[item.file])} ({item.reason})" for item in skipped if item.file in rows]
    if unused:
        yield f"label rows whose file was skipped; their labels still make known classes: {listed(unused)}"


def _warn_of_unlabelled_class(classes: Iterable[str]) -> Iterator[str]:
    for name in classes:
        if name.lower() in UNLABELLED_FOLDERS or means_unsorted(name):
            yield f"the label {name!r} is taken as the name of a class; to mean unlabelled, leave it blank"


def _warn_of_lookalikes(classes: Iterable[str]) -> Iterator[str]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        folded = unicodedata.normalize("NFC", name).casefold()
        alike[unicodedata.normalize("NFC", folded).strip()].append(repr(name))
    pairs = [" and ".join(names) for names in alike.values() if len(names) > 1]
    if pairs:
        yield f"classes that differ only by case, spaces or accents' encoding are kept apart: {listed(pairs)}"


def _warn_of_empty_classes(classes: Sequence[str], labels: Collection[int]) -> Iterator[str]:
    seen = set(labels)
    empty = [repr(name) for index, name in enumerate(classes) if index not in seen]
    if empty:
        yield (
            f"known classes without a readable image: {listed(empty)}; nothing can be recognised as one of them, their "
            "images will be in new classes"
        )


def _warn_of_contradictions(digests: Mapping[str, str], label_of: Mapping[str, str]) -> Iterator[str]:
    """Exact copies under different labels; an unlabelled copy of a labelled image contradicts nothing."""
    first: dict[str, str] = {}
    pairs: list[str] = []
    for file in sorted(label_of.keys() & digests.keys()):
        earlier = first.setdefault(digests[file], file)
        if label_of[earlier] != label_of[file]:
            pairs.append(f"{earlier!r} ({label_of[earlier]!r}) and {file!r} ({label_of[file]!r})")
    if pairs:
        yield f"the same image under two labels: {listed(pairs)}"
