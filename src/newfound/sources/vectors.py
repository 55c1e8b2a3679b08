"""Embeddings from elsewhere as a source: no trunk, no images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.random_streams import STEP_VIEWS

WHOLE = slice(None)  # of a batch


class Embeddings:
    """Embeddings from elsewhere, answering what a bank answers, so that they train the same way.

    n×d, or n×(1+V)×d with several views of each sample, of which the first is for evaluation. A single view serves as
    both of a training pair.
    """

    def __init__(self, embeddings: NDArray[np.floating]) -> None:
        rows = torch.as_tensor(embeddings, dtype=torch.float32)
        if rows.ndim not in (2, 3) or not rows.isfinite().all():
            raise ValueError(f"expected finite numbers, n×d or n×(1+V)×d; found shape {tuple(rows.shape)}")
        self._rows = rows[:, None] if rows.ndim == 2 else rows

    def __len__(self) -> int:
        return len(self._rows)

    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """The first view of these samples."""
        return self._rows[np.asarray(images), 0]

    def kept_views(self, images: NDArray[np.int64]) -> NDArray[np.float32]:
        """All views of these samples, the first one included."""
        rows: NDArray[np.float32] = self._rows.numpy()[images]
        return rows

    def read_pair(
        self,
        images: NDArray[np.int64],
        seed: int,
        step: int,
        part: slice = WHOLE,
        stream: int = STEP_VIEWS,
        strong: bool = False,
    ) -> NDArray[np.float32]:
        """Two training views of each sample, or of a part of them, different ones if there are: all first ones, then
        all second ones. There are no pixels that could be strongly augmented."""
        views = max(self._rows.shape[1] - 1, 1)
        first, second = draw_view_pair(views, len(images), seed, step, stream)
        offset = 1 if self._rows.shape[1] > 1 else 0
        chosen = np.concatenate([images[part], images[part]])
        rows: NDArray[np.float32] = self._rows.numpy()[chosen, offset + np.concatenate([first[part], second[part]])]
        return rows

    def tokens_of(self, read: NDArray[np.float32], device: torch.device, into: Tensor | None = None) -> Tensor:
        """They are tokens already."""
        return torch.from_numpy(read).to(device)


def draw_view_pair(
    views: int, n: int, seed: int, step: int, stream: int = STEP_VIEWS
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For n images, two different ones of ``views`` views each; the same one twice if there is no other.

    >>> first, second = draw_view_pair(views=3, n=4, seed=0, step=7)
    >>> first.shape, (first != second).all().item(), max(*first, *second).item() < 3
    ((4,), True, True)
    """
    random = np.random.default_rng([seed, stream, step])
    first = random.integers(views, size=n)
    second = (first + random.integers(1, views, size=n)) % views if views > 1 else first
    return first, second
