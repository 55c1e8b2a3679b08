"""The bank: what left the frozen trunk, once per view, on disk and memory-mapped.

A bank belongs to one recipe (trunk weights, image size, views) and holds one row per image *content*:

    <folder>/<backbone>-<key>/recipe.json          what the rows are
                              shard-<name>.f16     n × (1 + V) × tokens, raw float16; view 0 is the evaluation view
                              shard-<name>.json    the sha256 of each row's image; written last, so it means "complete"

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
from torch import Tensor

from newfound.atomic import load_json, write_atomically
from newfound.backbones import Backbone
from newfound.distributed import from_first, is_first, processes, share, wait_for_all
from newfound.errors import UserError
from newfound.images import ImageTable
from newfound.images.views import RECIPE, resized_side, to_tensor, views_of
from newfound.screen import Screen, megabytes
from newfound.sources.vectors import WHOLE, draw_view_pair
from newfound.threads import one_thread_each, prefetched

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
    views: int
    view_recipe: str = RECIPE
    view_seed: int = VIEW_SEED

    @classmethod
    def of(cls, backbone: Backbone, views: int) -> Recipe:
        return cls(backbone.name, backbone.fingerprint, backbone.token_shape, backbone.image_size, views)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (1 + self.views, *self.token_shape)

    @property
    def row_bytes(self) -> int:
        return 2 * math.prod(self.row_shape)

    @property
    def folder_name(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.backbone}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class Bank:
    """Rows of one table, in the table's order."""

    def __init__(self, recipe: Recipe, rows: Sequence[Tensor]) -> None:
        self.recipe = recipe
        self._rows = rows  # each (1 + V)×tokens, float16, a view into a mapped shard

    def __len__(self) -> int:
        return len(self._rows)

    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """The evaluation view of these images, float32."""
        return torch.stack([self._rows[i][0] for i in images]).float()

    def read_pair(self, images: NDArray[np.int64], seed: int, step: int, part: slice = WHOLE) -> NDArray[np.float16]:
        """Two different training views of each image, or of a part of them: all first views, then all second views."""
        first, second = draw_view_pair(self.recipe.views, len(images), seed, step)
        views = 1 + np.concatenate([first[part], second[part]])
        chosen = zip([*images[part], *images[part]], views, strict=True)
        return np.stack([self._rows[i][v].numpy() for i, v in chosen])

    def tokens_of(self, read: NDArray[np.float16], device: torch.device, into: Tensor | None = None) -> Tensor:
        """What was read, float32; ``into`` memory that is no longer needed, since large pieces are slow to get anew."""
        half = torch.from_numpy(read).to(device)
        return half.float() if into is None else into.copy_(half)


