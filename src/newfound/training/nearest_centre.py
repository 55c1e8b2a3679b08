"""A classifier by the nearest of the classes' centres, and what the methods that find clusters need around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from newfound.training.heads import Classifier

FAR = 100.0  # from every image: where the centre of a class is that no image is left for


class NearestCentre(Classifier):
    """Logits over clusters of unit features: one, less half the squared distance from each centre.

    The nearest centre has the largest one; between centres of length 1 they are cosines, as of ``CosineClassifier``.
    """

    kind = "nearest centre"

    def __init__(self, centres: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", centres)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=1), self.weight, (1 - self.weight.square().sum(dim=1)) / 2)

    @classmethod
    def sized_as(cls, tensors: Mapping[str, Tensor]) -> Self:
        return cls(torch.empty_like(tensors["weight"]))


def class_means(rows: Tensor, classes: NDArray[np.int64], n_classes: int) -> Tensor:
    """K×d: the mean of each class's rows, far away for a class without any."""
    means = torch.full((n_classes, rows.shape[1]), FAR)
    for k in np.unique(classes):
        means[k] = rows[torch.from_numpy(classes == k)].mean(dim=0)
    return means


def with_class_on_top(probabilities: Tensor, classes: NDArray[np.int64]) -> Tensor:
    """The same N×K, but where ``classes`` has another class than the most probable one, the two change places; where it
    has none (-1), nothing does.

    >>> with_class_on_top(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), np.array([1, -1]))
    tensor([[0.3000, 0.7000],
            [0.6000, 0.4000]])
    """
    rows, top = torch.arange(len(probabilities)), probabilities.argmax(dim=1)
    own = torch.where(torch.from_numpy(classes) < 0, top, torch.from_numpy(classes))
    changed = probabilities.clone()
    changed[rows, top], changed[rows, own] = probabilities[rows, own], probabilities[rows, top]
    return changed
