"""A folder per class, with copies of the images or links to them. Originals are only ever read."""

from __future__ import annotations

import os
import re
import shutil
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from newfound.atomic import write_csv
from newfound.errors import UserError, as_path, option
from newfound.export.outputs import cannot_write, remedy
from newfound.export.reviewed_run import (
    class_name,
    classes_with_images,
    distinct,
    exported_classes,
    given_name,
    human_class,
    own_names_first,
    plain,
    read_decided,
    rejected_from,
)
from newfound.images.scan import Skipped, why_not
from newfound.runs.review_state import Reviewed
from newfound.screen import Screen, megabytes
from newfound.text import counted

LONGEST = 120  # bytes of a folder's name: systems take 255, but some only 260 for a whole path
FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)\s*(\.|$)", re.IGNORECASE)
DISK_MARGIN = 64_000_000
INDEX_FILES = ("classes.csv", "files.csv", "missing.csv")  # of the export itself


@dataclass(frozen=True)
class FoldersExport:
    """What was written, and which images could not be found."""

    folder: Path
    names: dict[str, str]  # of a folder: the class
    files: int
    missing: tuple[Skipped, ...]


@dataclass(frozen=True)
class _Item:
    image: int
    source: Path
    target: str  # relative to the export


def export_folders(
    run: Path | str, out: Path | str, *, link: bool = False, screen: Screen | None = None
) -> FoldersExport:
    """Copy each image to OUT/CLASS/FILE, or with ``link`` put a symbolic link there.

    classes.csv and files.csv in ``out`` say which folder is which class and where each file came from; they are
    written last, so an export without them was stopped halfway.
    """
    screen, out = screen or Screen(quiet=True), as_path("out", out)
    reviewed = read_decided(run)
    root = reviewed.results.root
    _check_place(out, root, Path(run))
    names = folder_names(reviewed)
    items, missing, size = _found(reviewed, root, names)
    if not items:
        raise UserError(f"no image of the run is still in {root} ({missing[0].reason})")
    if not link:
        _check_disk(out, size)
    _place(items, out, link, screen)
    _write_index(out, reviewed, names, items, missing)
    _tell(out, reviewed, names, items, missing, link, screen)
    return FoldersExport(
        out, {folder: class_name(reviewed, k) for k, folder in names.items()}, len(items), tuple(missing)
    )


# Names


def folder_names(reviewed: Reviewed) -> dict[int, str]:
    """A folder for each class that images are exported as, `NOT_A_CLASS` and `REJECTED` among them."""
    numbers = classes_with_images(reviewed)
    return dict(zip(numbers, safe_names([class_name(reviewed, k) for k in numbers]), strict=True))


def safe_names(names: Sequence[str]) -> list[str]:
    """Names that a folder can have on any system, all different even where case and accents' encoding do not count.

    >>> safe_names(["cat", "Cat", "a/b", "..", "nul", ""])
    ['cat', 'Cat-2', 'a_b', '_', '_nul', 'class']
    """
    return own_names_first(names, [_safe_name(name) for name in names], alike)


def _safe_name(name: str) -> str:
    text = unicodedata.normalize("NFC", plain(name))
    text = FORBIDDEN.sub("_", "".join(c if c.isprintable() else "_" for c in text))
    text = text.encode("utf-8")[:LONGEST].decode("utf-8", "ignore")
    text = re.sub(r"^[.\s]+", "_", text.strip()) if text.strip() else "class"  # a leading dot would hide it
    text = text.rstrip(". ") or "_"  # Windows drops these at the end
    return f"_{text}" if RESERVED.match(text) or text.lower() in INDEX_FILES else text


