"""Data sets as their owners lay them out, with the true labels in the true order, and images that are empty."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.io import savemat

from newfound.research.datasets.facts import published


def golden_classes(split) -> np.ndarray:
    """The official class of each training image, in native order, from a stored split."""
    order = np.concatenate([split["known_classes"], split["novel_classes_in_order"]])
    positions = np.concatenate([split["labelled_positions"], split["unlabelled_positions"]])
    targets = np.concatenate([split["labelled_targets_remapped"], split["unlabelled_targets_remapped"]])
    classes = np.empty(len(positions), dtype=np.int64)
    classes[positions] = order[targets]
    return classes


def golden_targets(split) -> np.ndarray:
    targets = np.empty(len(golden_classes(split)), dtype=np.int64)
    targets[split["labelled_positions"]] = split["labelled_targets_remapped"]
    targets[split["unlabelled_positions"]] = split["unlabelled_targets_remapped"]
    return targets


def touch(root: Path, names: Iterable[str]) -> Path:
    for folder in {(root / name).parent for name in names}:
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        os.close(os.open(f"{root}/{name}", os.O_CREAT))  # thousands: a Path's `touch` takes three times as long
    return root


def empty_zip(path: Path, names: Iterable[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return path


# CUB


def cub_rows(golden: Path) -> list[tuple[int, str, int, int]]:
    """Image id, file, class id from 1, and whether it is a training image. File names are made up."""
    lists = np.load(golden / "cub_lists.npz")
    classes = lists["class_ids"].tolist()
    is_train = np.unpackbits(lists["is_train"], count=len(classes)).tolist()
    names = published("cub").class_names
    return [
        (number, f"{names[label - 1]}/{number:05d}.jpg", label, train)
        for number, (label, train) in enumerate(zip(classes, is_train, strict=True), start=1)
    ]


def write_cub_lists(folder: Path, rows: Sequence[tuple[int, str, int, int]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for column, name in enumerate(["images.txt", "image_class_labels.txt", "train_test_split.txt"], start=1):
        (folder / name).write_text("".join(f"{row[0]} {row[column]}\n" for row in rows))
    names = published("cub").class_names
    (folder / "classes.txt").write_text("".join(f"{number} {name}\n" for number, name in enumerate(names, start=1)))
    return folder


# Stanford Cars


def write_cars(root: Path, classes: Sequence[int], names: Sequence[str] | None = None) -> Path:
    files = names or [f"{number:05d}.jpg" for number in range(1, len(classes) + 1)]
    kinds = [("bbox_x1", object), ("class", object), ("fname", object)]
    rows = np.array([[(1, int(label) + 1, file) for label, file in zip(classes, files, strict=True)]], dtype=kinds)
    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit" / "cars_train_annos.mat", {"annotations": rows})
    touch(root / "cars_train", files)
    return root


# FGVC-Aircraft


def write_aircraft(root: Path, variants: Sequence[str], classes: Sequence[int]) -> Path:
    data = root / "fgvc-aircraft-2013b" / "data"
    data.mkdir(parents=True)
    (data / "variants.txt").write_text("".join(f"{name}\n" for name in variants))
    rows = [f"{number:07d} {variants[label]}\n" for number, label in enumerate(classes)]
    (data / "images_variant_trainval.txt").write_text("".join(rows))
    touch(data / "images", [f"{number:07d}.jpg" for number in range(len(classes))])
    return root


# CIFAR


def python2_pickle(entries: dict[str, object]) -> bytes:
    """As Python 2 wrote CIFAR's batches: protocol 2, and bytes as text."""
    written = b"".join(_python2_text(key.encode()) + _python2_value(value) for key, value in entries.items())
    return b"\x80\x02}q\x01(" + written + b"u."


def _python2_value(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return _python2_array(value)
    if isinstance(value, list):
        return b"](" + b"".join(b"K" + bytes([item]) for item in value) + b"e"
    return _python2_text(str(value).encode())


def _python2_text(text: bytes) -> bytes:
    short = len(text) < 256
    return b"U" + bytes([len(text)]) + text if short else b"T" + struct.pack("<i", len(text)) + text


def _python2_array(array: np.ndarray) -> bytes:
    rows, columns = array.shape
    return b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x0b(K\x01",
            b"J" + struct.pack("<i", rows) + b"J" + struct.pack("<i", columns) + b"\x86",
            b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            _python2_text(array.tobytes()) + b"tb",
        ]
    )


def relaxed() -> Callable[[str], object]:
    """A stand-in for `published` without the checks that only the true, large data set can pass."""
    any_count = (0, 1 << 62)
    unchecked = {"images": any_count, "labelled": any_count, "classes_hash": None, "labelled_hash": None}
    return lambda name: replace(published(name), **unchecked)
