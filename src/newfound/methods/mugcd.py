"""μGCD (Vaze et al., NeurIPS 2023): GCD's features, then a classifier that learns from a mean teacher's predictions.

There is no released code: this is written from the paper, and no number of ours is a reproduction.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from newfound.losses import mean_entropy


def mugcd_losses(
    student_logits: Tensor,
    teacher_logits: Tensor,
    labels: Tensor,
    *,
    teacher_temperature: float,
    entropy_weight: float,
    supervised_weight: float = 0.35,
    student_temperature: float = 0.1,
) -> dict[str, Tensor]:
    """Every part of the second phase's loss by name, and their weighted sum as ``total``.

    ``student_logits`` (B×K) are the student's cosines of view 1, ``teacher_logits`` the teacher's of view 2 of the same
    images; ``labels`` B with -1 for unlabelled. No gradient flows through the teacher's. Unlike SimGCD's, the entropy
    term is not multiplied by 1 − ``supervised_weight``. Without any labelled image the cross-entropy is exactly 0.

    >>> import torch
    >>> parts = mugcd_losses(torch.tensor([[0.1, 0.0]]), torch.zeros(1, 2), torch.tensor([0]),
    ...                      teacher_temperature=0.04, entropy_weight=1.0)
    >>> {name: round(part.item(), 4) for name, part in parts.items()}
    {'distillation': 0.8133, 'cross_entropy': 0.3133, 'mean_entropy': 0.1109, 'total': 0.7492}
    """
    if student_logits.shape != teacher_logits.shape or len(student_logits) != len(labels):
        raise ValueError(
            f"expected one row of student's and of teacher's logits for each of {len(labels)} images; "
            f"found shapes {tuple(student_logits.shape)} and {tuple(teacher_logits.shape)}"
        )
    log_student = F.log_softmax(student_logits / student_temperature, dim=1)  # B×K
    target = F.softmax(teacher_logits.detach() / teacher_temperature, dim=1)  # B×K
    parts = {
        "distillation": -(target * log_student).sum(dim=1).mean(),
        "cross_entropy": _cross_entropy(log_student, labels),
        "mean_entropy": mean_entropy(log_student),
    }
    balanced = supervised_weight * parts["cross_entropy"] + (1 - supervised_weight) * parts["distillation"]
    parts["total"] = balanced + entropy_weight * parts["mean_entropy"]
    return parts


def _cross_entropy(log_student: Tensor, labels: Tensor) -> Tensor:
    """Of one view only, the student's; 0 where nothing is labelled."""
    if not bool((labels >= 0).any()):
        return log_student.sum() * 0.0
    return F.nll_loss(log_student, labels, ignore_index=-1)
