"""What the folders at the top mean: a known class each, or images that are to be sorted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from newfound.errors import UserError, at_command_line, option
from newfound.images.labels import listed

UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")
# Without spaces and punctuation; the last two are folders that an export of newfound itself writes
_UNSORTED = """
    unsorted notsorted notyetsorted tosort tobesorted sortme unlabelledimages unlabeledimages notlabelled notlabeled
    tolabel nolabel nolabels untagged uncategorised uncategorized unclassified unassigned unknown unknowns unidentified
    unsure misc miscellaneous other others rest remaining various todo tbd pending queue inbox incoming new newimages
    newphotos newfolder untitled untitledfolder temp tmp dump rejected notaclass
"""
USUALLY_UNSORTED = frozenset(_UNSORTED.split())


@dataclass(frozen=True)
class FolderMeaning:
    """What folders at the top are, where the user says so; others are judged by their names."""

    unlabelled: tuple[str, ...] = ()  # hold images to sort
    known: tuple[str, ...] = ()  # are known classes

    def over(self, earlier: FolderMeaning) -> FolderMeaning:
        """Both, where the earlier one counts for folders that this one does not name."""
        named = {*self.unlabelled, *self.known}
        return FolderMeaning(
            (*self.unlabelled, *(name for name in earlier.unlabelled if name not in named)),
            (*self.known, *(name for name in earlier.known if name not in named)),
        )

    def is_class(self, folder: str) -> bool:
        """Is it a known class, by what the user says or by its name?"""
        if folder in self.known:
            return True
        return folder not in self.unlabelled and folder.strip().lower() not in UNLABELLED_FOLDERS

    def unclear(self, folders: Iterable[str]) -> list[str]:
        """Those whose names usually mean images that are not sorted yet, and that the user has not named."""
        named = {*self.unlabelled, *self.known}
        return sorted(name for name in folders if self.is_class(name) and name not in named and means_unsorted(name))


def folder_meaning(
    root: Path, unlabelled: str | Iterable[str], known: str | Iterable[str], labels: Path | None = None
) -> FolderMeaning:
    """What the user names, one folder or several of each kind; raises if it cannot be meant."""
    names = [(given,) if isinstance(given, str) else tuple(given) for given in (unlabelled, known)]
    if both := set(names[0]) & set(names[1]):
        raise UserError(f"the folder {min(both)!r} is named as both unlabelled and known: choose one")
    for keyword, given in zip(("unlabelled", "known"), names, strict=True):
        if given and labels is not None:
            both_ways = f"{option(keyword, given[0])} is for class folders, and {option('labels', labels)}"
            raise UserError(f"{both_ways} already says what is labelled: use one of the two")
        if root.is_dir() and (missing := [name for name in given if not (root / name).is_dir()]):
            there = listed([repr(item.name) for item in sorted(root.iterdir()) if item.is_dir()]) or "none"
            raise UserError(f"{option(keyword, missing[0])}: {root} has no such folder; its folders: {there}")
    return FolderMeaning(*names)


def means_unsorted(name: str) -> bool:
    """Does a name usually mean that nobody has looked at these images yet?

    >>> means_unsorted("To sort"), means_unsorted("MISC"), means_unsorted("_rejected"), means_unsorted("new-1")
    (True, True, True, False)
    """
    return re.sub(r"[\W_]+", "", name.casefold()) in USUALLY_UNSORTED


def refuse_unclear(root: Path, unclear: Collection[str]) -> None:
    """Raise if there are any: taken for a class, they would spoil what is learnt."""
    if not unclear:
        return
    names, one = sorted(unclear), len(unclear) == 1
    to_sort, known = (_named(keyword, names) for keyword in ("unlabelled", "known"))
    raise UserError(
        f"{root}: the {'folder' if one else 'folders'} {listed([repr(name) for name in names])} may hold images to "
        f"sort, or be {'a known class' if one else 'known classes'}. Pass {to_sort} for images to sort, or {known} for "
        f"{'a class' if one else 'classes'}"
    )


def _named(keyword: str, folders: list[str]) -> str:
    """The folders as an option, or as a keyword, whichever the reader uses."""
    if at_command_line():
        return f"{option(keyword)} {' '.join(map(shlex.quote, folders))}"
    return option(keyword, folders[0] if len(folders) == 1 else folders)
