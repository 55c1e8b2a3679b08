"""Stanford Cars: the devkit's annotations and the folder of training images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.research.datasets.benchmark import Benchmark, get_again, split
from newfound.research.datasets.facts import Facts, published
from newfound.research.datasets.matlab import read_matlab
from newfound.research.datasets.sources import FileSource, check_files, find

ANNOTATIONS = "cars_train_annos.mat"


def load_cars(root: Path) -> Benchmark:
    """From a folder with `devkit` and `cars_train`. Class ids follow the devkit, which is not the alphabet."""
    facts = published("cars")
    devkits = [root / "devkit", root / "car_devkit" / "devkit", root]
    files, classes = _read_annotations(facts, find(facts, [devkit / ANNOTATIONS for devkit in devkits]))
    images = find(facts, [root / "cars_train" / "cars_train", root / "cars_train"])  # some copies nest it
    check_files(facts, images, files)
    return split(facts, files, classes, facts.class_names, FileSource(images, files), files)


def _read_annotations(facts: Facts, path: Path) -> tuple[list[str], NDArray[np.int64]]:
    rows = read_matlab(facts, path, "annotations")
    try:
        files = [str(file) for file in np.atleast_1d(rows["fname"])]
        classes = np.atleast_1d(rows["class"]).astype(np.int64) - 1
    except (ValueError, IndexError, TypeError) as error:
        raise UserError(f"{path}: no list of `fname` and `class` ({error}); {get_again(facts)}") from error
    return files, classes
