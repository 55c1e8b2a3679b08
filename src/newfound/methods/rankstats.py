"""RankStats+ (Han et al., ICLR 2020; Vaze et al., CVPR 2022): images whose strongest features agree belong together.

Two images are taken for the same class if the same few dimensions are the largest of their features. These guesses
about pairs teach one linear classifier over all classes, labelled images teach it by cross-entropy, and a third term,
which grows slowly, asks the two views of an image for the same prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from newfound.losses import labelled_cross_entropy
from newfound.methods import Needs
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_at_least_1, require_not_negative, require_share
from newfound.settings.value_types import checks_names
from newfound.training.classifiers import LinearClassifier
from newfound.training.learner import Batch, Learner, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.start import start_at_clusters
from newfound.training.task import Task

NAME = "rankstats"
ABOUT = "a classifier taught by labels and by pairs whose strongest features agree (RS+); one training."
SOURCE = """\
Han, Rebuffi, Ehrhardt, Vedaldi, Zisserman: Automatically Discovering and Learning New Visual Categories with Ranking
Statistics, ICLR 2020; github k-han/AutoNovel (no licence; written from the mathematics). RS+, with one classifier over
all classes, is Vaze and others: Generalized Category Discovery, CVPR 2022. Losses and schedules match the released
code; labels decide pairs of labelled images, and on your own folder, the classifier starts at clusters."""
DEFAULTS: Mapping[str, object] = {"weight_decay": 1e-4}
# Rates, weights and ramps: the launch script of RS+. It has none for Aircraft, which gets those of CUB and Cars.
_FINE: Mapping[str, object] = {"learning_rate": 0.001, "consistency_weight": 50.0, "ramp": 0.75}
_GENERIC: Mapping[str, object] = {**_FINE, "learning_rate": 0.1}
PRESETS: Mapping[str, Mapping[str, object]] = {
    "generic": _GENERIC,
    "fine-grained": _FINE,
    "cifar10": {**_GENERIC, "consistency_weight": 5.0, "ramp": 0.25, "start": "random"},
    "cifar100": {**_GENERIC, "start": "random"},
    "imagenet100": {**_GENERIC, "start": "random"},
    "cub": {**_FINE, "start": "random"},
    "cars": {**_FINE, "start": "random"},
    "aircraft": {**_FINE, "start": "random"},
    "herbarium": {**_FINE, "start": "random"},
}
NEEDS = Needs()

TINY = 1e-7  # added to probabilities before the logarithm, as published
STEP = 0.85  # of the epochs: the learning rate then falls to a tenth (170 of 200)


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of RankStats+; the defaults are its published values unless a line says otherwise."""

    start: Literal["clusters", "random"] | None = None
    """Where the classifier starts. clusters: means of the labelled images, and k-means centres of the frozen features
    for the new classes. random: as published. Default: clusters, but random for the preset of a data set."""
    strongest: int = 5
    """How many of the largest features have to agree for two images to be taken for the same class (the paper's k). A
    smaller number finds more such pairs; positive_pairs in log.jsonl is their share."""
    labelled_pairs: Literal["labels", "ranking"] = "labels"
    """What decides whether two labelled images are of the same class. labels: their labels. ranking: their features, as
    for all other pairs, which is what the released code does, though it means to use the labels."""
    consistency_weight: float | None = None
    """Weight of the difference between the predictions for two views, once it has grown. Default: by --preset."""
    ramp: float | None = None
    """The share of the training in which that weight grows; 0: none. Default: by --preset."""
    rate_schedule: Literal["as-published", "as-run"] = "as-published"
    """How the learning rate falls. as-published: to a tenth after 85 % of the epochs. as-run: to a tenth after 42.5 %
    and to a hundredth after 85 %, as in the released code of RS+, which advances its schedule twice in an epoch."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = filled(s, {"start": "clusters", **PRESETS[facts.preset]})
    require_at_least_1(s, "strongest")
    require_not_negative(s, "consistency_weight")
    require_share(s, "ramp")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training."""
    return train(task, RankStats(task, s))


class RankStats(Learner):
    """Tail of the backbone and a linear classifier on its features as they are."""

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        self.s, self.epochs = s, task.training.epochs
        with task.drawn():
            self.tail = task.new_tail()
            self.classifier = LinearClassifier(task.feature_dim, task.classes)

    def begin(self, task: Task) -> None:
        if self.s.start == "clusters":
            start_at_clusters(self.classifier, task.frozen(), task.clusters().clusters, task.labels)
            nn.init.zeros_(self.classifier.bias)

    def losses(self, batch: Batch) -> Step:
        with batch.autocast():
            features = self.tail(batch.tokens).float()  # 2b×d
        logits = self.classifier(features)
        parts = rankstats_losses(
            batch.everyone(features.detach()), batch.everyone(logits), batch.labels,
            **self.schedule(batch.epoch), strongest=self.s.strongest, labels_decide=self.s.labelled_pairs == "labels",
        )  # fmt: skip
        return Step(parts)

    def learning_rate(self, epoch: int, training: Training) -> float:
        step = max(1, round(STEP * training.epochs))
        return stepped_rate(epoch, training.learning_rate, step, as_run=self.s.rate_schedule == "as-run")

    def schedule(self, epoch: int) -> dict[str, float]:
        s = self.s
        assert s.consistency_weight is not None  # decided settings have them
        assert s.ramp is not None
        return {"consistency_weight": ramped_weight(epoch, s.consistency_weight, s.ramp * self.epochs)}

    def predictor(self) -> Predictor:
        return Predictor(self.tail, self.classifier, temperature=1.0)


