"""Where training takes its views from: a bank of what left the trunk, the images themselves, or embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.backbones import Backbone
from newfound.images import ImageTable
from newfound.screen import Screen
from newfound.sources.bank import default_bank_folder, open_bank
from newfound.sources.fresh_views import FreshViews


class Source(Protocol):
    """Where tokens come from. Reading needs no device and may run ahead in another thread."""

    def __len__(self) -> int: ...

    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """Tokens of the one fixed view of these images."""

    def kept_views(self, images: NDArray[np.int64]) -> NDArray[Any] | None:
        """Tokens of all views of these images that are kept, n×V×…: the evaluation view first, then weak ones; None
        where there are fresh views in every step."""

    def read_pair(
        self,
        images: NDArray[np.int64],
        seed: int,
        step: int,
        part: slice = ...,
        stream: int = ...,
        strong: bool = ...,
    ) -> NDArray[Any]:
        """Two random training views of each image, or of a part of them: all first views, then all second views; with
        ``strong`` the first ones are strongly augmented, if the source has images.

        What is drawn depends on the seed, the random stream, the step and the place among `images`, not on `part`: so
        processes share a batch, and a large set is read in pieces."""

    def tokens_of(self, read: NDArray[Any], device: torch.device, into: Tensor | None = None) -> Tensor:
        """What was read as tokens, perhaps in memory that is no longer needed."""


def open_source(
    table: ImageTable,
    backbone: Backbone,
    *,
    views: str,
    bank_views: int,
    bank_dir: Path | None,
    precision: str,
    strong: bool,
    screen: Screen,
) -> Source:
    """Where training takes its views from: the bank, built where need be, or the images themselves.

    With `strong`, there are strongly augmented views, too."""
    if views == "fresh":
        return FreshViews(table, backbone, precision)
    folder = bank_dir or default_bank_folder()
    return open_bank(table, backbone, views=bank_views, folder=folder, screen=screen, strong=strong)
