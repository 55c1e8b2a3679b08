"""ORCA (Cao et al., ICLR 2022): known classes are held back by a margin until the model is certain of the unlabelled.

A classifier learns known classes faster than new ones, and then puts new images into known classes. Here cross-entropy
is made easier by a margin, the larger the less certain the model is of the unlabelled images. Meanwhile each image is
asked to agree with a partner, one of its own class or its nearest neighbour, and the mean prediction is kept even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from newfound.losses import labelled_cross_entropy
from newfound.methods import Needs
from newfound.neighbours import nearest_neighbours
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_not_negative, require_share
from newfound.settings.value_types import checks_names
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Batch, Between, Learner, Prediction, Predictor, Step
from newfound.training.loop import Trained, all_features, classified, train
from newfound.training.samplers import all_alike
from newfound.training.start import start_at_clusters
from newfound.training.task import Task

NAME = "orca"
ABOUT = "pairs of similar images learn to agree, while a margin slows down the known classes; one training."
SOURCE = """\
Cao, Brbić, Leskovec: Open-World Semi-Supervised Learning, ICLR 2022; github snap-stanford/orca (MIT). Losses and
uncertainty match the released code, which is for ResNets; here, tail and classifier are trained like those of the other
methods, with their learning rate. On your own folder, the classifier starts at clusters."""
DEFAULTS: Mapping[str, object] = {}
# Batches and weight decay: the released scripts. Nothing is published for the other data sets; all start at random.
PRESETS: Mapping[str, Mapping[str, object]] = {
    "cifar10": {"start": "random", "batch_size": 512, "weight_decay": 5e-4},
    "cifar100": {"start": "random", "batch_size": 512, "weight_decay": 5e-4},
    "imagenet100": {"start": "random", "batch_size": 512, "weight_decay": 1e-4},
    **{name: {"start": "random"} for name in ("cub", "cars", "aircraft", "herbarium")},
}
NEEDS = Needs()

SCALE = 10.0  # logits are cosines times this, as released
LOWEST_LOGARITHM = -100.0  # of how far two predictions agree
LEAST_PROBABILITY = 1e-8  # in the entropy of the mean prediction


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of ORCA; the defaults are the published values unless a line says otherwise."""

    start: Literal["clusters", "random"] | None = None
    """Where the classifier starts. clusters: means of the labelled images, and k-means centres of the frozen features
    for the new classes. random: as published. Default: clusters, but random for the preset of a data set."""
    largest_margin: float = 0.5
    """The margin of known classes, as a cosine, while the model is uncertain; below it the margin is the uncertainty
    itself. 0: plain cross-entropy."""
    pair_weight: float = 1.0
    """Weight of the agreement of each image with its partner."""
    entropy_weight: float = 1.0
    """Weight of the entropy of the mean prediction, which keeps classes from staying empty."""
    batches: Literal["alike", "half-labelled"] = "alike"
    """Which images a batch is drawn from. alike: all of them with equal chances, as published. half-labelled: labelled
    ones more often, so that they are half of a batch, as for the other methods; --label-balance is then an option."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = filled(s, {"start": "clusters", **PRESETS.get(facts.preset, {})})
    require_share(s, "largest_margin")
    require_not_negative(s, "pair_weight", "entropy_weight")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training."""
    return train(task, ORCA(task, s), draw=all_alike if s.batches == "alike" else None)


class ORCA(Learner):
    """Tail of the backbone and classifier. In memory: ``margin``, that of the epoch, found before it."""

    temporary = ("margin",)

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        self.s, self.task = s, task
        self.unlabelled = torch.from_numpy(np.flatnonzero(task.labels < 0))
        with task.drawn():
            self.tail = task.new_tail()
            self.classifier = CosineClassifier(task.feature_dim, task.classes)

    def begin(self, task: Task) -> None:
        if self.s.start == "clusters":
            start_at_clusters(self.classifier, task.frozen(), task.clusters().clusters, task.labels)

    def between_epochs(self, epoch: int, prediction: Prediction | None) -> Between:
        """The margin depends on the model alone, as it is now: a run that is resumed finds the same one."""
        if prediction is None:  # before the first epoch nobody has asked it yet
            prediction = classified(self.task, self, all_features(self.task, self))
        asked = prediction.probabilities[self.unlabelled]
        margin = min(uncertainty(asked), self.s.largest_margin) if len(asked) else 0.0
        return Between(memory={"margin": torch.tensor(margin)})

    def losses(self, batch: Batch) -> Step:
        with batch.autocast():
            features = self.tail(batch.tokens)  # 2b×d
        features = features.float()
        logits = batch.everyone(SCALE * self.classifier(features))  # 2B×K
        first, _ = batch.everyone(features.detach()).chunk(2)
        # Both passes of the sharpness penalty draw the same partners for labelled images. Neighbours of the unlabelled
        # ones are found in each pass with the weights it is at: nearly always the same, as the climb is short.
        draws = torch.from_numpy(batch.random().random(len(batch.labels), dtype=np.float32)).to(first.device)
        parts = orca_losses(
            logits, batch.labels, partners(first, batch.labels, draws), margin=self.memory["margin"],
            pair_weight=self.s.pair_weight, entropy_weight=self.s.entropy_weight,
        )  # fmt: skip
        return Step(parts)

    def schedule(self, epoch: int) -> dict[str, float]:
        return {"margin": self.memory["margin"].item()}

    def predictor(self) -> Predictor:
        return Predictor(self.tail, self.classifier, 1 / SCALE)


