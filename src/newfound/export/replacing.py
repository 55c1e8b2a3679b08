"""--overwrite: what an earlier command wrote makes room for the same thing again, and nothing else does.

A file or folder is only replaced if it is recognised as newfound's own. Until the new one is written it stays beside it
under another name; if that fails, it comes back.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from newfound.atomic import load_json
from newfound.errors import UserError
from newfound.export.folders import INDEX_FILES
from newfound.export.label_studio import CONFIG
from newfound.export.label_tables import HEADER as LABELS
from newfound.export.outputs import cannot_write
from newfound.export.workbook import wrote_workbook
from newfound.runs.labelling import HEADER

Check = Callable[[Path], str]  # what speaks against newfound having written what lies there; "" if nothing does


@contextmanager
def replaced(places: Mapping[Path, Check]) -> Iterator[None]:
    """While new ones are written, set aside what lies at these places; raise if newfound did not write it."""
    there = {path: check for path, check in places.items() if os.path.lexists(path)}
    for path, check in there.items():
        if why := "it is a link" if path.is_symlink() else check(path):
            raise UserError(f"--overwrite leaves {path} alone: {why}. Move it away, or choose another name.")
    with ExitStack() as stack:
        for path in there:
            stack.enter_context(_set_aside(path))
        yield


@contextmanager
def _set_aside(path: Path) -> Iterator[None]:
    try:
        aside = Path(tempfile.mkdtemp(prefix=f"{path.name}.replaced-", dir=path.parent))
        path.rename(aside / path.name)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    except BaseException:
        if os.path.lexists(path):  # a part of the new one
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (aside / path.name).rename(path)
        aside.rmdir()
        raise
    shutil.rmtree(aside)


# What newfound writes


def is_predictions(path: Path) -> str:
    """Of newfound predict."""
    return _is_table(path, HEADER)


def is_skipped(path: Path) -> str:
    """The list beside it."""
    return _is_table(path, ("file", "reason"))


def is_label_table(path: Path) -> str:
    """The final labels as CSV."""
    return _is_table(path, LABELS)


def is_workbook(path: Path) -> str:
    """The same as a workbook; a spreadsheet program that saves it adds parts of its own."""
    return "" if wrote_workbook(path) else "it is not a workbook as newfound exports it, or has been saved since"


def is_onnx(path: Path) -> str:
    """The model."""
    return "" if _holds(path, b"newfound_version") else "it is not a model that newfound exported"


def is_parquet(path: Path) -> str:
    """The table."""
    return "" if _holds(path, b"PAR1") and _holds(path, b"newfound") else "it is not a table that newfound exported"


def is_tasks(path: Path) -> str:
    """Of Label Studio, as newfound writes them; Label Studio itself adds what people did there."""
    other = "it is not a list of tasks as newfound exports it, or has been through Label Studio"
    if not path.is_file():
        return other
    try:
        tasks = load_json(path)
        ours = all(
            task.keys() <= {"data", "predictions", "annotations"} and "verdict" in task["data"] for task in tasks
        )
    except (ValueError, TypeError, AttributeError, KeyError):
        return other
    return "" if isinstance(tasks, list) and ours else other


def is_labelling_setup(path: Path) -> str:
    """Beside the tasks."""
    start = CONFIG.partition("{choices}")[0].encode()
    return "" if _holds(path, start) else "it is not a labelling setup that newfound exported"


def is_class_folders(path: Path) -> str:
    """A folder per class; whatever else lies in it speaks against it."""
    if not path.is_dir() or (any(path.iterdir()) and _is_table(path / "files.csv", ("copy", "file", "class"))):
        return "it is not a folder that newfound exported, or the export was stopped halfway"
    known = {*INDEX_FILES, *_copies(path / "files.csv")}
    for folder, folders, files in os.walk(path):
        linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*files, *linked]:
            file = Path(folder, name).relative_to(path).as_posix()
            if file not in known:
                return f"it holds {file}, which the export did not write"
    return ""


def _copies(listed: Path) -> set[str]:
    if not listed.is_file():
        return set()
    with open(listed, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return {row["copy"] for row in csv.DictReader(file)}


def _is_table(path: Path, columns: tuple[str, ...]) -> str:
    other = f"it is not a table with the columns {', '.join(columns[:3])}"
    if not path.is_file():
        return other
    with open(path, "rb") as file:
        start = file.readline(1000).decode("utf-8", "replace").rstrip("\r\n").split(",")
    return "" if tuple(start[: len(columns)]) == columns else other


def _holds(path: Path, mark: bytes) -> bool:
    return path.is_file() and mark in path.read_bytes()
