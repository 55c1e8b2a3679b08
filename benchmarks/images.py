"""From files to what leaves EfficientNet's trunk."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import Row, Side, alternated
from newfound.backbones import load_backbone
from newfound.backbones.efficientnet import PIXEL_MEAN, PIXEL_STD, load_efficientnet
from newfound.images.decode import decode_image
from newfound.images.views import resized_side, to_tensor, views_of
from newfound.sources.bank import run_trunk
from newfound.threads import prefetched, single_threaded_pool

SIZE, VIEWS, IMAGES = 224, 9, 16


def efficientnet_row(rounds: int) -> Row:
    """As a bank is built: nine views of one image at a time, an image per thread; the plain module 128 at once."""
    pixels = np.random.default_rng(0).integers(0, 256, (VIEWS, SIZE, SIZE, 3), dtype=np.uint8)
    backbone = load_backbone("efficientnet_lite0", image_size=SIZE)
    plain = load_efficientnet(backbone.name)
    batch = to_tensor(np.resize(pixels, (IMAGES * VIEWS, SIZE, SIZE, 3)), PIXEL_MEAN, PIXEL_STD).contiguous()

    @torch.inference_mode()
    def usual() -> None:
        for part in batch.split(128):
            plain(part)

    def ours() -> None:
        with single_threaded_pool() as pool:
            for _ in prefetched(pool, lambda _: run_trunk(backbone, pixels), range(IMAGES), ahead=4):
                pass

    seconds = alternated({"usual": Side(usual), "ours": Side(ours)}, rounds)
    rate = f"{IMAGES * VIEWS / seconds['ours']:.0f} views/s"
    return Row(f"EfficientNet-Lite0 trunk, {IMAGES * VIEWS} views of 224 px", "the plain module", seconds["usual"],
               seconds["ours"], 1 / 4, rate)  # fmt: skip


def blurred_jpeg() -> bytes:
    """A photo of nothing, 500×375."""
    blurred = Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8))
    file = io.BytesIO()
    blurred.resize((500, 375), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def reading_rates(rounds: int) -> dict[str, float]:
    """Images and views per second per core: decoding a 500×375 JPEG, cutting nine views from it."""
    file = blurred_jpeg()
    views = list(range(1, VIEWS))
    count, cores = 200, os.cpu_count() or 1

    def decode(_: int) -> Image.Image:
        return decode_image(io.BytesIO(file), resized_side(SIZE))

    def decode_and_cut(_: int) -> np.ndarray:
        return views_of(decode(0), SIZE, 0, "0" * 64, views)

    def in_threads(function: object) -> None:
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(function, range(count)))  # type: ignore[arg-type]

    seconds = alternated(
        {"decode": Side(lambda: in_threads(decode)), "views": Side(lambda: in_threads(decode_and_cut))}, rounds
    )
    return {
        "images decoded": count / seconds["decode"] / cores,
        "views decoded and cut": count * VIEWS / seconds["views"] / cores,
    }
