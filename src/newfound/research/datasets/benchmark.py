"""The split itself: which images keep their label, and whether it is the published split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from newfound.errors import UserError
from newfound.images import UNLABELLED
from newfound.research.datasets.facts import Count, Facts
from newfound.research.datasets.sources import Source

SHARE_LABELLED = 0.5  # of the known classes' images, pooled


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The training images of a data set, and which of them are labelled."""

    name: str
    files: tuple[str, ...]  # one name per training image, in the data set's native order
    classes: NDArray[np.int64]  # per image: official class id, counted from 0
    class_names: tuple[str, ...]  # by official id
    known: tuple[int, ...]  # official ids, in published order
    new: tuple[int, ...]  # official ids, in published order (hard, medium, easy where there are such)
    labelled: NDArray[np.int64]  # positions of the labelled images, ascending
    source: Source

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def _target_of(self) -> NDArray[np.int64]:
        order = np.array([*self.known, *self.new], dtype=np.int64)
        target_of = np.full(len(self.class_names), UNLABELLED, dtype=np.int64)
        target_of[order] = np.arange(len(order))
        return target_of

    def targets(self) -> NDArray[np.int64]:
        """Class per image, counted as the published code does: known classes first, then new ones. For scoring."""
        return self._target_of[self.classes]

    def labels(self) -> NDArray[np.int64]:
        """The targets of the labelled images, -1 for all others: the only thing training may see."""
        labels = np.full(len(self), UNLABELLED, dtype=np.int64)
        labels[self.labelled] = self.targets()[self.labelled]
        return labels

    def open(self, position: int, shorter_side: int | None = None) -> Image.Image:
        """One image as RGB; threads may call this at the same time. `shorter_side` as in `decode.open_image`."""
        return self.open_with_digest(position, shorter_side)[0]

    def open_with_digest(self, position: int, shorter_side: int | None = None) -> tuple[Image.Image, str]:
        """The same with the digest of its content, which is read once."""
        return self.source.open_with_digest(position, shorter_side)

    def digest(self, position: int) -> str:
        """SHA-256 of one image's content: of its file, or of its pixels where the owner has no file per image."""
        return self.source.digest(position)


def draw_labelled(classes: NDArray[np.int64], known: Iterable[int]) -> NDArray[np.int64]:
    """Positions of the labelled images, ascending: half of the known classes' images, pooled, in native order.

    The published code draws with numpy's legacy generator, seed 0. Only which images are drawn matters; their
    order differs between its data sets.

    >>> draw_labelled(np.array([0, 1, 0, 1, 0, 2]), known=[0, 1]).tolist()
    [0, 2]
    """
    pool = np.flatnonzero(np.isin(classes, list(known)))
    drawn = np.random.RandomState(0).choice(len(pool), int(SHARE_LABELLED * len(pool)), replace=False)
    return np.sort(pool[drawn]).astype(np.int64)


def split(
    facts: Facts,
    files: Sequence[str],
    classes: NDArray[np.int64],
    class_names: Sequence[str],
    source: Source,
    identities: Sequence[int] | Sequence[str],
) -> Benchmark:
    """Draw the labelled images and refuse anything but the published split.

    `identities` is what the published hash of the labelled images is taken of: ids, file names or positions.
    """
    _check_count(facts, "training images", len(files), facts.images)
    _check_classes(facts, classes)
    labelled = draw_labelled(classes, facts.known)
    _check_count(facts, "labelled images", len(labelled), facts.labelled)
    _check_hash(facts, "the classes of the images, in order,", classes.tolist(), facts.classes_hash)
    drawn = sorted(identities[position] for position in labelled)
    _check_hash(facts, "the labelled images", drawn, facts.labelled_hash)
    return Benchmark(
        name=facts.name,
        files=tuple(files),
        classes=classes,
        class_names=tuple(class_names),
        known=facts.known,
        new=facts.new,
        labelled=labelled,
        source=source,
    )


def short_hash(items: Iterable[object]) -> str:
    """The first 16 digits of the SHA-256 of a comma-joined list, as the protocol gives them.

    >>> short_hash([1, 2, 3])
    '8a6ae15122001229'
    """
    return hashlib.sha256(",".join(map(str, items)).encode()).hexdigest()[:16]


def check_class_names(facts: Facts, place: object, found: Sequence[str]) -> None:
    """Refuse a list of classes that is not the one by which the published ids count."""
    expected = facts.class_names
    if len(found) != len(expected):
        raise UserError(f"{place}: {len(found):,} classes, {facts.name} has {len(expected):,}; {get_again(facts)}")
    for number, (name, right) in enumerate(zip(found, expected, strict=True), start=1):
        if name != right:
            raise UserError(
                f"{place}: class {number} is {name!r}, and {right!r} in the published split, which counts classes "
                f"by this order; {get_again(facts)}"
            )


def get_again(facts: Facts) -> str:
    """What to do about files that are not the owner's."""
    return f"use the files as their owner gives them: {facts.origin}"


def _check_count(facts: Facts, what: str, found: int, expected: Count) -> None:
    low, high = expected
    if low <= found <= high:
        return
    right = f"{low:,}" if low == high else f"between {low:,} and {high:,}"
    raise UserError(f"{facts.name}: {found:,} {what}, the published split has {right}; {get_again(facts)}")


def _check_classes(facts: Facts, classes: NDArray[np.int64]) -> None:
    expected = {*facts.known, *facts.new}
    found = set(np.unique(classes).tolist())
    if found != expected:
        wrong = sorted(found ^ expected)
        raise UserError(
            f"{facts.name}: {len(found):,} classes with images, the published split has {len(expected):,}; "
            f"class {wrong[0]} (counted from 0) is {'too many' if wrong[0] in found else 'empty'}; {get_again(facts)}"
        )


def _check_hash(facts: Facts, what: str, items: Iterable[object], expected: str | None) -> None:
    if expected is None:
        return
    found = short_hash(items)
    if found != expected:
        raise UserError(
            f"{facts.name}: {what} are not those of the published split (hash {found}, expected {expected}): "
            f"the lists were changed or are in another order; {get_again(facts)}"
        )
