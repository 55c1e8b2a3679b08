"""UNO+ (Fini et al., ICCV 2021; Vaze et al., CVPR 2022): one objective for labelled and unlabelled images.

The target of a labelled image is its label. That of an unlabelled one is a pseudo-label made from its other view by
Sinkhorn-Knopp, which spreads the images of a batch evenly over all classes, known ones too. Several heads learn the new
classes side by side, each with a twin of more classes ("over-clustering"), and the one with the lowest loss answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from newfound.errors import SettingError
from newfound.methods import Needs
from newfound.settings import DataFacts, Training, filled
from newfound.settings.presets import DATA_SETS
from newfound.settings.ranges import require_at_least_1, require_not_negative, require_positive
from newfound.settings.value_types import checks_names
from newfound.sinkhorn import sinkhorn
from newfound.training.classifiers import PrototypeHead, SplitClassifier, at_least_single
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Batch, Between, Learner, Prediction, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.start import start_at_labelled_means
from newfound.training.task import Task

NAME = "uno"
ABOUT = "a classifier taught by labels and by pseudo-labels spread evenly over the classes (UNO+); one training."
SOURCE = """\
Fini, Sangineto, Lathuilière, Zhong, Nabi, Ricci: A Unified Objective for Novel Class Discovery, ICCV 2021; github
DonkeyShot21/UNO (MIT). UNO+, whose pseudo-labels may be known classes, is Vaze and others: Generalized Category
Discovery, CVPR 2022. Losses, heads and schedule match the released code; there is one head on a CPU, and on your own
folder, the known classes start at their labelled images."""
DEFAULTS: Mapping[str, object] = {"weight_decay": 1e-4}
# The one launch script that is public is ImageNet-100's; its values serve all data sets.
_PUBLISHED: Mapping[str, object] = {"batch_size": 256, "heads": 5, "start": "random"}
PRESETS: Mapping[str, Mapping[str, object]] = dict.fromkeys(DATA_SETS, _PUBLISHED)
NEEDS = Needs()

LOWEST_RATE = 0.001  # which warm-up starts from and the cosine ends at, unless the learning rate itself is lower


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of UNO+; the defaults are its published values unless a line says otherwise."""

    start: Literal["clusters", "random"] | None = None
    """Where the known classes start. clusters: at the means of their labelled images. random: as published. New classes
    always start at random. Default: clusters, but random for the preset of a data set."""
    heads: int | None = None
    """Heads for the new classes, of which the one with the lowest loss answers; each costs two MLPs. Default: 5 as
    published for the preset of a data set or on a GPU, 1 on a CPU."""
    overclustering: int = 3
    """How many times as many new classes the twin of each head has."""
    student_temperature: float = 0.1
    """Sharpness of the predictions: cosines are divided by it."""
    sinkhorn_epsilon: float = 0.05
    """Sharpness of the pseudo-labels: cosines are divided by it."""
    sinkhorn_iterations: int = 3
    """How many times Sinkhorn-Knopp evens out the classes of a batch."""
    warmup_epochs: int | None = None
    """Epochs in which the learning rate rises from 0.001 to its full value; fewer than all. Default: a twentieth of
    all, as published, at least 1; in a training of a single epoch 0."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    warmup = min(max(1, t.epochs // 20), t.epochs - 1)
    rules = {"start": "clusters", "heads": 1 if t.device == "cpu" else 5, "warmup_epochs": warmup}
    s = filled(s, {**rules, **PRESETS.get(facts.preset, {})})
    assert s.warmup_epochs is not None
    require_at_least_1(s, "heads", "overclustering", "sinkhorn_iterations")
    require_positive(s, "student_temperature", "sinkhorn_epsilon")
    require_not_negative(s, "warmup_epochs")
    if s.warmup_epochs >= t.epochs:
        why = f"leaves no epoch at the full learning rate: there are only {t.epochs} epochs"
        raise SettingError("warmup_epochs", s.warmup_epochs, why)
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training."""
    return train(task, UNO(task, s))


class UNO(Learner):
    """Tail of the backbone, directions of the known classes, and heads with prototypes for the new ones: ``new`` and
    their twins ``over``. In memory: ``head_losses``, the sum over this epoch's steps for each of ``new``.

    Directions and prototypes have length 1 before every step, and no gradient flows through that normalisation.
    """

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        assert s.heads is not None  # decided settings have it
        self.s, n_new = s, task.classes - task.n_known
        width = task.training.projector_width
        with task.drawn():
            self.tail = task.new_tail()
            self.known = CosineClassifier(task.feature_dim, task.n_known)
            self.new = _heads(s.heads, task.feature_dim, n_new, width)
            self.over = _heads(s.heads, task.feature_dim, s.overclustering * n_new, width)
        self.memory.put("head_losses", torch.zeros(s.heads))

    @property
    def every_head(self) -> list[PrototypeHead]:
        return [*self.new, *self.over]

    def begin(self, task: Task) -> None:
        if self.s.start == "clusters":
            start_at_labelled_means(self.known, task.frozen(), task.labels)
        self.normalise()

    @torch.no_grad()
    def normalise(self) -> None:
        """Every direction and prototype to length 1."""
        for classifier in (self.known, *(head.prototypes for head in self.every_head)):
            classifier.weight.copy_(F.normalize(classifier.weight, dim=1))

    def between_epochs(self, epoch: int, prediction: Prediction | None) -> Between:
        return Between(memory={"head_losses": torch.zeros_like(self.memory["head_losses"])})

    def losses(self, batch: Batch) -> Step:
        with batch.autocast():
            features = self.tail(batch.tokens)  # 2b×d
            embedded, moments = zip(*(head.embedded(features, batch.mean) for head in self.every_head), strict=True)
        rows = (at_least_single(features), *embedded)
        weights = (self.known.weight, *(head.prototypes.weight for head in self.every_head))
        logits = [F.linear(F.normalize(r, dim=1), weight) for r, weight in zip(rows, weights, strict=True)]
        widths = [len(weight) for weight in weights]
        known, *of_heads = torch.split(batch.everyone(torch.cat(logits, dim=1)), widths, dim=1)  # 2B rows each
        parts = uno_losses(
            known, of_heads[: len(self.new)], of_heads[len(self.new) :], batch.labels,
            temperature=self.s.student_temperature, epsilon=self.s.sinkhorn_epsilon,
            iterations=self.s.sinkhorn_iterations,
        )  # fmt: skip
        kept = {"moments": torch.stack(moments), "head_losses": parts["cluster"].detach()}
        return Step({name: part.mean() for name, part in parts.items()}, kept)

    def after_step(self, batch: Batch, kept: Mapping[str, Tensor]) -> None:
        self.memory["head_losses"].add_(kept["head_losses"])
        for head, moments in zip(self.every_head, kept["moments"], strict=True):
            head.norm.follow(moments, len(batch.labels))
        self.normalise()

    def learning_rate(self, epoch: int, training: Training) -> float:
        assert self.s.warmup_epochs is not None  # decided settings have it
        highest = training.learning_rate
        return warmed_rate(epoch, training.epochs, self.s.warmup_epochs, highest, min(LOWEST_RATE, highest))

    def predictor(self) -> Predictor:
        best = self.new[int(self.memory["head_losses"].argmin())]  # the first of equals
        assert isinstance(best, PrototypeHead)
        return Predictor(self.tail, SplitClassifier(self.known, best), self.s.student_temperature)


