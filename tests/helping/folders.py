"""Folders of tiny images, and what `read_folder` made of them."""

import hashlib
import os
from pathlib import Path

from PIL import Image

from newfound.images import ImageTable, read_folder


def put_image(path: Path, shade: int | None = None) -> Path:
    """Write a small image; without a shade, one that depends on its path, so that no two are alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = tuple(hashlib.sha256(os.fsencode(path)).digest()[:3]) if shade is None else (shade,) * 3
    Image.new("RGB", (4, 3), colour).save(path, format="PNG")
    return path


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def labels_by_file(table: ImageTable) -> dict[str, str | None]:
    return {
        file: None if label < 0 else table.class_names[label]
        for file, label in zip(table.files, table.labels.tolist(), strict=True)
    }


def reasons(table: ImageTable) -> dict[str, str]:
    return {item.file: item.reason for item in table.skipped}


def only_warning(table: ImageTable, about: str) -> str:
    found = [warning for warning in table.warnings if about in warning]
    assert len(found) == 1, table.warnings
    return found[0]


def with_labels(root: Path, content: str, name: str = "labels.csv", **options) -> ImageTable:
    return read_folder(root, labels=put(root / name, content), **options)
