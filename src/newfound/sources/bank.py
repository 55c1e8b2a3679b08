"""The bank: what left the frozen trunk, once per view, on disk and memory-mapped.

A bank belongs to one recipe (trunk weights, image size, views) and holds one row per image *content*:

    <folder>/<backbone>-<key>/recipe.json     what the rows are
                              shard-<name>.*  rows of (1 + V) × tokens: the evaluation view, V weak training views

A bank with strong views is another bank, with V more of them at the end of each row.

So another run, another folder with some of the same photos, or a run after a kill computes only what is missing. An
image's views go through the trunk together and alone: its row does not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from platformdirs import user_cache_path
from torch import Tensor

from newfound.atomic import write_atomically
from newfound.backbones import Backbone
from newfound.distributed import from_first, is_first, processes, share, wait_for_all
from newfound.errors import UserError, option
from newfound.images import ImageTable
from newfound.images.views import RECIPE, STRONG_RECIPE, resized_side, to_tensor, views_of
from newfound.random_streams import STEP_VIEWS
from newfound.screen import Screen, megabytes
from newfound.sources.shards import Places, find_rows, map_shard, remove_leftovers, write_shard
from newfound.sources.vectors import WHOLE, draw_view_pair
from newfound.text import counted
from newfound.threads import prefetched, single_threaded_pool

VIEW_SEED = 0  # not the run's: a bank serves every seed
SHARD_IMAGES, SHARD_BYTES = 256, 256_000_000
DISK_MARGIN = 64_000_000
SECONDS_TO_SEE = 90  # what another machine has written to a shared folder
CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by newfound; may be deleted at any time.\n"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a row holds, apart from the image."""

    backbone: str
    weights: str
    token_shape: tuple[int, ...]
    image_size: int
    views: int  # weak ones for training
    view_recipe: str = RECIPE
    view_seed: int = VIEW_SEED

    @classmethod
    def of(cls, backbone: Backbone, views: int, strong: bool = False) -> Recipe:
        view_recipe = STRONG_RECIPE if strong else RECIPE
        return cls(backbone.name, backbone.fingerprint, backbone.token_shape, backbone.image_size, views, view_recipe)

    @property
    def strong(self) -> bool:
        """Whether there are as many strong views as weak ones, after them."""
        return self.view_recipe == STRONG_RECIPE

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (1 + self.views * (2 if self.strong else 1), *self.token_shape)

    @property
    def row_bytes(self) -> int:
        return 2 * math.prod(self.row_shape)

    @property
    def folder_name(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.backbone}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class Bank:
    """Rows of one table, in the table's order: image i has row `row[i]` of shard number `shard[i]`."""

    def __init__(
        self,
        recipe: Recipe,
        shards: Sequence[NDArray[np.float16]],  # each m×row
        shard: NDArray[np.int64],
        row: NDArray[np.int64],
    ) -> None:
        self.recipe = recipe
        self._shards, self._shard, self._row = shards, shard, row

    def __len__(self) -> int:
        return len(self._row)

    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """The evaluation view of these images, float32."""
        chosen = np.asarray(images, dtype=np.int64)
        return torch.from_numpy(self._read(chosen, np.zeros_like(chosen))).float()

    def kept_views(self, images: NDArray[np.int64]) -> NDArray[np.float16]:
        """The evaluation view and all weak ones."""
        views = 1 + self.recipe.views
        read = self._read(images.repeat(views), np.tile(np.arange(views), len(images)))
        return read.reshape(len(images), views, *self.recipe.token_shape)

    def read_pair(
        self,
        images: NDArray[np.int64],
        seed: int,
        step: int,
        part: slice = WHOLE,
        stream: int = STEP_VIEWS,
        strong: bool = False,
    ) -> NDArray[np.float16]:
        """Two different training views of each image, or of a part of them: all first views, then all second views;
        with ``strong`` the first ones are strong."""
        first, second = draw_view_pair(self.recipe.views, len(images), seed, step, stream)
        if strong:
            assert self.recipe.strong  # a method says beforehand that it needs them
            first = first + self.recipe.views
        views = 1 + np.concatenate([first[part], second[part]])
        return self._read(np.concatenate([images[part], images[part]]), views)

    def tokens_of(self, read: NDArray[np.float16], device: torch.device, into: Tensor | None = None) -> Tensor:
        """What was read, float32; ``into`` memory that is no longer needed, since large pieces are slow to allocate."""
        half = torch.from_numpy(read).to(device)
        return half.float() if into is None else into.copy_(half)

    def _read(self, images: NDArray[np.int64], views: NDArray[np.int64]) -> NDArray[np.float16]:
        """One view of each of these images."""
        read = np.empty((len(images), *self.recipe.token_shape), dtype=np.float16)
        places = zip(self._shard[images].tolist(), self._row[images].tolist(), views.tolist(), strict=True)
        for k, (shard, row, view) in enumerate(places):
            read[k] = self._shards[shard][row, view]
        return read


def open_bank(
    table: ImageTable, backbone: Backbone, *, views: int, folder: Path, screen: Screen, strong: bool = False
) -> Bank:
    """The bank of these images, built as far as it is not there yet."""
    recipe = Recipe.of(backbone, views, strong)
    store = folder / recipe.folder_name
    try:
        store.mkdir(parents=True, exist_ok=True)
        (folder / "CACHEDIR.TAG").write_text(CACHE_TAG)  # backups, and our own reading of folders, leave it out
        with _lock(store, screen):
            return _complete_bank(table, backbone, recipe, store, screen)
    except OSError as error:
        raise UserError(
            f"the bank in {store} cannot be written: {error}. Choose another place with {option('bank_dir')}."
        ) from error


