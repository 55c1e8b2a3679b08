"""Small pictures for the page, as large as its budget allows."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from newfound.images.decode import Unreadable, open_image
from newfound.screen import Screen

FORMAT, MEDIA_TYPE = "WEBP", "image/webp"
MOST = 10_000  # images that get one
BUDGET = 25_000_000  # bytes in all; base64 makes 33 MB of them, and the rest of the page has room below 40
# Longer side and WebP quality, from best to least. The last one holds 10,000 pictures of pure noise in half the budget.
LADDER = ((224, 80), (192, 78), (160, 76), (128, 74), (112, 72), (96, 70), (80, 66), (64, 60), (48, 55), (40, 40))
LOOK = 16  # pixels a side
PROBED = 48  # images that the first choice is made by
THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True, eq=False)
class Thumbnails:
    """Encoded pictures by image number."""

    pictures: dict[int, bytes]
    looks: NDArray[np.float32]  # a row per picture, to find nearly the same ones by
    unreadable: int  # images whose file is missing, or no longer an image
    left_out: int  # images beyond the most that get one
    side: int  # pixels of the longer side


def make_thumbnails(
    root: Path, files: Sequence[str], wanted: Sequence[int], screen: Screen, *, budget: int = BUDGET
) -> Thumbnails:
    """Pictures of the first ``MOST`` of ``wanted``, the largest that stay within ``budget`` bytes in all.

    The size is chosen by a sample; should it not hold, all are made again one step smaller.
    """
    chosen = list(wanted[:MOST])
    paths = {i: root / files[i] for i in chosen}
    step = _first_step(paths, budget)
    while (made := _all(paths, step, screen, budget if step < len(LADDER) - 1 else None)) is None:
        step += 1
    looks = np.stack([look for _, look in made.values()]) if made else np.empty((0, 3 * LOOK**2), np.float32)
    pictures = {i: picture for i, (picture, _) in made.items()}
    return Thumbnails(pictures, looks, len(chosen) - len(made), len(files) - len(chosen), LADDER[step][0])


def thumbnail(path: Path, step: int = 0) -> bytes | None:
    """One picture, None if the file cannot be read."""
    image = _opened(path, LADDER[step][0])
    return None if image is None else _encoded(image, step)


def look(image: Image.Image) -> NDArray[np.float32]:
    """A picture of 16 by 16, without its mean brightness: alike for copies that were compressed or scaled again."""
    pixels = np.asarray(image.resize((LOOK, LOOK), Image.Resampling.BILINEAR), dtype=np.float32).ravel()
    return np.asarray(pixels - pixels.mean(), dtype=np.float32)


def gallery_order(classes: NDArray[np.int64], confidence: NDArray[np.float64], first: Iterable[int]) -> list[int]:
    """Every image, those first that a page needs most: ``first``, then of each class in turn the surest and least sure.

    >>> gallery_order(np.array([0, 0, 0, 1]), np.array([0.9, 0.2, 0.5, 0.7]), first=[2])
    [2, 0, 3, 1]
    """
    queues = []
    for k in [*range(int(classes.max(initial=-1)) + 1), -1]:  # what is in no class comes last
        members = np.flatnonzero(classes == k)
        queues.append(_ends_first(members[np.argsort(-confidence[members], kind="stable")].tolist()))
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    return list(dict.fromkeys(itertools.chain(first, (i for i in rounds if i is not None))))


def _ends_first(members: list[int]) -> list[int]:
    """First, last, second, last but one, ..."""
    half = (len(members) + 1) // 2
    pairs = itertools.zip_longest(members[:half], reversed(members[half:]))
    return [i for pair in pairs for i in pair if i is not None]


def _first_step(paths: dict[int, Path], budget: int) -> int:
    """The best step of the ladder that the sample says will do."""
    numbers = list(paths)
    sample = numbers[:: max(1, len(numbers) // PROBED)][:PROBED]
    opened = [image for image in (_opened(paths[i], LADDER[0][0]) for i in sample) if image is not None]
    for step in range(len(LADDER)):
        mean = sum(len(_encoded(image, step)) for image in opened) / max(len(opened), 1)
        if mean * len(numbers) <= 0.95 * budget:
            return step
    return len(LADDER) - 1


Made = dict[int, tuple[bytes, NDArray[np.float32]]]


def _all(paths: dict[int, Path], step: int, screen: Screen, budget: int | None) -> Made | None:
    """Every picture with its look, without those that cannot be read; None once the budget is exceeded."""
    pictures: Made = {}
    total = done = 0
    with screen.track("thumbnails", len(paths)) as progress, ThreadPoolExecutor(THREADS) as pool:
        for some in _batches(list(paths), 64):  # a few at a time, so that stopping is quick
            for i, made in zip(some, pool.map(lambda i: _made(paths[i], step), some), strict=True):
                if made is not None:
                    pictures[i] = made
                    total += len(made[0])
            if budget is not None and total > budget:
                return None
            done += len(some)
            progress.update(done)
    return pictures


def _batches(items: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _made(path: Path, step: int) -> tuple[bytes, NDArray[np.float32]] | None:
    image = _opened(path, LADDER[step][0])
    return None if image is None else (_encoded(image, step), look(image))


def _opened(path: Path, side: int) -> Image.Image | None:
    """A file that was an image when the run was made may be gone by now, or be something else."""
    try:
        return open_image(path, side)
    except (Unreadable, ValueError):  # ValueError: a name no file can have
        return None


def _encoded(image: Image.Image, step: int) -> bytes:
    """A picture is never enlarged."""
    side, quality = LADDER[step]
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    stream = io.BytesIO()
    small.save(stream, FORMAT, quality=quality, method=2)  # 4 takes twice as long for 3 % less
    return stream.getvalue()
