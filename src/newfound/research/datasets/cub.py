"""CUB-200-2011: its four official lists, and its images as unpacked or in a zip archive of class folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.research.datasets.benchmark import Benchmark, check_class_names, get_again, split
from newfound.research.datasets.facts import Facts, published
from newfound.research.datasets.sources import find, read_lines, source_of

FOLDER = "CUB_200_2011"


@dataclass(frozen=True)
class _Images:
    """The training images, in the order of images.txt, by which the published draw counts."""

    ids: list[int]  # official, counted from 1
    files: list[str]
    classes: NDArray[np.int64]


def load_cub(root: Path, *, lists: Path | None = None) -> Benchmark:
    """From the folder `CUB_200_2011` or one that holds it; with `lists`, from a folder or zip of class folders.

    `lists` is a folder with images.txt, image_class_labels.txt, train_test_split.txt and classes.txt. Which images
    are labelled depends on the order of images.txt, which is not that of the file names.
    """
    facts = published("cub")
    if lists is None and root.is_file():
        raise UserError(f"{root}: an archive of images needs --lists, the folder with images.txt of {facts.origin}")
    folders = [lists] if lists is not None else [root / FOLDER, root]
    folder = find(facts, [place / "images.txt" for place in folders]).parent
    images = _read_images(facts, folder)
    source = source_of(_image_root(root), images.files, facts)
    return split(facts, images.files, images.classes, facts.class_names, source, images.ids)


def _image_root(root: Path) -> Path:
    places = [root / FOLDER / "images", root / "images"]
    return next((place for place in places if place.is_dir()), root)


def _read_images(facts: Facts, folder: Path) -> _Images:
    names, labels, parts, classes = (
        _read_rows(find(facts, [folder / name]))
        for name in ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")
    )
    check_class_names(facts, folder / "classes.txt", [classes[number] for number in sorted(classes)])
    for name, rows in (("image_class_labels.txt", labels), ("train_test_split.txt", parts)):
        if rows.keys() != names.keys():
            raise UserError(f"{folder / name}: not the same image ids as in images.txt; {get_again(facts)}")
    ids = [image for image in names if parts[image] == "1"]
    _check_folders(facts, folder, {names[image]: classes.get(int(labels[image]), "?") for image in ids})
    numbers = np.array([int(labels[image]) - 1 for image in ids], dtype=np.int64)
    return _Images(ids, [names[image] for image in ids], numbers)


def _read_rows(path: Path) -> dict[int, str]:
    """Lines of a number and a word, in the order of the file."""
    rows: dict[int, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split()
        if len(cells) != 2 or not cells[0].isdecimal():
            raise UserError(f"{path}, line {number}: a number and a word are expected, not {line[:60]!r}")
        rows[int(cells[0])] = cells[1]
    return rows


def _check_folders(facts: Facts, folder: Path, class_of: dict[str, str]) -> None:
    for file, name in class_of.items():
        if file.split("/")[0] != name:
            raise UserError(f"{folder}: {file!r} is of class {name!r} by the lists; {get_again(facts)}")
