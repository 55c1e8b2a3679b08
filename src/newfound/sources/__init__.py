"""Where training takes its views from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Source(Protocol):
    """Where tokens come from: a bank, fresh views, vectors. Reading needs no device and may run ahead in a thread."""

    def __len__(self) -> int: ...
    def evaluation(self, images: Sequence[int] | NDArray[np.int64]) -> Tensor: ...
    def read_pair(self, images: NDArray[np.int64], seed: int, step: int, part: slice = ...) -> NDArray[Any]: ...
    def tokens_of(self, read: NDArray[Any], device: torch.device, into: Tensor | None = None) -> Tensor: ...


def open_source(table, backbone, *, views, bank_views, bank_dir, precision, strong, screen):  # type: ignore
    from newfound.sources.bank import default_bank_folder, open_bank
    from newfound.sources.fresh_views import FreshViews

    if views == "fresh":
        return FreshViews(table, backbone, precision)
    return open_bank(table, backbone, views=bank_views, folder=bank_dir or default_bank_folder(), screen=screen)
