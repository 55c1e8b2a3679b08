"""The parts of SimGCD's objective (docs/method.md: equation to function), as pure functions of one batch.

A batch holds two views of B images. Rows 0..B-1 are the first views, rows B..2B-1 the second views of the same
images in the same order. ``labels`` has one entry per image, -1 where the image is unlabelled.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def simgcd_losses(
    projections: Tensor,
    logits: Tensor,
    labels: Tensor,
    *,
    teacher_temperature: float,
    entropy_weight: float,
    supervised_weight: float = 0.35,
    student_temperature: float = 0.1,
    info_nce_temperature: float = 1.0,
    sup_con_temperature: float = 0.07,
) -> dict[str, Tensor]:
    """Every part of the loss by name, and their weighted sum as ``total``.

    ``projections`` is 2B×256 (not normalised), ``logits`` 2B×K cosines, ``labels`` B with -1 for unlabelled.
    ``mean_entropy`` is given unweighted; ``entropy_weight`` enters ``total`` only. A batch without any labelled
    image has supervised parts of exactly 0.

    >>> _ = torch.manual_seed(0)
    >>> parts = simgcd_losses(torch.randn(8, 256), torch.rand(8, 3), torch.tensor([0, -1, 1, -1]),
    ...                       teacher_temperature=0.07, entropy_weight=1.0)
    >>> sorted(parts)
    ['cross_entropy', 'distillation', 'info_nce', 'mean_entropy', 'sup_con', 'total']
    """
    _check_shapes(projections, logits, labels)
    normalised = F.normalize(projections, dim=1)
    log_student = F.log_softmax(logits / student_temperature, dim=1)  # 2B×K
    parts = {
        "cross_entropy": cross_entropy(log_student, labels),
        "distillation": distillation(log_student, logits, teacher_temperature),
        "mean_entropy": mean_entropy(log_student),
        "info_nce": info_nce(normalised, info_nce_temperature),
        "sup_con": sup_con(normalised, labels, sup_con_temperature),
    }
    supervised = parts["cross_entropy"] + parts["sup_con"]
    unsupervised = parts["distillation"] + entropy_weight * parts["mean_entropy"] + parts["info_nce"]
    parts["total"] = supervised_weight * supervised + (1 - supervised_weight) * unsupervised
    return parts


def contrastive_losses(
    projections: Tensor,
    labels: Tensor,
    *,
    supervised_weight: float = 0.35,
    info_nce_temperature: float = 1.0,
    sup_con_temperature: float = 0.07,
) -> dict[str, Tensor]:
    """The two parts that need no classifier: what GCD learns features from."""
    normalised = F.normalize(projections, dim=1)
    parts = {
        "info_nce": info_nce(normalised, info_nce_temperature),
        "sup_con": sup_con(normalised, labels, sup_con_temperature),
    }
    parts["total"] = supervised_weight * parts["sup_con"] + (1 - supervised_weight) * parts["info_nce"]
    return parts


def cross_entropy(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Mean over both views of the labelled images; 0 where there are none."""
    return labelled_cross_entropy(log_probabilities, labels.repeat(2))


def labelled_cross_entropy(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Mean over the labelled rows, of as many rows as labels; 0 where there are none.

    >>> round(labelled_cross_entropy(torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log(), torch.tensor([1, -1])).item(), 4)
    0.2877
    """
    if not bool((labels >= 0).any()):
        return log_probabilities.sum() * 0.0
    return F.nll_loss(log_probabilities, labels, ignore_index=-1)


def distillation(log_student: Tensor, logits: Tensor, teacher_temperature: float) -> Tensor:
    """Each view learns the sharpened prediction of the other view; no gradient flows through the target."""
    target = F.softmax(logits.detach() / teacher_temperature, dim=1)
    other_view = target.roll(len(target) // 2, dims=0)  # rows of view 2, then rows of view 1
    return -(other_view * log_student).sum(dim=1).mean()


def mean_entropy(log_probabilities: Tensor) -> Tensor:
    """log K minus the entropy of the mean prediction: 0 when every class is used equally."""
    mean = log_probabilities.exp().mean(dim=0)  # K
    log_mean = mean.clamp_min(torch.finfo(mean.dtype).tiny).log()  # 0·log 0 is 0, and so is its gradient
    return math.log(mean.numel()) + (mean * log_mean).sum()


def info_nce(normalised: Tensor, temperature: float) -> Tensor:
    """Pick the other view of the same image out of all other views in the batch."""
    n = len(normalised)
    similarity = normalised @ normalised.T / temperature  # 2B×2B
    similarity = similarity.masked_fill(_diagonal(similarity), -math.inf)
    positive = torch.arange(n, device=normalised.device).roll(n // 2)
    return F.cross_entropy(similarity, positive)


def sup_con(normalised: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Among the labelled views: draw together those of one class, mean over anchors of the mean over positives."""
    both_views = labels.repeat(2)
    labelled = both_views >= 0
    if not bool(labelled.any()):
        return normalised.sum() * 0.0
    views, classes = normalised[labelled], both_views[labelled]  # n×d, n
    similarity = views @ views.T / temperature
    itself = _diagonal(similarity)
    log_share = similarity - similarity.masked_fill(itself, -math.inf).logsumexp(dim=1, keepdim=True)
    positive = (classes[:, None] == classes[None, :]) & ~itself  # never an empty row: an image has two views
    return -(log_share.masked_fill(~positive, 0.0).sum(dim=1) / positive.sum(dim=1)).mean()


def _diagonal(square: Tensor) -> Tensor:
    return torch.eye(len(square), dtype=torch.bool, device=square.device)


def _check_shapes(projections: Tensor, logits: Tensor, labels: Tensor) -> None:
    images = len(labels)
    if projections.ndim != 2 or logits.ndim != 2 or len(projections) != 2 * images or len(logits) != 2 * images:
        raise ValueError(
            f"expected two views of {images} labelled-or-not images, i.e. {2 * images} rows of projections and of "
            f"logits; found projections {tuple(projections.shape)} and logits {tuple(logits.shape)}"
        )
