"""Where an export goes: never over anything that is there, whole or not at all."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from newfound.atomic import write_atomically
from newfound.errors import UserError, at_command_line


def check_free(*paths: Path) -> None:
    """Raise if a file could not be written to one of these places, before any work is done."""
    for path in paths:
        if os.path.lexists(path):
            raise UserError(f"{path} already exists. {remedy()}")
        if not path.parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent}. Create it, or choose another place.")


def remedy() -> str:
    """What to do about a place that is taken; only commands have --overwrite."""
    if at_command_line():
        return "Choose another place, or pass --overwrite to replace what newfound wrote there before."
    return "Move it away, or choose another name."


@contextmanager
def new_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """`write_atomically`, with an error that a person can read."""
    try:
        with write_atomically(path, mode) as file:
            yield file
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> UserError:
    """The same for the user."""
    return UserError(f"{path} cannot be written: {error.strerror or error}")


def need(extra: str, *packages: str) -> None:
    """Raise unless these optional packages can be imported."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise UserError(
                f'this export needs the package {package} ({error}). Install it: pip install "newfound[{extra}]"'
            ) from error