def rankstats_losses(
    features: Tensor,
    logits: Tensor,
    labels: Tensor,
    *,
    consistency_weight: float,
    strongest: int = 5,
    labels_decide: bool = True,
) -> dict[str, Tensor]:
    """Every part of the loss by name, and their weighted sum as ``total``.

    ``features`` (2B×d) are constants, of which the first views are ranked; ``logits`` 2B×K; ``labels`` B with -1 for
    unlabelled. ``positive_pairs`` is the share of positives among pairs of two images that ranking decides, for the
    log. The consistency counts twice, as in the released code: there once for each of two heads, of which RS+ has one.

    >>> parts = rankstats_losses(torch.eye(2).repeat(2, 1), torch.zeros(4, 2), torch.tensor([0, -1]),
    ...                          consistency_weight=1.0, strongest=1)
    >>> {name: round(part.item(), 4) for name, part in parts.items()}
    {'pairs': 0.6931, 'cross_entropy': 0.6931, 'consistency': 0.0, 'positive_pairs': 0.0, 'total': 1.3863}
    """
    same, by_labels = same_class(features[: len(labels)], labels, strongest, labels_decide=labels_decide)
    first, second = logits.softmax(dim=1).chunk(2)  # B×K each
    parts = {
        "pairs": pair_loss(first, second, same),
        "cross_entropy": labelled_cross_entropy(logits[: len(labels)].log_softmax(dim=1), labels),  # of the first views
        "consistency": 2 * consistency(first, second),
        "positive_pairs": _share_of_positives(same, by_labels),
    }
    parts["total"] = parts["pairs"] + parts["cross_entropy"] + consistency_weight * parts["consistency"]
    return parts


@torch.no_grad()
def same_class(
    features: Tensor, labels: Tensor, strongest: int, *, labels_decide: bool = True
) -> tuple[Tensor, Tensor]:
    """Which pairs are taken for the same class (s of the paper), and which answers are the labels': B×B booleans each,
    from ``features`` B×d and ``labels`` B.

    Two images are, if their ``strongest`` dimensions are the same ones in any order; two labelled images, if their
    labels are equal.

    >>> rows = torch.tensor([[9.0, 8, 1, 0], [5, 6, 0, 1], [0, 9, 8, 1]])
    >>> same_class(rows, torch.tensor([-1, -1, -1]), strongest=2)[0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    largest = largest_dimensions(features, strongest).float()
    same = largest @ largest.T == largest.sum(dim=1)  # how many they share: all
    labelled = labels >= 0
    by_labels = labelled[:, None] & labelled[None, :] & labels_decide
    return torch.where(by_labels, labels[:, None] == labels[None, :], same), by_labels


def largest_dimensions(features: Tensor, count: int) -> Tensor:
    """Which ``count`` entries of each row are its largest, not by absolute value: B×d to B×d booleans. Of equal entries
    those of lower number come first.

    >>> largest_dimensions(torch.tensor([[1.0, 3.0, 3.0, 3.0], [9.0, -9.0, 2.0, 8.0]]), 2).int().tolist()
    [[0, 1, 1, 0], [1, 0, 0, 1]]
    """
    least = features.topk(min(count, features.shape[1]), dim=1).values[:, -1:]
    above, equal = features > least, features == least
    return above | (equal & (equal.cumsum(dim=1) <= count - above.sum(dim=1, keepdim=True)))


def pair_loss(first: Tensor, second: Tensor, same: Tensor) -> Tensor:
    """Binary cross-entropy of all ordered pairs (L_BCE of the paper): the dot product of two predictions is the
    probability of the same class.

    ``first`` and ``second`` (B×K) are predictions for two views; row i of ``same`` (B×B) is image i's second view,
    column j image j's first.

    >>> round(pair_loss(torch.eye(2), torch.eye(2), torch.ones(2, 2, dtype=torch.bool)).item(), 3)
    8.059
    """
    agreement = (second @ first.T).clamp(max=1.0)  # B×B; rounding may take it above
    return -torch.where(same, agreement + TINY, 1 - agreement + TINY).log().mean()


def consistency(first: Tensor, second: Tensor) -> Tensor:
    """Mean squared difference between the predictions for two views, B×K each (L_MSE of the paper).

    >>> consistency(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])).item()
    0.25
    """
    return (first - second).square().mean()


def ramped_weight(epoch: int, weight: float, ramp_epochs: float) -> float:
    """The weight of the consistency (ω(t) of the paper): w·exp(−5(1 − e/L)²) in the first L epochs, then w.

    >>> [round(ramped_weight(epoch, 50.0, 4), 3) for epoch in range(6)]
    [0.337, 3.003, 14.325, 36.581, 50.0, 50.0]
    """
    if epoch >= ramp_epochs:
        return weight
    return weight * math.exp(-5 * (1 - epoch / ramp_epochs) ** 2)


def stepped_rate(epoch: int, start: float, step: int, *, as_run: bool = False) -> float:
    """The learning rate: a tenth of it after ``step`` epochs. As run, it counts both ends of each epoch.

    >>> [stepped_rate(epoch, 1.0, 4) for epoch in range(5)]
    [1.0, 1.0, 1.0, 1.0, 0.1]
    """
    advanced = 2 * epoch + 1 if as_run else epoch
    return start * math.pow(0.1, advanced // step)


def _share_of_positives(same: Tensor, by_labels: Tensor) -> Tensor:
    """Among the pairs of two images that ranking decides."""
    asked = ~by_labels & ~torch.eye(len(same), dtype=torch.bool, device=same.device)
    return (same & asked).sum() / asked.sum().clamp(min=1)
