"""How the field's released programs do the same work, written again for comparison. Nothing here is used by newfound.

The network computes its whole last block and runs its trunk in every pass; attention is written out and the optimiser
not fused, as in released code; k-means holds all differences at once; anchors come from a full sort per cluster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from newfound.backbones.vit import VIT_SPECS, Attention, VisionTransformer
from newfound.losses import simgcd_losses
from newfound.methods.simgcd import Settings
from newfound.training.heads import CosineClassifier, Projector, parameter_groups


class WrittenOutAttention(Attention):
    def forward(self, tokens: Tensor) -> Tensor:
        b, t, d = tokens.shape
        queries, keys, values = self.qkv(tokens).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = ((queries @ keys.transpose(-2, -1)) * (d // self.heads) ** -0.5).softmax(dim=-1)
        projected: Tensor = self.proj((attention @ values).transpose(1, 2).reshape(b, t, d))
        return projected


class UsualModel(nn.Module):
    """The whole network, its last block trained, and both heads."""

    def __init__(self, backbone: str, classes: int, settings: Settings) -> None:
        super().__init__()
        spec = VIT_SPECS[backbone]
        self.settings = settings
        self.network = VisionTransformer(spec).requires_grad_(False)
        for block in self.network.blocks:
            block.attn.__class__ = WrittenOutAttention
        self.network.blocks[-1].requires_grad_(True)
        self.projector = Projector(spec.embed_dim)
        self.classifier = CosineClassifier(spec.embed_dim, classes)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        assert self.settings.entropy_weight is not None
        features = self.network(images)
        return simgcd_losses(
            self.projector(features),
            self.classifier(features),
            labels,
            teacher_temperature=self.settings.teacher_temperature,
            entropy_weight=self.settings.entropy_weight,
        )["total"]


def simgcd_step(model: UsualModel) -> Callable[[Tensor, Tensor], None]:
    optimiser = torch.optim.SGD(parameter_groups(model, weight_decay=5e-5), 0.1, 0.9)

    def step(images: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad()
        model.loss(images, labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def sam_step(model: UsualModel, rho: float) -> Callable[[Tensor, Tensor], None]:
    """Two passes through everything, a loop over parameters for the climb and for the way back."""
    optimiser = torch.optim.SGD(parameter_groups(model, weight_decay=5e-5), 0.1, 0.9)
    trained = [p for p in model.parameters() if p.requires_grad]

    def step(images: Tensor, labels: Tensor) -> None:
        model.loss(images, labels).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in trained if p.grad is not None]), p=2)
            before = [p.clone() for p in trained]
            for p in trained:
                p.add_(p.grad * (rho / (norm + 1e-12)))
        optimiser.zero_grad()
        model.loss(images, labels).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for p, old in zip(trained, before, strict=True):
                p.data = old
        optimiser.step()
        optimiser.zero_grad()

    return step


def anchors_by_full_sort(
    probabilities: NDArray[np.floating],
    features: NDArray[np.floating],
    n_known: int,
    *,
    eta: int,
    beta: float,
    k: float,
) -> list[NDArray[np.int64]]:
    """Each cluster: all distances, every row sorted whole, the densest point, its neighbourhood, the most confident."""
    confidence, clusters = probabilities.max(axis=1), probabilities.argmax(axis=1)
    chosen = []
    for c in range(n_known, probabilities.shape[1]):
        members = np.flatnonzero(clusters == c)
        rows = features[members].astype(np.float64)
        squares = (rows**2).sum(axis=1)
        distances = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * rows @ rows.T, 0))
        neighbours = max(1, int(k * len(members)))
        density = np.sort(distances, axis=1)[:, 1 : neighbours + 1].mean(axis=1)
        core = np.argsort(distances[density.argmin()])[: round(beta * len(members))]
        chosen.append(members[core[np.argsort(-confidence[members[core]])][:eta]])
    return chosen


def kmeans_iteration_by_broadcast(features: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """N×K×d differences in memory, a loop over clusters for the new centres."""
    distances = ((features.unsqueeze(1) - centres.unsqueeze(0)) ** 2).sum(dim=-1)  # N×K
    clusters = distances.argmin(dim=1)
    return clusters, torch.stack([features[clusters == c].mean(dim=0) for c in range(len(centres))])