@contextmanager
def _lock(store: Path, screen: Screen) -> Iterator[None]:
    """One run at a time builds it; the system frees the lock when its holder dies."""
    if not is_first():
        yield
        return
    lock = FileLock(store / "lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        screen.say(f"another run is building this bank; waiting for it ({store})")
        held = lock.acquire()
    with held:
        yield


def _complete_bank(table: ImageTable, backbone: Backbone, recipe: Recipe, store: Path, screen: Screen) -> Bank:
    missing = from_first(lambda: _missing(table, recipe, store, screen))
    if missing:
        _build(table, backbone, recipe, store, missing[share(len(missing))], screen)
        wait_for_all()
    places = _everyones_rows(store, recipe, table.digests)
    shards = [map_shard(file, recipe.row_shape) for file in places.files]
    return Bank(recipe, shards, places.shard, places.row)


def _everyones_rows(store: Path, recipe: Recipe, digests: Sequence[str]) -> Places:
    """What all processes have written; a folder that machines share may take a while to show it."""
    for _ in range(SECONDS_TO_SEE if processes() > 1 else 1):
        places = find_rows(store, digests, recipe.row_bytes)
        if (places.shard >= 0).all():
            return places
        time.sleep(1)
    raise UserError(f"the bank in {store} lacks images that were just added. Every process has to see this folder.")


def _missing(table: ImageTable, recipe: Recipe, store: Path, screen: Screen) -> list[int]:
    """Which images have to be computed, after tidying up, and if there is space for them."""
    remove_leftovers(store, recipe.row_bytes)  # we hold the lock
    with write_atomically(store / "recipe.json") as file:
        json.dump(asdict(recipe), file, indent=2)
    there = find_rows(store, table.digests, recipe.row_bytes).shard >= 0
    missing = [i for i in _first_of_each(table.digests) if not there[i]]
    screen.say(_announcement(recipe, store, len(missing), int(there.sum())))
    if missing:
        _check_disk(store, len(missing) * recipe.row_bytes)
    return missing


def _announcement(recipe: Recipe, store: Path, missing: int, there: int) -> str:
    if not missing:
        return f"bank: the features of all {counted(there, 'image')} are in {store}"
    size, kept = megabytes(missing * recipe.row_bytes), f"; those of {there:,} are there already" if there else ""
    return (
        f"bank: computing the features of {counted(missing, 'image')} in {recipe.row_shape[0]} views each, once for "
        f"all runs: {size} in {store}{kept}"
    )


def _check_disk(store: Path, needed: int) -> None:
    free = shutil.disk_usage(store).free
    if free < needed + DISK_MARGIN:
        raise UserError(
            f"the bank needs {megabytes(needed)} in {store} and {megabytes(DISK_MARGIN)} to spare, only "
            f"{megabytes(free)} are free. "
            f"Free some space, choose another place with {option('bank_dir')}, fewer views with "
            f"{option('bank_views')}, or train without a bank with {option('views', 'fresh')}."
        )


def _build(
    table: ImageTable, backbone: Backbone, recipe: Recipe, store: Path, missing: list[int], screen: Screen
) -> None:
    per_shard = max(1, min(SHARD_IMAGES, SHARD_BYTES // recipe.row_bytes))
    weak = range(1, 1 + recipe.views)
    strong = range(1 + recipe.views, recipe.row_shape[0])  # other numbers, so that they are other crops

    def row_of(image: int) -> Tensor:
        photo = table.open(image, shorter_side=resized_side(recipe.image_size))
        pixels = views_of(photo, recipe.image_size, VIEW_SEED, table.digests[image], weak, strong)
        row = run_trunk(backbone, pixels).half()
        if not row.isfinite().all():
            raise UserError(f"{table.path(image)}: the backbone's output is not finite in float16")
        return row

    with single_threaded_pool() as pool, screen.track("building bank", len(missing)) as progress:
        rows = prefetched(pool, row_of, missing, ahead=2 * (os.cpu_count() or 1))
        for start in range(0, len(missing), per_shard):
            images = missing[start : start + per_shard]
            shard = torch.empty(len(images), *recipe.row_shape, dtype=torch.float16)
            for k, row in enumerate(islice(rows, len(images))):
                shard[k] = row
                progress.update(start + k + 1)
            write_shard(store, shard, [table.digests[i] for i in images])


@torch.inference_mode()
def run_trunk(backbone: Backbone, pixels: NDArray[np.uint8]) -> Tensor:
    """n×S×S×3 pixels through the frozen trunk, on whichever device it is; the answer on the CPU."""
    device = next(backbone.trunk.parameters()).device
    images = to_tensor(pixels, backbone.pixel_mean, backbone.pixel_std).to(device)
    tokens: Tensor = backbone.trunk(images).cpu()
    return tokens


def _first_of_each(digests: Sequence[str]) -> list[int]:
    return list({digest: i for i, digest in reversed(list(enumerate(digests)))}.values())[::-1]


def default_bank_folder() -> Path:
    """Where banks live by default: in the user's cache, because every run shares them."""
    return user_cache_path("newfound", appauthor=False) / "banks"
