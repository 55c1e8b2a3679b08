"""Which new images are none of the classes: those that are unlike everything the run has seen.

A model keeps *references*, features of the run's own images. An image whose nearest reference is farther away than that
of almost any labelled image is unlike all that was seen; docs/predict.md has it with numbers.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from newfound.random_streams import MODEL_REFERENCES

REFUSED = 0.01  # share of images like the labelled ones that are called "none of these" by mistake
REFERENCES = 5000  # at most: 13 MB of EfficientNet's features
BLOCK = 1024  # images whose distances are held at a time


def likeness(features: Tensor, references: Tensor, usual_distances: NDArray[np.float32]) -> NDArray[np.float64]:
    """The share of labelled images that are at least as far from all others as each of these is from the references.

    ``features`` is B×d, ``references`` R×d of length 1, ``usual_distances`` sorted, those of the labelled images. Below
    ``REFUSED``, an image is none of these.

    >>> references = torch.eye(2)
    >>> likeness(torch.tensor([[2.0, 0.0], [-1.0, -1.0]]), references, np.float32([0.0, 0.1, 0.2, 0.3])).tolist()
    [1.0, 0.0]
    """
    nearest = (F.normalize(features, dim=1) @ references.T).amax(dim=1)
    closer = np.searchsorted(usual_distances, (1 - nearest).cpu().numpy(), side="left")
    return np.asarray(1 - closer / len(usual_distances), dtype=np.float64)


def references_of(features: Tensor, labels: NDArray[np.int64], seed: int) -> tuple[Tensor, Tensor]:
    """Some or all of the features (N×d, length 1), and how far labelled images are from the nearest other one, sorted.

    Where fewer than two images are labelled, all are taken as if they were.
    """
    n = len(features)
    chosen = np.arange(n)
    if n > REFERENCES:
        chosen = np.sort(np.random.default_rng([seed, MODEL_REFERENCES]).choice(n, REFERENCES, replace=False))
    references = features[chosen]
    judged = np.flatnonzero(labels >= 0)
    judged = judged if len(judged) > 1 else np.arange(n)
    distances = []
    for start in range(0, len(judged), BLOCK):
        block = judged[start : start + BLOCK]
        cosines = features[block].float() @ references.float().T
        cosines[torch.from_numpy(block[:, None] == chosen[None])] = -1.0  # not from itself
        distances.append(1 - cosines.amax(dim=1))
    return references, torch.cat(distances).sort().values
