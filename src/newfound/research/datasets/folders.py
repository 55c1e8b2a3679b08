"""Data sets that are a folder per class: ImageNet-100, Herbarium 19, and any of your own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from newfound.atomic import load_json
from newfound.errors import UserError
from newfound.images.labels import listed
from newfound.research.datasets.benchmark import Benchmark, get_again, split
from newfound.research.datasets.facts import Facts, published
from newfound.research.datasets.sources import FileSource, Source, ZipSource, class_files, class_folders


def load_imagenet100(root: Path) -> Benchmark:
    """From ImageNet-1k's training images, or from a folder with just the 100 classes that are used.

    Classes are recognised by the name of their folder, such as n01443537, so that other folders do no harm. They
    are counted from 0 to 99 in that order, as the published code does.
    """
    facts = published("imagenet100")
    base = _folder(root, ["train", "ILSVRC/Data/CLS-LOC/train"])
    present = class_folders(base)
    _check_all_there(facts, base, facts.class_names, present)
    if len(present) == 1000:
        _check_thousand(facts, base, present)
    return _split_folders(facts, base, facts.class_names)


def load_herbarium(root: Path) -> Benchmark:
    """From `small-train` or a folder that holds it.

    The published class ids count the folders "0" to "682" sorted as text (0, 1, 10, 100, 101 ...), not as numbers.
    """
    facts = published("herbarium")
    base = _folder(root, ["small-train"])
    names = sorted(str(number) for number in range(len(facts.known) + len(facts.new)))
    present = class_folders(base)
    _check_all_there(facts, base, names, present)
    unknown = sorted({*present} - {*names})
    if unknown:
        raise UserError(f"{base}: folders that are no class of {facts.name}: {listed(unknown)}; {get_again(facts)}")
    return _split_folders(facts, base, names)


def load_folder(root: Path, *, lists: Path | None = None) -> Benchmark:
    """From class folders, in a folder or zip archive, and a JSON file such as {"known": ["cat"], "new": ["yak"]}.

    Native order, from which the labelled images are drawn: class folders sorted by code point, in each its files
    likewise. Class ids count the sorted folders; targets count the classes in the order of the JSON file.
    """
    if lists is None:
        raise UserError('a folder needs --lists: a JSON file such as {"known": ["cat", "dog"], "new": ["yak"]}')
    known, new = _read_lists(lists)
    present = sorted({name.split("/")[0] for name, _ in class_files(root)})
    missing = [name for name in (*known, *new) if name not in present]
    if missing:
        raise UserError(f"{lists} names classes without an image in {root}: {listed(missing)}")
    unlisted = [name for name in present if name not in {*known, *new}]
    if unlisted:
        raise UserError(f"{root} holds classes that {lists} does not name, as known or new: {listed(unlisted)}")
    everything = (0, 1 << 62)
    known_ids, new_ids = (tuple(present.index(name) for name in names) for names in (known, new))
    facts = Facts("folder", str(root), images=everything, labelled=everything, known=known_ids, new=new_ids)
    return _split_folders(facts, root, present)


def _split_folders(facts: Facts, root: Path, class_names: Sequence[str]) -> Benchmark:
    found = class_files(root, only=class_names)
    files = [name for name, _ in found]
    id_of = {name: number for number, name in enumerate(class_names)}
    classes = np.array([id_of[name.split("/")[0]] for name in files], dtype=np.int64)
    source: Source = FileSource(root, files) if root.is_dir() else ZipSource(root, [place for _, place in found])
    return split(facts, files, classes, class_names, source, files)


def _folder(root: Path, inner: Sequence[str]) -> Path:
    if not root.is_dir():
        raise UserError(f"{root}: this is a file; unpack it and give the folder")
    return next((root / name for name in inner if (root / name).is_dir()), root)


def _check_all_there(facts: Facts, root: Path, wanted: Sequence[str], present: Collection[str]) -> None:
    missing = [name for name in wanted if name not in set(present)]
    if missing:
        raise UserError(
            f"{facts.name}: {len(missing):,} of {len(wanted):,} class folders are missing: {listed(missing)}; they are "
            f"part of {facts.origin}; looked in {root}"
        )


def _check_thousand(facts: Facts, root: Path, present: Sequence[str]) -> None:
    """With all of ImageNet-1k at hand, the published numbers of the classes must lead to the same folders."""
    if [present[number] for number in facts.imagenet1k_ids] != list(facts.class_names):
        raise UserError(f"{root}: its 1,000 folders are not those of ImageNet-1k; {get_again(facts)}")


def _read_lists(path: Path) -> tuple[list[str], list[str]]:
    try:
        content: Any = load_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable JSON file: {error}") from error
    known, new = (_names(content, key) for key in ("known", "new"))
    if known is None or new is None:
        raise UserError(f'{path}: two lists of class names are expected, {{"known": [...], "new": [...]}}')
    both = [*known, *new]
    repeated = sorted({name for name in both if both.count(name) > 1})
    if repeated or not known:
        raise UserError(f"{path}: {'named twice: ' + listed(repeated) if repeated else 'no class is known'}")
    return known, new


def _names(content: Any, key: str) -> list[str] | None:
    names = content.get(key) if isinstance(content, dict) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
