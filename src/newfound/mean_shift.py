"""Mean shift: rows move towards the mean of their nearest neighbours, until groups that belong together stand together.

`mean_shift` moves the rows of a batch towards a memory; `cluster` moves all rows, again and again, and cuts them into
classes each time by Ward's clustering; the labelled rows decide how often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from newfound.evaluate import claimed_clusters
from newfound.neighbours import nearest_neighbours
from newfound.ward import ward_cut

MOST_SHIFTS, PATIENCE = 19, 2


def mean_shift(embeddings: Tensor, memory: Tensor, k: int, alpha: float) -> Tensor:
    """Each embedding moved by ``alpha`` towards the mean of its ``k`` nearest rows of the memory, of length 1 again.

    The nearest of k+1 is left out: mostly another view of the same image. As released, the length is a constant for the
    gradient, and none flows into the memory. Where the memory has one row only, nothing moves.

    >>> memory = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> mean_shift(torch.tensor([[1.0, 0.0]]), memory, k=1, alpha=0.5).mul(10).round().tolist()
    [[7.0, 7.0]]
    """
    nearest = nearest_neighbours(memory, embeddings, k + 1)[1]  # 2B×(k+1)
    return _moved(embeddings, memory, nearest[:, 1:], alpha)


@dataclass(frozen=True)
class Cut:
    """The clusters that serve the labelled images best, over all numbers of shifts that were tried."""

    classes: NDArray[np.int64]  # N: known classes first, then new ones by their lowest member
    rows: Tensor  # N×d: the shifted embeddings that were cut
    shifts: int  # how many it took
    accuracies: list[float]  # after 0, 1, ... shifts: share of the labelled images whose cluster is their class's


def cluster(rows: Tensor, labels: NDArray[np.int64], n_classes: int, *, k: int = 8, alpha: float = 0.5) -> Cut:
    """Shift all embeddings (N×d, of length 1) and cut, until the labelled images have been no better off twice.

    ``labels`` has -1 for unlabelled. Of equally good cuts the one with more shifts is kept; without labels, the third.

    >>> rows = F.normalize(torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]]), dim=1)
    >>> cut = cluster(rows, np.array([-1, -1, 0, -1]), 2, k=1)
    >>> cut.classes.tolist(), cut.shifts, cut.accuracies
    ([1, 1, 0, 0], 2, [1.0, 1.0, 1.0])
    """
    accuracies: list[float] = []
    best, waited = -1.0, 0
    while waited < PATIENCE and len(accuracies) <= MOST_SHIFTS:
        rows = shifted(rows, k, alpha) if accuracies else rows
        classes = _named(ward_cut(rows.cpu().numpy(), n_classes), labels)
        agree = classes[labels >= 0] == labels[labels >= 0]
        accuracies.append(float(agree.mean()) if len(agree) else 0.0)
        waited = 0 if accuracies[-1] > best else waited + 1
        if accuracies[-1] >= best:
            best, kept = accuracies[-1], (classes, rows, len(accuracies) - 1)
    return Cut(*kept, accuracies)


@torch.no_grad()
def shifted(rows: Tensor, k: int, alpha: float) -> Tensor:
    """One step of mean shift of all rows at once, each towards its ``k`` nearest others (N×d, of length 1).

    >>> shifted(torch.eye(2), k=8, alpha=1.0).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    everyone = torch.arange(len(rows), device=rows.device)
    return _moved(rows, rows, nearest_neighbours(rows, rows, k, exclude=everyone)[1], alpha)


def _named(clusters: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Classes for clusters: those that a known class claims get its number, the others the next ones in their order."""
    n_known = int(labels.max(initial=-1)) + 1
    claimed, others = claimed_clusters(clusters, labels, n_known)
    classes = np.empty(int(clusters.max()) + 1, dtype=np.int64)
    for k, c in [*claimed.items(), *enumerate(others, start=n_known)]:
        classes[c] = k
    return classes[clusters]


def _moved(embeddings: Tensor, memory: Tensor, neighbours: Tensor, alpha: float) -> Tensor:
    """Towards the mean of the given rows of the memory, then to length 1, which is a constant for the gradient."""
    if not neighbours.shape[1]:
        return embeddings
    mean: Tensor = F.embedding_bag(neighbours, memory.detach(), mode="mean")  # 2B×d, and never 2B×k×d
    moved = (1 - alpha) * embeddings + alpha * mean
    length: Tensor = torch.linalg.vector_norm(moved.detach(), dim=1, keepdim=True)
    return moved / length.clamp_min(1e-12)
