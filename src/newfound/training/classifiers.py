"""Classifiers beside cosines and nearest centres, and the list of all kinds that a model file may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from newfound.training.heads import Classifier, CosineClassifier
from newfound.training.nearest_centre import NearestCentre

EPSILON, MOMENTUM = 1e-5, 0.1  # of batch normalisation, as usual


class LinearClassifier(Classifier, nn.Linear):
    """Weight and bias, nothing normalised; it starts as torch's linear layers do."""

    kind = "linear"

    @classmethod
    def sized_as(cls, tensors: Mapping[str, Tensor]) -> Self:
        n_classes, feature_dim = tensors["weight"].shape
        return cls(feature_dim, n_classes)


class BatchNorm(nn.Module):
    """Batch normalisation in three functions, each without a side effect on the others.

    ``forward`` uses the running statistics, whatever the mode: it is for prediction. ``of_views`` uses those of a batch
    and tells them; ``follow`` moves the running ones. So losses can be computed twice, and a batch can be spread over
    processes.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_variance", torch.ones(dim))

    def forward(self, rows: Tensor) -> Tensor:
        return self._scaled(rows - self.running_mean, self.running_variance)

    def of_views(self, rows: Tensor, mean: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """2b×d, each view normalised by itself; and the moments: mean and variance, 2×2 views×d, without gradient.

        ``mean`` is `Batch.mean`: of each view, over the images of all processes.
        """
        means = mean(rows)  # 2×d
        centred = rows.view(2, len(rows) // 2, -1) - means[:, None]  # 2×b×d
        variances = mean(centred.square().flatten(0, 1))
        normalised = self._scaled(centred, variances[:, None])
        return normalised.flatten(0, 1), torch.stack([means, variances]).detach()

    @torch.no_grad()
    def follow(self, moments: Tensor, images: int) -> None:
        """Move the running statistics towards these of a batch, first view first; the variance without its bias."""
        for mean, variance in moments.unbind(dim=1):
            self.running_mean.lerp_(mean, MOMENTUM)
            self.running_variance.lerp_(variance * (images / max(images - 1, 1)), MOMENTUM)

    def _scaled(self, centred: Tensor, variance: Tensor) -> Tensor:
        return centred * (variance + EPSILON).rsqrt() * self.gain + self.shift


class PrototypeHead(nn.Module):
    """New classes in a space of their own: an MLP on the feature, and one direction of its output for each class."""

    def __init__(self, feature_dim: int, n_classes: int, hidden_dim: int = 2048, out_dim: int = 256) -> None:
        super().__init__()
        self.hidden, self.norm = nn.Linear(feature_dim, hidden_dim), BatchNorm(hidden_dim)
        self.out = nn.Linear(hidden_dim, out_dim)
        self.prototypes = CosineClassifier(out_dim, n_classes)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.prototypes(self.out(F.relu(self.norm(self.hidden(features)))))
        return logits

    def embedded(self, features: Tensor, mean: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """What its prototypes are compared with, 2b×out, normalised by batch; and the batch's moments."""
        hidden, moments = self.norm.of_views(at_least_single(self.hidden(features)), mean)
        return at_least_single(self.out(F.relu(hidden))), moments


class SplitClassifier(Classifier):
    """Known classes by directions of the feature itself, new ones by a `PrototypeHead`: cosines, known ones first."""

    kind = "split"

    def __init__(self, known: CosineClassifier, new: PrototypeHead) -> None:
        super().__init__()
        self.known, self.new = known, new

    @property
    def n_classes(self) -> int:
        return self.known.n_classes + self.new.prototypes.n_classes

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([self.known(features), self.new(features)], dim=1)

    def tensors_of(self, classes: Tensor) -> dict[str, Tensor]:
        tensors, is_known = self.state_dict(), classes < self.known.n_classes
        tensors["known.weight"] = tensors["known.weight"][classes[is_known]]
        of_new = classes[~is_known] - self.known.n_classes
        tensors["new.prototypes.weight"] = tensors["new.prototypes.weight"][of_new]
        return tensors

    @classmethod
    def sized_as(cls, tensors: Mapping[str, Tensor]) -> Self:
        n_known, feature_dim = tensors["known.weight"].shape
        n_new, out_dim = tensors["new.prototypes.weight"].shape
        hidden_dim = len(tensors["new.hidden.weight"])
        known = CosineClassifier(feature_dim, n_known)
        return cls(known, PrototypeHead(feature_dim, n_new, hidden_dim, out_dim))


def at_least_single(rows: Tensor) -> Tensor:
    """In single precision if they were in half; double stays double."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


CLASSIFIERS: dict[str, type[Classifier]] = {
    kind.kind: kind for kind in (CosineClassifier, NearestCentre, LinearClassifier, SplitClassifier)
}
