"""The tail for features that are final: EfficientNet's pooled ones, or embeddings of anything."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Root mean square norm of the features after standardising. It acts as the adapter's learning rate: docs/features.md.
FEATURE_NORM = 6.0


class AdapterTail(nn.Module):
    """Standardise (training mean, one scale), then a residual adapter that starts as the identity.

    Pooled network features are non-negative and point much the same way; a cosine classifier on them sends nobody to
    a new class. Moved to mean 0 and one common length, they behave like the output of a ViT's final LayerNorm.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, dim: int, hidden_dim: int = 512) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(()))
        self.down = nn.Linear(dim, hidden_dim)
        self.up = nn.Linear(hidden_dim, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def fit_standardisation(self, embeddings: Tensor) -> None:
        """Take mean and scale from the training images, labelled or not."""
        embeddings = embeddings.double()
        mean = embeddings.mean(dim=0)
        spread = (embeddings - mean).square().sum(dim=1).mean().sqrt()
        self.mean.copy_(mean)
        self.scale.copy_(FEATURE_NORM / spread.clamp_min(1e-12))

    def forward(self, embeddings: Tensor) -> Tensor:
        x = (embeddings - self.mean) * self.scale  # B×d
        adapted: Tensor = x + self.up(F.gelu(self.down(x)))
        return adapted