def orca_losses(
    logits: Tensor,
    labels: Tensor,
    partner: Tensor,
    *,
    margin: float | Tensor,
    pair_weight: float = 1.0,
    entropy_weight: float = 1.0,
) -> dict[str, Tensor]:
    """Every part of the loss by name, and their weighted sum as ``total``: the paper's objective.

    ``logits`` (2B×K) are cosines times 10, first views then second views; ``labels`` B with -1 for unlabelled;
    ``partner`` B, an image of the batch for each. The entropy is subtracted.

    >>> parts = orca_losses(torch.zeros(4, 2), torch.tensor([0, -1]), torch.tensor([0, 0]), margin=0.5)
    >>> {name: round(part.item(), 6) for name, part in parts.items()}
    {'pair': 0.693147, 'cross_entropy': 0.006715, 'entropy': 0.693147, 'total': 0.006715}
    """
    if len(logits) != 2 * len(labels) or partner.shape != labels.shape:
        raise ValueError(
            f"expected two rows of logits and a partner for each of {len(labels)} images; "
            f"found shapes {tuple(logits.shape)} and {tuple(partner.shape)}"
        )
    first, second = logits.chunk(2)
    parts = {
        "pair": pair_loss(first, second[partner]),
        "cross_entropy": margin_cross_entropy(first, labels, margin),
        "entropy": entropy(first.softmax(dim=1).mean(dim=0)),
    }
    parts["total"] = pair_weight * parts["pair"] + parts["cross_entropy"] - entropy_weight * parts["entropy"]
    return parts


@torch.no_grad()
def partners(features: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
    """Whom each image of a batch is to agree with: B numbers of images.

    A labelled one: another labelled image of its class; ``draws`` (B numbers from 0 to below 1) says which of them, in
    their order; itself where there is none. An unlabelled one: the most similar other image, labelled or not, by the
    cosine of ``features`` (B×d, first views); of equally similar ones the first.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.9, 0.2]])
    >>> partners(features, torch.tensor([0, 0, 1, -1]), torch.zeros(4)).tolist()
    [1, 0, 2, 2]
    """
    itself = torch.arange(len(labels), device=labels.device)
    of_class = (labels[:, None] == labels[None, :]) & (labels >= 0) & (itself[:, None] != itself)  # B×B
    others = of_class.sum(dim=1)
    wanted = torch.minimum((draws * others).long(), others - 1)  # -1 where there is none
    drawn = (of_class & (of_class.cumsum(dim=1) == wanted[:, None] + 1)).long().argmax(dim=1)
    partner = torch.where(others > 0, drawn, itself)
    if len(labels) == 1:
        return partner
    rows = F.normalize(features, dim=1)
    _, nearest = nearest_neighbours(rows, rows, 1, exclude=itself)
    return torch.where(labels < 0, nearest[:, 0], partner)


def pair_loss(logits: Tensor, partner_logits: Tensor) -> Tensor:
    """The pairwise objective: minus the logarithm of two predictions' inner product, both B×K logits; mean over B.

    Gradient flows through both. The logarithm is at least -100.

    >>> round(pair_loss(torch.zeros(3, 4), torch.rand(3, 4)).item(), 4)  # log 4, whatever the partners say
    1.3863
    """
    both = F.log_softmax(logits, dim=1) + F.log_softmax(partner_logits, dim=1)
    return -both.logsumexp(dim=1).clamp_min(LOWEST_LOGARITHM).mean()


def margin_cross_entropy(logits: Tensor, labels: Tensor, margin: float | Tensor) -> Tensor:
    """The supervised objective with its margin: cross-entropy with the target's logit raised by 10 · ``margin``.

    ``logits`` is B×K, cosines times 10; ``labels`` B with -1 for unlabelled. Mean over the labelled images; 0 without
    any.

    >>> round(margin_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), 0.5).item(), 6)  # log(1 + exp(-5))
    0.006715
    """
    target = (labels[:, None] == torch.arange(logits.shape[1], device=labels.device)).to(logits.dtype)  # B×K
    return labelled_cross_entropy(F.log_softmax(logits + SCALE * margin * target, dim=1), labels)


def entropy(probabilities: Tensor) -> Tensor:
    """The regularisation term, up to its sign and a constant: the entropy of one prediction (K).

    Probabilities below 1e-8 count as 1e-8, without gradient.

    >>> round(entropy(torch.tensor([0.5, 0.5, 0.0])).item(), 5)
    0.69315
    """
    clamped = probabilities.clamp_min(LEAST_PROBABILITY)
    return -(clamped * clamped.log()).sum()


def uncertainty(probabilities: Tensor) -> float:
    """One less the mean confidence of predictions, n×K with n at least 1.

    >>> uncertainty(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    0.25
    """
    return 1 - float(probabilities.max(dim=1).values.double().mean())
