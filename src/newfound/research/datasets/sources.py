"""Where pixels come from: files of a folder, members of a zip archive, or an array. Read in place, never unpacked."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from newfound.errors import UserError
from newfound.images.decode import Unreadable, decode_image, open_with_digest
from newfound.images.labels import listed
from newfound.images.scan import SYSTEM_FOLDERS
from newfound.research.datasets.facts import Facts

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")


class Source(Protocol):
    """Images by position."""

    def open_with_digest(self, position: int, shorter_side: int | None) -> tuple[Image.Image, str]:
        """As RGB, upright, and the SHA-256 of its content, which is read once."""

    def digest(self, position: int) -> str:
        """SHA-256 of the content."""


class FileSource:
    """Files of a folder."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self._root, self._files = root, files

    def open_with_digest(self, position: int, shorter_side: int | None) -> tuple[Image.Image, str]:
        path = self._root / self._files[position]
        try:
            return open_with_digest(path, shorter_side)
        except Unreadable as error:
            raise UserError(f"{path}: {error.reason}") from error

    def digest(self, position: int) -> str:
        path = self._root / self._files[position]
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from error


class ZipSource:
    """Members of a zip archive. Threads take turns to read bytes, and decode them at the same time."""

    def __init__(self, archive: Path, members: Sequence[str]) -> None:
        self._path, self._members = archive, members
        self._zip = open_zip(archive)
        self._turn = threading.Lock()  # ZipFile counts its readers without one, and may close itself too early

    def open_with_digest(self, position: int, shorter_side: int | None) -> tuple[Image.Image, str]:
        content = self._read(position)
        try:
            return decode_image(io.BytesIO(content), shorter_side), hashlib.sha256(content).hexdigest()
        except Unreadable as error:
            raise UserError(f"{self._path}, {self._members[position]}: {error.reason}") from error

    def digest(self, position: int) -> str:
        return hashlib.sha256(self._read(position)).hexdigest()

    def _read(self, position: int) -> bytes:
        member = self._members[position]
        try:
            with self._turn:
                return self._zip.read(member)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
            raise UserError(f"{self._path}: {member} cannot be read: {error}") from error


class PixelSource:
    """An array, for data sets that come without a file per image."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self._pixels = pixels  # images, height, width, 3

    def open_with_digest(self, position: int, shorter_side: int | None) -> tuple[Image.Image, str]:
        return Image.fromarray(np.ascontiguousarray(self._pixels[position])), self.digest(position)

    def digest(self, position: int) -> str:
        return hashlib.sha256(self._pixels[position].tobytes()).hexdigest()


def open_zip(archive: Path) -> zipfile.ZipFile:
    """Refuse in words what is no zip archive."""
    try:
        return zipfile.ZipFile(archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{archive}: this is neither a folder nor a zip archive ({error}); unpack it first") from error


def source_of(root: Path, names: Sequence[str], facts: Facts) -> Source:
    """The images called `names` ("class/file") in a folder or zip archive, which must hold all of them."""
    if root.is_dir():
        check_present(facts, root, names, [name for name, _ in class_files(root)])
        return FileSource(root, names)
    members = dict(class_files(root))
    check_present(facts, root, names, members)
    return ZipSource(root, [members[name] for name in names])


def class_files(root: Path, only: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Every image of a folder or zip archive of class folders: "class/file" and where it is, from `root`.

    Sorted by class, then by file, both by code point. What lies outside class folders, or deeper, is no image.
    `only` names the classes to look into.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ["b/2.jpg", "b/1.JPEG", "a-c/3.png", "a/4.png", "a/notes.txt"]:
    ...     (root / name).parent.mkdir(exist_ok=True)
    ...     (root / name).touch()
    >>> [name for name, _ in class_files(root)]
    ['a/4.png', 'a-c/3.png', 'b/1.JPEG', 'b/2.jpg']
    """
    found = _in_folder(root, only) if root.is_dir() else _in_zip(root)
    if only is not None:
        wanted = set(only)
        found = [item for item in found if item[0].split("/")[0] in wanted]
    return sorted(found, key=lambda item: item[0].split("/"))  # as "a/4" comes after "a-c/3", but "a" before "a-c"


def class_folders(root: Path) -> list[str]:
    """The names of the folders in a folder, sorted by code point; hidden and system ones left out."""
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if _is_wanted(entry.name) and entry.is_dir())


def check_present(facts: Facts, root: Path, wanted: Iterable[str], found: Iterable[str]) -> None:
    """Name the images that are missing, now and not in the middle of a run."""
    present = set(found)
    missing = [name for name in wanted if name not in present]
    if missing:
        raise UserError(
            f"{root}: {len(missing):,} images of {facts.name} are not there: {listed(missing)}; "
            f"they are part of {facts.origin}"
        )


def check_files(facts: Facts, folder: Path, files: Iterable[str]) -> None:
    """Like `check_present`, for one folder that holds all files."""
    try:
        present = os.listdir(folder)
    except OSError as error:
        raise UserError(f"{folder}: the folder cannot be read: {error.strerror}") from error
    check_present(facts, folder, files, present)


def read_lines(path: Path) -> list[str]:
    """The lines of an owner's list that are not blank."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def find(facts: Facts, places: Sequence[Path], what: str | None = None) -> Path:
    """The first of several places that exists; else say what is missing, whose it is, and where it was sought."""
    for place in places:
        if os.path.exists(place):
            return place
    looked = ", ".join(str(place) for place in places)
    raise UserError(
        f"{facts.name}: {what or places[0].name} is missing; it is part of {facts.origin}; looked for {looked}"
    )


def _in_folder(root: Path, only: Collection[str] | None) -> list[tuple[str, str]]:
    folders = class_folders(root) if only is None else only
    names = [f"{folder}/{file}" for folder in folders for file in os.listdir(root / folder)]
    return [(name, name) for name in names if _is_image(name)]


def _in_zip(archive: Path) -> list[tuple[str, str]]:
    with open_zip(archive) as content:
        members = [name for name in content.namelist() if name.count("/") >= 1 and _is_image(name)]
    members = [name for name in members if all(_is_wanted(part) for part in name.split("/"))]
    around = {tuple(name.split("/")[:-2]) for name in members}  # there may be a folder around all classes
    if len(around) > 1:
        raise UserError(f"{archive}: class folders in several places: {listed(sorted(map('/'.join, around)))}")
    return [("/".join(name.split("/")[-2:]), name) for name in members]


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_ENDINGS) and _is_wanted(name.rpartition("/")[2])


def _is_wanted(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in SYSTEM_FOLDERS