def open_bank(table: ImageTable, backbone: Backbone, *, views: int, folder: Path, screen: Screen) -> Bank:
    """The bank of these images, built as far as it is not there yet."""
    recipe = Recipe.of(backbone, views)
    store = folder / recipe.folder_name
    try:
        store.mkdir(parents=True, exist_ok=True)
        (folder / "CACHEDIR.TAG").write_text(CACHE_TAG)  # backups, and our own reading of folders, leave it out
        with _lock(store, screen):
            return _complete_bank(table, backbone, recipe, store, screen)
    except OSError as error:
        raise UserError(
            f"the bank in {store} cannot be written: {error}. Choose another place with --bank-dir."
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
    have = _everyones_shards(store, recipe, set(table.digests))
    return Bank(recipe, [have[digest] for digest in table.digests])


def _everyones_shards(store: Path, recipe: Recipe, digests: set[str]) -> dict[str, Tensor]:
    """What all processes have written; a folder that machines share may take a while to show it."""
    for _ in range(SECONDS_TO_SEE if processes() > 1 else 1):
        have = _read_shards(store, recipe)
        if have.keys() >= digests:
            return have
        time.sleep(1)
    raise UserError(f"the bank in {store} lacks images that were just added. Every process has to see this folder.")


def _missing(table: ImageTable, recipe: Recipe, store: Path, screen: Screen) -> list[int]:
    """Which images have to be computed, after tidying up, and if there is space for them."""
    _remove_leftovers(store, recipe)
    with write_atomically(store / "recipe.json") as file:
        json.dump(asdict(recipe), file, indent=2)
    have = _read_shards(store, recipe)
    missing = [i for i in _first_of_each(table.digests) if table.digests[i] not in have]
    there = sum(digest in have for digest in table.digests)
    screen.say(_announcement(recipe, store, len(missing), there))
    if missing:
        _check_disk(store, len(missing) * recipe.row_bytes)
    return missing


def _announcement(recipe: Recipe, store: Path, missing: int, there: int) -> str:
    if not missing:
        return f"bank: all {there:,} images are in {store}"
    per_image = f"{1 + recipe.views} views × {'×'.join(map(str, recipe.token_shape))} float16"
    size = megabytes(missing * recipe.row_bytes)
    return f"bank: {missing:,} images × {per_image} = {size} to build in {store}; {there:,} are there already"


def _check_disk(store: Path, needed: int) -> None:
    free = shutil.disk_usage(store).free
    if free < needed + DISK_MARGIN:
        raise UserError(
            f"the bank needs {megabytes(needed)} in {store} and {megabytes(DISK_MARGIN)} to spare, only "
            f"{megabytes(free)} are free. "
            "Free some space, choose another place with --bank-dir, fewer views with --bank-views, "
            "or train without a bank with --views fresh."
        )


def _build(
    table: ImageTable, backbone: Backbone, recipe: Recipe, store: Path, missing: list[int], screen: Screen
) -> None:
    per_shard = max(1, min(SHARD_IMAGES, SHARD_BYTES // recipe.row_bytes))
    training_views = list(range(1, 1 + recipe.views))

    def row_of(image: int) -> Tensor:
        photo = table.open(image, shorter_side=resized_side(recipe.image_size))
        pixels = views_of(photo, recipe.image_size, VIEW_SEED, table.digests[image], training_views)
        row = run_trunk(backbone, pixels).half()
        if not row.isfinite().all():
            raise UserError(f"{table.path(image)}: the backbone's output is not finite in float16")
        return row

    with one_thread_each() as pool, screen.track("building bank", len(missing)) as progress:
        rows = prefetched(pool, row_of, missing, ahead=2 * (os.cpu_count() or 1))
        for start in range(0, len(missing), per_shard):
            images = missing[start : start + per_shard]
            shard = torch.empty(len(images), *recipe.row_shape, dtype=torch.float16)
            for k, row in enumerate(islice(rows, len(images))):
                shard[k] = row
                progress.update(start + k + 1)
            _write_shard(store, shard, [table.digests[i] for i in images])


@torch.inference_mode()
def run_trunk(backbone: Backbone, pixels: NDArray[np.uint8]) -> Tensor:
    """n×S×S×3 pixels through the frozen trunk, on whichever device it is; the answer on the CPU."""
    device = next(backbone.trunk.parameters()).device
    images = to_tensor(pixels, backbone.pixel_mean, backbone.pixel_std).to(device)
    tokens: Tensor = backbone.trunk(images).cpu()
    return tokens


def _write_shard(store: Path, shard: Tensor, digests: list[str]) -> None:
    name = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    with write_atomically(store / f"shard-{name}.f16", "wb") as file:
        file.write(shard.numpy())  # not tofile, which does not say why it could not
    with write_atomically(store / f"shard-{name}.json") as file:
        json.dump({"images": digests}, file)


def _read_shards(store: Path, recipe: Recipe) -> dict[str, Tensor]:
    """Image digest to row, over all complete shards."""
    rows: dict[str, Tensor] = {}
    for index in sorted(store.glob("shard-*.json")):
        digests = _listed_images(index)
        if _is_whole(index, digests, recipe):
            # torch keeps no file descriptor per map, numpy would: a large bank has thousands of shards
            numbers = len(digests) * recipe.row_bytes // 2
            flat = torch.from_file(str(_data(index)), shared=False, size=numbers, dtype=torch.float16)
            rows.update(zip(digests, flat.view(-1, *recipe.row_shape), strict=True))
    return rows


def _data(index: Path) -> Path:
    return index.with_suffix(".f16")


def _is_whole(index: Path, digests: list[str], recipe: Recipe) -> bool:
    data = _data(index)
    return bool(digests) and data.exists() and data.stat().st_size == len(digests) * recipe.row_bytes


def _listed_images(index: Path) -> list[str]:
    try:
        return [str(digest) for digest in load_json(index)["images"]]
    except (ValueError, KeyError, TypeError):  # not what we wrote
        return []


def _remove_leftovers(store: Path, recipe: Recipe) -> None:
    """Half-written files of a build that was killed, and damaged ones; we hold the lock, so nobody is writing them."""
    for file in store.glob("*.tmp"):
        file.unlink()
    for index in store.glob("shard-*.json"):
        if not _is_whole(index, _listed_images(index), recipe):
            index.unlink()  # its images are computed again
    complete = {index.stem for index in store.glob("shard-*.json")}
    for data in store.glob("shard-*.f16"):
        if data.stem not in complete:
            data.unlink()


def _first_of_each(digests: Sequence[str]) -> list[int]:
    return list({digest: i for i, digest in reversed(list(enumerate(digests)))}.values())[::-1]


def default_bank_folder() -> Path:
    """Where banks live unless told otherwise: the user's cache, because every run shares them."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "newfound" / "banks"
