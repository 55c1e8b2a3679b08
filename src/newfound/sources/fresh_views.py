"""Views without a bank: new random ones in every step, as the paper trains."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.backbones import Backbone
from newfound.images import ImageTable
from newfound.images.views import resized_side, views_of
from newfound.random_streams import STEP_VIEWS
from newfound.sources.bank import run_trunk
from newfound.sources.vectors import WHOLE

TRUNK_BATCH = 16  # small: what a layer leaves should still be in the cache when the next one reads it
STREAM_LENGTH = 2**56  # numbers of views that each random stream has for itself


class FreshViews:
    """The same questions as a bank answers, answered by reading the images again."""

    def __init__(self, table: ImageTable, backbone: Backbone, precision: str = "float32") -> None:
        self._table, self._backbone, self._precision = table, backbone, precision
        self._pool = ThreadPoolExecutor(max(2, torch.get_num_threads()))

    def __len__(self) -> int:
        return len(self._table)

    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """The evaluation view of these images through the trunk."""
        pixels = self._pool.map(lambda i: self._pixels(int(i), 0), images)
        return through_trunk(self._backbone, np.concatenate(list(pixels)), self._precision)

    def kept_views(self, images: NDArray[np.int64]) -> None:
        """There are none."""

    def read_pair(
        self,
        images: NDArray[np.int64],
        seed: int,
        step: int,
        part: slice = WHOLE,
        stream: int = STEP_VIEWS,
        strong: bool = False,
    ) -> NDArray[np.uint8]:
        """Two new views of each image, or of a part of them: all first views, then all second views; with ``strong``
        the first ones are strong."""
        start = (stream - STEP_VIEWS) * STREAM_LENGTH + 2 * step * len(images)

        def pair_of(k: int) -> NDArray[np.uint8]:
            first, second = start + 2 * k, start + 2 * k + 1
            if strong:
                _, weak_view, strong_view = self._pixels(int(images[k]), seed, [second], [first])
                return np.stack([strong_view, weak_view])
            return self._pixels(int(images[k]), seed, [first, second])[1:]

        pixels = self._pool.map(pair_of, range(len(images))[part])
        both = np.stack(list(pixels), axis=1)  # 2×B×S×S×3
        return both.reshape(-1, *both.shape[2:])

    def tokens_of(self, read: NDArray[np.uint8], device: torch.device, into: Tensor | None = None) -> Tensor:
        """The views through the trunk."""
        return through_trunk(self._backbone, read, self._precision).to(device)

    def _pixels(
        self, image: int, seed: int, views: Sequence[int] = (), strong: Sequence[int] = ()
    ) -> NDArray[np.uint8]:
        size = self._backbone.image_size
        photo = self._table.open(image, shorter_side=resized_side(size))
        return views_of(photo, size, seed, self._table.digests[image], views, strong)


def through_trunk(backbone: Backbone, pixels: NDArray[np.uint8], precision: str = "float32") -> Tensor:
    """n×S×S×3 pixels to tokens, a few images at a time."""
    device = next(backbone.trunk.parameters()).device.type
    chunks = (pixels[i : i + TRUNK_BATCH] for i in range(0, len(pixels), TRUNK_BATCH))
    with torch.autocast(device, getattr(torch, precision), enabled=precision != "float32"):
        return torch.cat([run_trunk(backbone, chunk).float() for chunk in chunks])
