"""Oxford Flowers-102. There is no published split for category discovery: the first 51 class ids are taken as known."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.research.datasets.benchmark import Benchmark, split
from newfound.research.datasets.facts import Facts, published
from newfound.research.datasets.matlab import read_matlab
from newfound.research.datasets.sources import FileSource, check_files, class_files, find, source_of

CLASSES = 102
_FOLDER = re.compile(r"(\d{1,3})(?:\D.*)?")


def load_flowers(root: Path) -> Benchmark:
    """From the owner's `jpg`, `imagelabels.mat` and `setid.mat`, or from a folder or zip archive of class folders.

    Class folders begin with the class id, as in `001.pink_primrose` or `1`, and hold the training and validation
    images under their own names. Native order is by class id, then by file name, so that both forms give one split.
    """
    facts = published("flowers")
    if root.is_dir() and (root / "imagelabels.mat").exists():
        return _from_owner(facts, root)
    found = [name for name, _ in class_files(root)]
    folders = sorted({name.split("/")[0] for name in found}, key=lambda folder: _class_id(root, folder))
    if len(folders) != CLASSES:
        raise UserError(
            f"flowers: imagelabels.mat is missing, or {CLASSES} class folders, of which there are {len(folders)}; "
            f"they are part of {facts.origin}; looked in {root}"
        )
    return _from_class_folders(facts, root, found, folders)


def _from_class_folders(facts: Facts, root: Path, found: list[str], folders: list[str]) -> Benchmark:
    number_of = {folder: _class_id(root, folder) for folder in folders}
    files = sorted(found, key=lambda name: (number_of[name.split("/")[0]], name.split("/")[1]))
    classes = np.array([number_of[name.split("/")[0]] - 1 for name in files], dtype=np.int64)
    base_names = [name.split("/")[1] for name in files]
    return split(facts, files, classes, folders, source_of(root, files, facts), base_names)


def _class_id(root: Path, folder: str) -> int:
    match = _FOLDER.fullmatch(folder)
    if match is None or not 1 <= int(match[1]) <= CLASSES:
        raise UserError(f"{root}: the folder {folder!r} does not begin with a class id from 1 to {CLASSES}")
    return int(match[1])


def _from_owner(facts: Facts, root: Path) -> Benchmark:
    """Images are numbered from 1 in file names and in setid.mat; labels are in the order of those numbers."""
    labels = np.atleast_1d(read_matlab(facts, root / "imagelabels.mat", "labels")).astype(np.int64)  # images
    numbers = _training_numbers(facts, find(facts, [root / "setid.mat"]))
    if not (numbers.min() > 0 and numbers.max() <= len(labels)):
        raise UserError(f"{root}: setid.mat numbers images that imagelabels.mat does not have")
    numbers = numbers[np.lexsort((numbers, labels[numbers - 1]))]  # by class, then by number
    files = [f"image_{number:05d}.jpg" for number in numbers.tolist()]
    images = find(facts, [root / "jpg"])
    check_files(facts, images, files)
    class_names = [str(number) for number in range(1, CLASSES + 1)]
    return split(facts, files, labels[numbers - 1] - 1, class_names, FileSource(images, files), files)


def _training_numbers(facts: Facts, path: Path) -> NDArray[np.int64]:
    parts = [np.atleast_1d(read_matlab(facts, path, variable)) for variable in ("trnid", "valid")]
    return np.concatenate(parts).astype(np.int64)
