"""LegoGCD (Cao et al., CVPR 2024): SimGCD that is kept from forgetting the known classes, by two more terms.

*LER* lowers the entropy of confident unlabelled views that the model itself puts into a known class; *DKL* draws the
predictions of an image's two views together. Both are as in the released code, on which the published numbers rest:
DKL applies a second softmax to the probabilities, and in Eq. 10 the entropy and the margin have a plus.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from newfound.losses import simgcd_losses

MARGIN = 0.4  # weight of the classes' running mean prediction in LER
SHARP = 0.05  # temperature of LER's own predictions


def legogcd_losses(
    projections: Tensor,
    logits: Tensor,
    labels: Tensor,
    mean_prediction: Tensor,
    *,
    n_known: int,
    threshold: float,
    known_entropy_weight: float,
    divergence_weight: float = 1.0,
    plain_divergence: bool = False,
    supervised_weight: float = 0.35,
    student_temperature: float = 0.1,
    **simgcd: float,
) -> dict[str, Tensor]:
    """SimGCD's parts by name, ``divergence`` (DKL) and ``known_entropy`` (LER), and the weighted sum as ``total``.

    ``mean_prediction`` (K) is a constant; ``simgcd`` are the other arguments of ``simgcd_losses``. The divergence
    belongs to the unsupervised side and shares its weight. With both weights 0 the total is SimGCD's, bit for bit.

    >>> _ = torch.manual_seed(0)
    >>> parts = legogcd_losses(torch.randn(8, 256), torch.rand(8, 3), torch.tensor([0, -1, 1, -1]),
    ...                        torch.full((3,), 1 / 3), n_known=2, threshold=0.7, known_entropy_weight=2.0,
    ...                        teacher_temperature=0.07, entropy_weight=1.0)
    >>> sorted(set(parts) - {"cross_entropy", "distillation", "info_nce", "mean_entropy", "sup_con"})
    ['divergence', 'known_entropy', 'total']
    """
    shared = {"supervised_weight": supervised_weight, "student_temperature": student_temperature}
    parts = simgcd_losses(projections, logits, labels, **shared, **simgcd)
    log_student = F.log_softmax(logits / student_temperature, dim=1)  # 2B×K
    selected = confident_known(log_student.exp(), labels, n_known=n_known, threshold=threshold)
    parts["divergence"] = view_divergence(log_student, plain=plain_divergence)
    parts["known_entropy"] = known_entropy(logits, selected, mean_prediction)
    parts["total"] = (
        parts["total"]
        + (1 - supervised_weight) * divergence_weight * parts["divergence"]
        + known_entropy_weight * parts["known_entropy"]
    )
    return parts


def view_divergence(log_predictions: Tensor, *, plain: bool = False) -> Tensor:
    """DKL: how far the second view's prediction b is from the first's, a; mean over images, labelled or not.

    ``log_predictions`` (2B×K) are log-probabilities. As released, the probabilities pass through a softmax once more
    where they are compared, but not as weights: Σ a·(log softmax a − log softmax b), which may be below 0. ``plain`` is
    the divergence of the paper's text, Σ a·(log a − log b). Gradient flows through both views.

    >>> predictions = torch.tensor([[0.5, 0.5], [0.731059, 0.268941]])
    >>> round(view_divergence(predictions.log()).item(), 6)
    0.02646
    """
    predictions = log_predictions.exp()
    first, second = (log_predictions if plain else F.log_softmax(predictions, dim=1)).chunk(2)
    return (predictions[: len(first)] * (first - second)).sum(dim=1).mean()


@torch.no_grad()
def confident_known(predictions: Tensor, labels: Tensor, *, n_known: int, threshold: float) -> Tensor:
    """Which views LER takes (2B booleans): of unlabelled images, with a known class at ``threshold`` or more on top.

    >>> predictions = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.8, 0.2]])
    >>> confident_known(predictions, torch.tensor([-1, -1]), n_known=1, threshold=0.7).tolist()
    [True, False, False, True]
    """
    confidence, predicted = predictions.max(dim=1)
    return (labels.repeat(2) < 0) & (confidence >= threshold) & (predicted < n_known)


def known_entropy(logits: Tensor, selected: Tensor, mean_prediction: Tensor) -> Tensor:
    """LER (Eq. 10): entropy of the selected views, the logarithm with a margin for classes predicted often.

    ``logits`` are 2B×K cosines, ``selected`` 2B booleans; the mean is over all 2B rows, so none selected gives 0.

    >>> selected, even = torch.tensor([True, True]), torch.tensor([0.5, 0.5])
    >>> round(known_entropy(torch.tensor([[0.2, 0.0], [0.2, 0.0]]), selected, even).item(), 6)
    0.090095
    """
    sharp = logits / SHARP
    with_margin = F.log_softmax(sharp + MARGIN * mean_prediction.log(), dim=1)
    entropy = -(F.softmax(sharp, dim=1) * with_margin).sum(dim=1)  # 2B
    return entropy.masked_fill(~selected, 0.0).mean()


@torch.no_grad()
def updated_mean_prediction(mean_prediction: Tensor, logits: Tensor, momentum: float = 0.999) -> Tensor:
    """The running mean (K) after one more batch: of softmax(logits), at temperature 1; it starts at 1/K for each class.

    >>> updated_mean_prediction(torch.tensor([0.5, 0.5]), torch.tensor([[100.0, 0.0]]), momentum=0.5).tolist()
    [0.75, 0.25]
    """
    return momentum * mean_prediction + (1 - momentum) * F.softmax(logits, dim=1).mean(dim=0)
