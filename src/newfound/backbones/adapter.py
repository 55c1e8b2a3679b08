"""The tail of features that are final: EfficientNet's pooled ones, or embeddings of anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Root mean square length of the features after standardising. It acts as a learning rate: see docs/backbones.md.
FEATURE_NORM = 6.0


class AdapterTail(nn.Module):
    """Standardise (training mean, one scale), whiten if asked for, then a residual adapter that starts as the identity.

    Pooled network features are non-negative and point much the same way; a cosine classifier on them sends nobody to
    a new class. Moved to mean 0 and one common length, they behave like the output of a ViT's final LayerNorm.
    """

    mean: Tensor
    scale: Tensor
    whitening: Tensor | None  # d×d; None: features keep their directions

    def __init__(self, dim: int, hidden_dim: int = 512) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("whitening", None)
        self.down = nn.Linear(dim, hidden_dim)
        self.up = nn.Linear(hidden_dim, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def fit_standardisation(self, batches: Iterable[Tensor]) -> None:
        """Take mean and scale from all training images, labelled or not; batches of n×d."""
        count, total, squares = 0, torch.zeros_like(self.mean, dtype=torch.float64), 0.0
        for batch in batches:
            count += len(batch)
            total += batch.double().sum(dim=0)
            squares += float(batch.double().square().sum())
        mean = total / count
        variance = squares / count - float(mean.square().sum())  # of the distance from the mean
        self.mean.copy_(mean)
        self.scale.copy_(torch.tensor(FEATURE_NORM / max(variance, 1e-24) ** 0.5))

    def forward(self, embeddings: Tensor) -> Tensor:
        x = (embeddings - self.mean) * self.scale  # B×d
        if self.whitening is not None:
            x = x @ self.whitening
        adapted: Tensor = x + self.up(F.gelu(self.down(x)))
        return adapted

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """With the whitening of the tail whose state it is, whether or not this one had any."""
        if f"{prefix}whitening" in state_dict and self.whitening is None:
            self.whitening = torch.empty(len(self.mean), len(self.mean), device=self.mean.device, dtype=self.mean.dtype)
        super()._load_from_state_dict(state_dict, prefix, *rest)