def _heads(count: int, feature_dim: int, n_classes: int, hidden_dim: int) -> nn.ModuleList:
    return nn.ModuleList(PrototypeHead(feature_dim, n_classes, hidden_dim) for _ in range(count))


def uno_losses(
    known: Tensor,
    new: Sequence[Tensor],
    over: Sequence[Tensor],
    labels: Tensor,
    *,
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
    new_only: bool = False,
) -> dict[str, Tensor]:
    """The loss of each head as ``cluster`` and of its twin as ``over`` (H each), and the mean of all as ``total``.

    ``known`` (2B×K_known) are cosines with the known classes, which all heads share; ``new`` and ``over`` have for each
    head those with its own classes (2B×K_new, 2B×c·K_new); ``labels`` B with -1 for unlabelled. ``new_only`` is UNO as
    it was for novel class discovery: pseudo-labels are new classes.

    >>> even = torch.zeros(2, 1)
    >>> parts = uno_losses(even, [even], [even.repeat(1, 3)], torch.tensor([-1]))
    >>> {name: round(part.item(), 4) for name, part in parts.items()}
    {'cluster': 0.6931, 'over': 1.3863, 'total': 1.0397}
    """

    def loss(head: Tensor) -> Tensor:
        first = known.shape[1] if new_only else 0
        return swapped_cross_entropy(torch.cat([known, head], dim=1), labels, temperature, epsilon, iterations, first)

    parts = {"cluster": torch.stack([*map(loss, new)]), "over": torch.stack([*map(loss, over)])}
    parts["total"] = (parts["cluster"].mean() + parts["over"].mean()) / 2
    return parts


def swapped_cross_entropy(
    logits: Tensor, labels: Tensor, temperature: float, epsilon: float, iterations: int, first: int = 0
) -> Tensor:
    """Each view's prediction against the other view's targets, the mean over all 2B rows; ``logits`` is 2B×K.

    >>> views = torch.tensor([[0.1, 0.0], [0.0, 0.1]])  # of one image, labelled 0: one view is right, the other wrong
    >>> round(swapped_cross_entropy(views, torch.tensor([0]), temperature=0.1, epsilon=0.05, iterations=3).item(), 4)
    0.8133
    """
    one, other = logits.chunk(2)
    targets = torch.cat([swapped_targets(view, labels, epsilon, iterations, first) for view in (other, one)])
    return -(targets * F.log_softmax(logits / temperature, dim=1)).sum(dim=1).mean()


@torch.no_grad()
def swapped_targets(logits: Tensor, labels: Tensor, epsilon: float, iterations: int, first: int = 0) -> Tensor:
    """What the other view of each image has to predict, B×K: its label, or its share of the classes from number
    ``first`` on, by Sinkhorn-Knopp over the unlabelled images of this view. ``logits`` is B×K, ``labels`` B.

    >>> swapped_targets(torch.zeros(3, 2), torch.tensor([1, -1, -1]), epsilon=0.05, iterations=3)
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    unlabelled = labels < 0
    targets = F.one_hot(labels.clamp(min=0), logits.shape[1]).to(logits.dtype)
    targets[unlabelled] = 0.0
    targets[unlabelled, first:] = sinkhorn(logits[unlabelled, first:], epsilon, iterations)
    return targets


def warmed_rate(epoch: int, epochs: int, warmup_epochs: int, highest: float, lowest: float) -> float:
    """In a straight line from the lowest rate to the highest, which the last warm-up epoch has; then back towards the
    lowest along a cosine. A single warm-up epoch has the lowest.

    >>> [round(warmed_rate(epoch, 6, 2, 0.1, 0.001), 4) for epoch in range(6)]
    [0.001, 0.1, 0.1, 0.0855, 0.0505, 0.0155]
    """
    if epoch < warmup_epochs:
        return lowest + (highest - lowest) * epoch / max(warmup_epochs - 1, 1)
    done = (epoch - warmup_epochs) / (epochs - warmup_epochs)
    return lowest + (highest - lowest) * (1 + math.cos(math.pi * done)) / 2
