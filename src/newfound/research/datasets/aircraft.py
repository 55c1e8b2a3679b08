"""FGVC-Aircraft, its variants: the official lists and the folder of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.research.datasets.benchmark import Benchmark, check_class_names, split
from newfound.research.datasets.facts import published
from newfound.research.datasets.sources import FileSource, check_files, find, read_lines

LIST = "images_variant_trainval.txt"


def load_aircraft(root: Path) -> Benchmark:
    """From `fgvc-aircraft-2013b`, a folder that holds it, or its folder `data`; training and validation images."""
    facts = published("aircraft")
    places = [root / "data", root / "fgvc-aircraft-2013b" / "data", root]
    data = find(facts, [place / "variants.txt" for place in places]).parent
    variants = read_lines(data / "variants.txt")
    check_class_names(facts, data / "variants.txt", variants)
    files, classes = _read_list(find(facts, [data / LIST]), variants)
    images = find(facts, [data / "images"])
    check_files(facts, images, files)
    return split(facts, files, classes, variants, FileSource(images, files), files)


def _read_list(path: Path, variants: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Lines such as "1025794 707-320"; names of variants may hold spaces."""
    id_of = {name: number for number, name in enumerate(variants)}
    files, classes = [], []
    for line in read_lines(path):
        image, _, variant = line.partition(" ")
        if variant not in id_of:
            raise UserError(f"{path}: {line[:60]!r} does not end in a variant of variants.txt")
        files.append(f"{image}.jpg")
        classes.append(id_of[variant])
    return files, np.array(classes, dtype=np.int64)
