"""What stands on top of the feature: a projector for the contrastive parts, a classifier for the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projector(nn.Sequential):
    """Linear and GELU, three layers by default; the output is normalised inside the losses, not here."""

    def __init__(self, feature_dim: int, hidden_dim: int = 2048, out_dim: int = 256, layers: int = 3) -> None:
        widths = [feature_dim] + [hidden_dim] * (layers - 1) + [out_dim]
        modules: list[nn.Module] = []
        for i in range(layers):
            linear = nn.Linear(widths[i], widths[i + 1])
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
            modules += [linear] if i == layers - 1 else [linear, nn.GELU()]
        super().__init__(*modules)


class Classifier(nn.Module):
    """Features B×d to logits B×K, known classes first. A model file has one, by its ``kind`` and its tensors.

    Each of its tensors has a row per class, unless a kind says otherwise. `training.classifiers` lists all kinds.
    """

    kind: ClassVar[str]
    weight: Tensor

    @property
    def n_classes(self) -> int:
        return len(self.weight)

    def tensors_of(self, classes: Tensor) -> dict[str, Tensor]:
        """By name, had it these classes alone; known ones come first."""
        return {name: tensor[classes] for name, tensor in self.state_dict().items()}

    @classmethod
    def sized_as(cls, tensors: Mapping[str, Tensor]) -> Self:
        """As large as the one whose tensors these are, by name."""
        raise NotImplementedError

    @classmethod
    def holding(cls, tensors: Mapping[str, Tensor]) -> Self:
        """With these tensors, by name."""
        with torch.device("meta"):  # nothing is drawn
            classifier = cls.sized_as(tensors)
        classifier.load_state_dict(tensors, assign=True)
        return classifier


def only(classifier: Classifier, classes: Tensor) -> Classifier:
    """A copy with some of its classes alone."""
    tensors = classifier.tensors_of(classes)
    return type(classifier).holding({name: tensor.clone() for name, tensor in tensors.items()})


class CosineClassifier(Classifier):
    """Logits are cosines between the feature and one direction per class: known classes first, then new ones.

    Only the direction of each row of ``weight`` matters (weight normalisation with its gain fixed at 1).
    """

    kind = "cosine"

    def __init__(self, feature_dim: int, n_classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, feature_dim))
        bound = feature_dim**-0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))

    @classmethod
    def sized_as(cls, tensors: Mapping[str, Tensor]) -> Self:
        n_classes, feature_dim = tensors["weight"].shape
        return cls(feature_dim, n_classes)


class WideHead(nn.Module):
    """An embedding of length 1 and any width: projector, one direction per output, L2-normalised (DINO's head).

    >>> embedding = WideHead(feature_dim=8, out_dim=12, hidden_dim=16, bottleneck_dim=4)(torch.randn(5, 8))
    >>> tuple(embedding.shape), bool(torch.allclose(embedding.norm(dim=1), torch.ones(5)))
    ((5, 12), True)
    """

    def __init__(self, feature_dim: int, out_dim: int, hidden_dim: int = 2048, bottleneck_dim: int = 256) -> None:
        super().__init__()
        self.projector = Projector(feature_dim, hidden_dim, bottleneck_dim)
        self.directions = CosineClassifier(bottleneck_dim, out_dim)

    @classmethod
    def sized_as(cls, tensors: Mapping[str, Tensor]) -> WideHead:
        """As large as the head whose tensors these are, by name."""
        hidden_dim, feature_dim = tensors["projector.0.weight"].shape
        out_dim, bottleneck_dim = tensors["directions.weight"].shape
        return cls(feature_dim, out_dim, hidden_dim, bottleneck_dim)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.directions(self.projector(features)), dim=1)


def parameter_groups(*modules: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for the optimiser: biases and other 1-D tensors are never decayed."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    return [
        {"name": "weights", "params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"name": "biases", "params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