def alike(name: str) -> str:
    """The same for names that some file systems take for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def _numbered_file(name: str, number: int) -> str:
    stem, extension = os.path.splitext(name)
    return f"{stem}-{number}{extension}"


# Before anything is written


def _check_place(out: Path, root: Path, run: Path) -> None:
    try:
        taken = os.path.lexists(out) and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise cannot_write(out, error) from error
    if taken:
        raise UserError(f"{out} already exists and is not an empty folder. {remedy()}")
    place = out.resolve()
    if place.is_relative_to(root.resolve()) and not place.is_relative_to(run.resolve()):
        raise UserError(f"{out} is inside the images' folder, where it would be read as more images. Choose another.")


def _found(reviewed: Reviewed, root: Path, names: dict[int, str]) -> tuple[list[_Item], list[Skipped], int]:
    """The images that are still there with their places, the others, and how many bytes they are."""
    items: list[_Item] = []
    missing: list[Skipped] = []
    size, classes = 0, exported_classes(reviewed)
    for number, folder in names.items():
        members = np.flatnonzero(classes == number)
        files = [reviewed.results.files[i] for i in members]
        own = distinct((file.rsplit("/", 1)[-1] for file in files), alike, _numbered_file)
        for i, file, name in zip(members, files, own, strict=True):
            found = _size_of(root / file)
            if isinstance(found, str):
                missing.append(Skipped(file, found))
            else:
                items.append(_Item(int(i), root / file, f"{folder}/{name}"))
                size += found
    return items, missing, size


def _size_of(path: Path) -> int | str:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # to open a FIFO would wait for a writer for ever
            return "not a regular file"
        open(path, "rb").close()
        return status.st_size
    except (FileNotFoundError, NotADirectoryError):
        return "no longer there"
    except OSError as error:
        return why_not(error)


def _check_disk(out: Path, needed: int) -> None:
    there = next(place for place in [out, *out.resolve().parents] if place.is_dir())
    free = shutil.disk_usage(there).free
    if needed + DISK_MARGIN > free:
        raise UserError(
            f"the copies take {megabytes(needed)}, and {there} has {megabytes(free)} free. "
            f"Choose another place, or links with {option('link', True)}."
        )


# Writing


def _place(items: Sequence[_Item], out: Path, link: bool, screen: Screen) -> None:
    place = _link if link else _copy
    with screen.track("linking" if link else "copying", len(items)) as progress:
        for done, item in enumerate(items, start=1):
            target = out / item.target
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                place(item.source, target)
            except OSError as error:
                raise _stopped(item.source, target, out, error, link) from error
            progress.update(done)


def _stopped(source: Path, target: Path, out: Path, error: OSError, link: bool) -> UserError:
    what, hint = ("linked", f" Without {option('link', True)}, copies are made.") if link else ("copied", "")
    reason = error.strerror or error
    return UserError(f"{source} cannot be {what} to {target}: {reason}. What was written before is in {out}.{hint}")


def _copy(source: Path, target: Path) -> None:
    """Content and modification time; under another name at first, so that a kill leaves no half of a picture."""
    part = target.parent.parent / ".part"
    try:
        shutil.copyfile(source, part)
        status = os.stat(source)
        with suppress(OSError):  # not every file system keeps times
            os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _link(source: Path, target: Path) -> None:
    os.symlink(os.path.abspath(source), target)


def _write_index(
    out: Path, reviewed: Reviewed, names: dict[int, str], items: Sequence[_Item], missing: Sequence[Skipped]
) -> None:
    classes = exported_classes(reviewed)
    sizes = Counter(int(classes[item.image]) for item in items)
    marks = reviewed.results.marks
    true = ["true"] * len(marks)
    if missing:
        _write(out / "missing.csv", ["file", "reason"], ([item.file, item.reason] for item in missing))
    files = reviewed.results.files
    _write(
        out / "files.csv",
        ["copy", "file", "class", "given_label", "rejected_from", *marks],
        (
            [item.target, files[item.image], class_name(reviewed, int(classes[item.image])),
             given_name(reviewed, item.image) or "", rejected_from(reviewed, item.image) or "", *true]
            for item in items
        ),
    )  # fmt: skip
    _write(
        out / "classes.csv",
        ["folder", "class", "kind", "files", *marks],
        ([folder, class_name(reviewed, k), _kind(reviewed, k), sizes[k], *true] for k, folder in names.items()),
    )


def _kind(reviewed: Reviewed, number: int) -> str:
    return "" if number not in reviewed.names else "known" if number in reviewed.known else "new"


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    try:
        write_csv(path, header, rows)
    except OSError as error:
        raise cannot_write(path, error) from error


def _tell(
    out: Path,
    reviewed: Reviewed,
    names: dict[int, str],
    items: Sequence[_Item],
    missing: Sequence[Skipped],
    link: bool,
    screen: Screen,
) -> None:
    what = counted(len(items), "link") if link else counted(len(items), "copy", "copies")
    screen.say(f"{what} in {counted(len(names), 'folder')}: {out} (classes.csv, files.csv)")
    if missing:
        screen.warn(
            f"left out: {counted(len(missing), 'image')}, such as {missing[0].file} ({missing[0].reason}): missing.csv"
        )
    labelled = ((item.image, human_class(reviewed, item.image)) for item in items)
    classes = exported_classes(reviewed)
    elsewhere = sum(number is not None and number != classes[i] for i, number in labelled)
    if elsewhere:
        screen.warn(f"{counted(elsewhere, 'image')} with a given label in another folder, as the model predicts")
