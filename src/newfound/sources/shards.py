"""The files of a bank: rows in shards, each a file of raw float16 with a list of the images whose rows they are.

shard-<name>.f16     m rows
shard-<name>.json    the sha256 of each row's image; written last, so it means "complete"
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.atomic import load_json, write_atomically


@dataclass(frozen=True)
class Places:
    """Where the rows of n images lie."""

    files: tuple[Path, ...]  # the shards that hold any of them
    shard: NDArray[np.int64]  # n: number of the file, -1 where there is none
    row: NDArray[np.int64]  # n: number of the row in it


def find_rows(store: Path, digests: Sequence[str], row_bytes: int) -> Places:
    """Look the images with these digests up in all complete shards."""
    numbers: dict[str, int] = {}
    content = np.array([numbers.setdefault(digest, len(numbers)) for digest in digests], dtype=np.int64)
    shard, row = np.full((2, len(numbers)), -1, dtype=np.int64)
    files: list[Path] = []
    for index in sorted(store.glob("shard-*.json")):
        images = _listed_images(index)
        wanted = [(numbers[digest], place) for place, digest in enumerate(images) if digest in numbers]
        if wanted and _is_whole(index, images, row_bytes):
            found, places = np.transpose(wanted)
            shard[found], row[found] = len(files), places
            files.append(_data(index))
    return Places(tuple(files), shard[content], row[content])


def map_shard(file: Path, row_shape: tuple[int, ...]) -> NDArray[np.float16]:
    """The rows of a complete shard, m×…, memory-mapped."""
    # torch keeps no file descriptor per map, numpy would: a large bank has thousands of shards
    flat = torch.from_file(str(file), shared=False, size=file.stat().st_size // 2, dtype=torch.float16)
    rows: NDArray[np.float16] = flat.view(-1, *row_shape).numpy()
    return rows


def write_shard(store: Path, rows: Tensor, digests: list[str]) -> None:
    """The rows of the images with these digests."""
    name = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    with write_atomically(store / f"shard-{name}.f16", "wb") as file:
        file.write(rows.numpy())  # not tofile, which does not say why it could not
    with write_atomically(store / f"shard-{name}.json") as file:
        json.dump({"images": digests}, file)


def remove_leftovers(store: Path, row_bytes: int) -> None:
    """Half-written files of a build that was killed, and damaged ones, while nobody writes any."""
    for file in store.glob("*.tmp"):
        file.unlink()
    for index in store.glob("shard-*.json"):
        if not _is_whole(index, _listed_images(index), row_bytes):
            index.unlink()  # its images are computed again
    complete = {index.stem for index in store.glob("shard-*.json")}
    for data in store.glob("shard-*.f16"):
        if data.stem not in complete:
            data.unlink()


def _data(index: Path) -> Path:
    return index.with_suffix(".f16")


def _is_whole(index: Path, images: list[str], row_bytes: int) -> bool:
    data = _data(index)
    return bool(images) and data.exists() and data.stat().st_size == len(images) * row_bytes


def _listed_images(index: Path) -> list[str]:
    try:
        return [str(digest) for digest in load_json(index)["images"]]
    except (ValueError, KeyError, TypeError):  # not what we wrote
        return []
