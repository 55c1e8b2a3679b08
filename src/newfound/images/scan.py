"""What lies in a folder: the files that may be images, and why the others are left alone."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from newfound.errors import UserError

SYSTEM_FILES = ("thumbs.db", "ehthumbs.db", "desktop.ini")
SYSTEM_FOLDERS = ("__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found")

Identity = tuple[int, int]  # device and inode: the same file under whichever name


@dataclass(frozen=True)
class Skipped:
    """A file or folder that is skipped, and why."""

    file: str
    reason: str


@dataclass
class Scan:
    """What lies below a folder, by names relative to it."""

    files: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    top_folders: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Folder:
    name: str  # relative to the root, "" for the root itself
    ancestors: tuple[Identity, ...]  # of itself and of every folder above it


def check_folder(root: Path) -> None:
    """Raise unless it is a folder that can be read."""
    if not os.path.exists(root):
        raise UserError(f"{root}: there is no such folder; give the folder that holds the images")
    if not os.path.isdir(root):
        raise UserError(f"{root}: this is a file; give the folder that holds the images")
    try:
        os.listdir(root)
    except OSError as error:
        raise UserError(f"{root}: the folder cannot be read: {error.strerror}") from error


def identities(paths: Iterable[Path]) -> set[Identity]:
    """Paths that do not exist (yet) have none."""
    return {_identity(os.stat(path)) for path in paths if os.path.exists(path)}


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def look_through(root: Path, left_out: set[Identity]) -> Scan:
    """Every file below `root`, links followed, but for what is hidden, the system's or newfound's own."""
    scan = Scan()
    waiting = [_Folder("", (_identity(os.stat(root)),))]
    while waiting:  # a list instead of recursion: folders may nest deeper than Python's stack
        folder = waiting.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder.name)))
        except OSError as error:
            scan.skipped.append(Skipped(folder.name, why_not(error)))
            continue
        for name in names:
            inner = _enter(root, folder, name, left_out, scan)
            if inner is not None:
                waiting.append(inner)
    return scan


def _enter(root: Path, folder: _Folder, name: str, left_out: set[Identity], scan: Scan) -> _Folder | None:
    """Note one entry of a folder in `scan`; return it if it is a folder to look into."""
    file = f"{folder.name}/{name}" if folder.name else name
    try:
        status = os.stat(os.path.join(root, file))
    except OSError as error:
        scan.skipped.append(Skipped(file, why_not(error)))
        return None
    identity = _identity(status)
    if identity in left_out:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    if is_folder:
        reason = _folder_unwanted(name, identity, folder.ancestors) or _folder_of_ours(root / file)
    else:
        reason = _file_unwanted(name, status)
    if reason is not None:
        scan.skipped.append(Skipped(file, reason))
        return None
    if not is_folder:
        scan.files.append(file)
        return None
    if not folder.name:
        scan.top_folders.append(name)
    return _Folder(file, (*folder.ancestors, identity))


def _folder_unwanted(name: str, identity: Identity, ancestors: tuple[Identity, ...]) -> str | None:
    if identity in ancestors:
        return "symbolic link loop"
    if name.startswith("."):
        return "hidden folder"
    return "system folder" if name.lower() in SYSTEM_FOLDERS else None


def _folder_of_ours(folder: Path) -> str | None:
    """What newfound itself writes must not become a class when it lies among the images."""
    if os.path.isfile(folder / "CACHEDIR.TAG"):
        return "cache folder"
    is_run = os.path.isfile(folder / "config.toml") and os.path.isdir(folder / "checkpoint")
    return "a newfound run" if is_run else None


def _file_unwanted(name: str, status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if name.startswith("."):
        return "hidden file"
    return "system file" if name.lower() in SYSTEM_FILES else None


def why_not(error: OSError) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, FileNotFoundError):
        return "broken symbolic link"
    if isinstance(error, PermissionError):
        return "no permission to read"
    if error.errno == errno.ELOOP:
        return "symbolic link loop"
    return error.strerror or type(error).__name__


# What a person names


def find_files(asked: Sequence[Path | str]) -> tuple[list[str], list[Skipped]]:
    """Files, what lies below folders, and what patterns such as ``new/*.jpg`` match: each once, in the order asked for.

    Below folders, whatever `read_folder` would leave out without opening it is listed as skipped.
    """
    files: list[str] = []
    skipped: list[Skipped] = []
    for item in asked:
        for path in _matching(os.fspath(item)):
            if not os.path.isdir(path):
                files.append(path)
                continue
            check_folder(Path(path))
            scan = look_through(Path(path), left_out=set())
            files += [os.path.join(path, file) for file in sorted(scan.files)]
            skipped += [Skipped(os.path.join(path, entry.file), entry.reason) for entry in scan.skipped]
    return list(dict.fromkeys(files)), skipped


def _matching(text: str) -> list[str]:
    """The path itself or, if there is none of that name, what it matches as a pattern."""
    if os.path.lexists(text):
        return [text]
    found = sorted(glob.glob(text, recursive=True)) if glob.has_magic(text) else []
    if not found:
        what = "nothing matches this pattern" if glob.has_magic(text) else "there is no such file or folder"
        raise UserError(f"{text}: {what}")
    return found
