"""What a fitted estimator predicts with: the model in double precision, and how far apart its samples are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from newfound.runs.none_of_these import likeness, references_of
from newfound.text import counted
from newfound.training.learner import Predictor

CHUNK = 1024  # samples predicted at a time


@dataclass(frozen=True)
class FittedModel:
    """On the CPU, in double precision: so the size of a batch makes no difference."""

    predictor: Predictor
    references: Tensor  # R×d, of length 1
    usual_distances: NDArray[np.float32]  # of labelled samples from the nearest other one, sorted

    @classmethod
    def of(cls, predictor: Predictor, rows: NDArray[np.floating], targets: NDArray[np.int64]) -> FittedModel:
        """From a trained predictor, the samples it was fitted to (n×d or n×views×d), and their classes, or -1."""
        for part in (predictor.tail, predictor.head, predictor.classifier):
            if part is not None:
                part.cpu().double().eval().requires_grad_(False)
        features, _ = predicted(predictor, rows)
        references, distances = references_of(F.normalize(features, dim=1).float(), targets, seed=0)
        return cls(predictor, references, distances.numpy())

    def predicted(self, rows: NDArray[np.floating]) -> tuple[Tensor, Tensor]:
        """Features n×d and probabilities n×K."""
        return predicted(self.predictor, rows)

    def likeness(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """How much each sample is like those that were fitted."""
        features, _ = self.predicted(rows)
        return likeness(features, self.references.to(features.dtype), self.usual_distances)


@torch.inference_mode()
def predicted(predictor: Predictor, rows: NDArray[np.floating]) -> tuple[Tensor, Tensor]:
    """Features n×d and probabilities n×K; of several views, the first counts."""
    views = torch.from_numpy(np.array(rows[:, 0] if rows.ndim == 3 else rows, dtype=np.float64))
    features = torch.cat([predictor.features(chunk) for chunk in torch.split(views, CHUNK)])
    return features, predictor.probabilities(features)


def warn_of_empty(empty: int, classes: int) -> None:
    """To whoever calls the estimator."""
    what = f"{counted(empty, 'new class')} ended up empty, left out"
    warnings.warn(f"{what}: a smaller n_classes than {classes} may fit better", ConvergenceWarning, stacklevel=3)
