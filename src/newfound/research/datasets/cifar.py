"""CIFAR-10 and CIFAR-100, from the "python version" of their owner: a few pickles, unpacked or in a .tar.gz."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.research.datasets.benchmark import Benchmark, check_class_names, get_again, split
from newfound.research.datasets.facts import Facts, published
from newfound.research.datasets.pickles import read_pickle
from newfound.research.datasets.sources import PixelSource, find

SIDE = 32
_SUBSET_PER_CLASS = 100
_OFFICIAL_IMAGES = 50_000


@dataclass(frozen=True)
class _Form:
    """What the owner calls things."""

    archive: str
    folder: str
    batches: tuple[str, ...]  # in native order
    labels: str


_CIFAR10 = _Form(
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    batches=tuple(f"data_batch_{number}" for number in range(1, 6)),
    labels="labels",
)
_CIFAR100 = _Form("cifar-100-python.tar.gz", "cifar-100-python", ("train",), "fine_labels")


def load_cifar10(root: Path) -> Benchmark:
    """From `cifar-10-batches-py`, a folder that holds it, or `cifar-10-python.tar.gz`."""
    facts = published("cifar10")
    return _from_batches(facts, _CIFAR10, _read_batches(facts, _CIFAR10, root))


def load_cifar100(root: Path) -> Benchmark:
    """From `cifar-100-python`, a folder that holds it, or `cifar-100-python.tar.gz`.

    Or from an .npz file with `images`, `fine_labels`, `official_index` and `class_names` of the first 100 images of
    each class; that benchmark is called `cifar100-subset`, as its scores do not compare with published ones.
    """
    if root.suffix.lower() == ".npz":
        return _load_subset(root)
    facts = published("cifar100")
    return _from_batches(facts, _CIFAR100, _read_batches(facts, _CIFAR100, root))


def _read_batches(facts: Facts, form: _Form, root: Path) -> list[dict[str, Any]]:
    if root.is_file():
        return _from_archive(facts, form, root)
    places = [root / form.folder / form.batches[0], root / form.batches[0], root / form.archive]
    found = find(facts, places)
    if found.name == form.archive:
        return _from_archive(facts, form, found)
    return [_from_file(find(facts, [found.parent / batch])) for batch in form.batches]


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            return read_pickle(stream, str(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _from_archive(facts: Facts, form: _Form, path: Path) -> list[dict[str, Any]]:
    """In one pass: a .tar.gz can only be read from the start, and its order is not that of the batches."""
    found: dict[str, dict[str, Any]] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                folder, _, name = member.name.rpartition("/")
                if stream is not None and name in form.batches and folder.endswith(form.folder):
                    found[name] = read_pickle(stream, f"{path}, {member.name}")  # type: ignore[arg-type]
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"{path}: not a readable .tar.gz ({error}); {get_again(facts)}") from error
    missing = [f"{form.folder}/{batch}" for batch in form.batches if batch not in found]
    if missing:
        raise UserError(f"{facts.name}: {missing[0]} is missing in {path}; it is part of {facts.origin}")
    return [found[batch] for batch in form.batches]


def _from_batches(facts: Facts, form: _Form, batches: Sequence[Mapping[str, Any]]) -> Benchmark:
    parts = [_check_batch(facts, form, batch) for batch in batches]
    rows = np.concatenate([pixels for pixels, _ in parts]) if len(parts) > 1 else parts[0][0]
    classes = np.concatenate([labels for _, labels in parts])
    pixels = rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)  # images, height, width, 3
    return _split(facts, classes, pixels, positions=range(len(classes)))


def _check_batch(facts: Facts, form: _Form, batch: Mapping[str, Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pixels, labels = batch.get("data"), batch.get(form.labels)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != 3 * SIDE * SIDE:
        raise UserError(f"{facts.name}: a batch without rows of {3 * SIDE * SIDE:,} bytes, `data`; {get_again(facts)}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise UserError(f"{facts.name}: a batch without a list of class ids, `{form.labels}`; {get_again(facts)}")
    if len(labels) != len(pixels):
        raise UserError(f"{facts.name}: {len(pixels):,} images and {len(labels):,} labels; {get_again(facts)}")
    return pixels, np.array(labels, dtype=np.int64)


def _split(facts: Facts, classes: NDArray[np.int64], pixels: NDArray[np.uint8], positions: Sequence[int]) -> Benchmark:
    files = [f"{position:05d}" for position in positions]
    return split(facts, files, classes, facts.class_names, PixelSource(pixels), positions)


def _load_subset(path: Path) -> Benchmark:
    facts = published("cifar100-subset")
    try:
        with np.load(path, allow_pickle=False) as content:
            pixels, labels = content["images"], content["fine_labels"]
            positions, names = content["official_index"], content["class_names"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not an .npz file of {facts.origin} ({error})") from error
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), SIDE, SIDE, 3) or len(positions) != len(labels):
        raise UserError(f"{path}: its arrays do not fit each other: images {pixels.shape}, labels {labels.shape}")
    check_class_names(facts, path, names.tolist())
    _check_subset(path, labels, positions)
    return _split(facts, labels.astype(np.int64), pixels, positions.tolist())


def _check_subset(path: Path, labels: NDArray[Any], positions: NDArray[Any]) -> None:
    numbers = positions.astype(np.int64)  # signed, for their differences
    if not ((np.diff(numbers) > 0).all() and numbers.min() >= 0 and numbers.max() < _OFFICIAL_IMAGES):
        raise UserError(f"{path}: the images are not in CIFAR-100's order, which decides which of them are labelled")
    if not (np.bincount(labels) == _SUBSET_PER_CLASS).all():
        raise UserError(f"{path}: not {_SUBSET_PER_CLASS} images of each class")
