"""The images of a folder and what is known about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from newfound.errors import UserError
from newfound.images.decode import Unreadable, open_with_digest
from newfound.images.scan import Skipped

UNLABELLED = -1


@dataclass(frozen=True, eq=False)  # compare tables by their fingerprint
class ImageTable:
    """The readable images of a folder, sorted by name, so that their order on disk does not matter."""

    root: Path
    files: tuple[str, ...]  # relative to root, with forward slashes, sorted by code point
    labels: NDArray[np.int64]  # per file: index into class_names, -1 = unlabelled
    class_names: tuple[str, ...]  # the known classes, sorted by code point; some may have no image
    digests: tuple[str, ...]  # per file: SHA-256 of its content
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def n_known(self) -> int:
        """How many classes are known, those without an image included."""
        return len(self.class_names)

    @property
    def n_labelled(self) -> int:
        """How many images have a label."""
        return int((self.labels != UNLABELLED).sum())

    def path(self, index: int) -> Path:
        """Where image number `index` lies."""
        return self.root / self.files[index]

    def open(self, index: int, shorter_side: int | None = None) -> Image:
        """Image number `index`, upright, as RGB, as long as it is still the one that was listed."""
        path = self.path(index)
        try:
            image, digest = open_with_digest(path, shorter_side)
            if digest != self.digests[index]:
                raise Unreadable("its content is different")
        except Unreadable as error:
            raise UserError(
                f"{path} has changed since the folder was read: {error}. "
                "Restore it, or start again with the folder as it is."
            ) from error
        return image

    def seen_classes(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """The known classes that can be learnt, because they have labelled images, and `labels` counted by them."""
        seen, counted = np.unique(self.labels[self.labels != UNLABELLED], return_inverse=True)
        labels = np.full(len(self), UNLABELLED, dtype=np.int64)
        labels[self.labels != UNLABELLED] = counted
        return labels, tuple(self.class_names[k] for k in seen)

    def unseen_classes(self) -> tuple[str, ...]:
        """The known classes without a labelled image."""
        return tuple(name for k, name in enumerate(self.class_names) if k not in self.labels)

    def label_of(self, file: str) -> str | None:
        """The label of one of the files, if it has one."""
        label = self.labels[self._numbers[file]]
        return None if label == UNLABELLED else self.class_names[label]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {file: number for number, file in enumerate(self.files)}

    def relabelled(self, changes: Mapping[str, str | None]) -> ImageTable:
        """The same images with other labels for some files; classes that lose their last image that way are gone."""
        labels = [changes[file] if file in changes else self.label_of(file) for file in self.files]
        names = tuple(sorted({name for name in labels if name is not None} | set(self.unseen_classes())))
        index = {name: number for number, name in enumerate(names)}
        numbers = [UNLABELLED if name is None else index[name] for name in labels]
        return replace(self, labels=np.array(numbers, dtype=np.int64), class_names=names)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what can influence a result: names, contents, labels; not where the folder lies."""
        parts = [self.class_names, self.files, self.digests, self.labels.tolist()]
        # JSON in ASCII also spells names that are not valid UTF-8, each in one way only.
        return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()
