"""Features that are final: EfficientNet's pooled ones, or embeddings of anything. No trunk, one tail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

# Root mean square length of the features after standardising. It acts as a learning rate: see docs/backbones.md.
FEATURE_NORM = 6.0
WHOLE = slice(None)  # of a batch


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
        adapted: Tensor = x + self.up(F.gelu(self.down(x)))
        return adapted


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

    def read_pair(self, images: NDArray[np.int64], seed: int, step: int, part: slice = WHOLE) -> NDArray[np.float32]:
        """Two training views of each sample, or of a part of them, different ones if there are: all first ones, then
        all second ones."""
        views = max(self._rows.shape[1] - 1, 1)
        first, second = draw_view_pair(views, len(images), seed, step)
        offset = 1 if self._rows.shape[1] > 1 else 0
        chosen = np.concatenate([images[part], images[part]])
        rows: NDArray[np.float32] = self._rows.numpy()[chosen, offset + np.concatenate([first[part], second[part]])]
        return rows

    def tokens_of(self, read: NDArray[np.float32], device: torch.device, into: Tensor | None = None) -> Tensor:
        """They are tokens already."""
        return torch.from_numpy(read).to(device)


def draw_view_pair(views: int, n: int, seed: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For n images, two different ones of ``views`` views each; the same one twice if there is no other."""
    random = np.random.default_rng([seed, 2, step])
    first = random.integers(views, size=n)
    second = (first + random.integers(1, views, size=n)) % views if views > 1 else first
    return first, second
