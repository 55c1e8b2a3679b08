"""The question whether a folder such as "misc" is a known class: asked in a terminal, before anything is read."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from newfound.screen import Screen, shown

if TYPE_CHECKING:
    from newfound.images.class_folders import FolderMeaning


def asked_about(
    folder: Path, meaning: FolderMeaning, screen: Screen, ask: Callable[[str], str] | None = None
) -> FolderMeaning:
    """What each folder is whose name leaves it open, as the user answers; unchanged where nobody can be asked."""
    ask = ask or (input if _somebody_is_there() else None)
    if ask is None or not folder.is_dir():
        return meaning
    names = (item.name for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))
    for name in meaning.unclear(names):
        if _holds_images_to_sort(name, ask):
            meaning, option = replace(meaning, unlabelled=(*meaning.unlabelled, name)), "--unlabelled"
        else:
            meaning, option = replace(meaning, known=(*meaning.known, name)), "--known"
        screen.say(f"To skip this question next time: {option} {shlex.quote(name)}")
    return meaning


def _holds_images_to_sort(name: str, ask: Callable[[str], str]) -> bool:
    """Return takes yes; what is neither yes nor no is asked again."""
    while True:
        try:
            answer = ask(f"Does the folder {shown(name)!r} hold images to sort? (no: it is a known class) [Y/n] ")
        except EOFError:
            raise KeyboardInterrupt from None
        if (word := answer.strip().lower()) in ("", "y", "yes", "n", "no"):
            return word in ("", "y", "yes")


def _somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() and "RANK" not in os.environ
