"""μGCD (Vaze et al., NeurIPS 2023): GCD's features, then a classifier that learns from a mean teacher's predictions.

There is no released code: this is written from the paper, and no number of ours is a reproduction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from newfound.kmeans import kmeans
from newfound.losses import labelled_cross_entropy, mean_entropy
from newfound.methods import Needs, gcd, simgcd
from newfound.methods.gcd import GCD
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_share
from newfound.settings.value_types import checks_names
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Batch, Learner, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.start import start_at_clusters
from newfound.training.task import Task
from newfound.training.teacher import ema_, frozen_copy, teacher_momentum

NAME = "mugcd"
ABOUT = (
    "GCD's features, then a classifier taught by a mean teacher on strongly augmented views; two trainings "
    "(a reading: no code is public)."
)
SOURCE = """\
Vaze, Vedaldi, Zisserman: No Representation Rules Them All in Category Discovery, NeurIPS 2023. No code is public: this
is a reading of the paper, not a reproduction; losses, schedule and order of updates match an independent reference. On
your own folder, the classifier starts at clusters of the first training's features."""
READING = True
DEFAULTS: Mapping[str, object] = {}
PRESETS: Mapping[str, Mapping[str, object]] = simgcd.PRESETS  # the weight of the mean entropy is SimGCD's: a reading
NEEDS = Needs(strong_view=True, first_training="gcd", first_training_from="stage1")


@checks_names
@dataclass(frozen=True)
class Settings(simgcd.Settings):
    """Of μGCD: those of GCD's features and of the classifier, and the teacher's."""

    momentum_start: float = 0.7
    """Momentum of the teacher in the first step: how much of itself it keeps when it follows the student."""
    momentum_end: float = 0.999
    """Momentum of the teacher after the last step, reached along a cosine."""
    predict_with: Literal["teacher", "student"] = "teacher"
    """Which of the two networks labels images."""
    stage1: Path | None = None
    """Take the first training from this run of --method gcd, on the same images with the same backbone and number of
    classes."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = simgcd.checked(filled(s, {**simgcd.rules(facts, t), **PRESETS.get(facts.preset, {})}))
    require_share(s, "momentum_start", "momentum_end")
    gcd.check_new_classes(facts)
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 2


def fit(task: Task, s: Settings) -> Trained:
    """GCD's training, then the classifier on its features."""
    contrast = gcd.Settings(s.supervised_weight, s.info_nce_temperature, s.sup_con_temperature)
    features = train(task, GCD(task, contrast, starts=1))  # its clusters serve the log alone
    return train(task, MeanTeacher(task, s, features), stage=2)


class MeanTeacher(Learner):
    """A student, tail and classifier, that sees the first views; and its teacher, which sees the second ones."""

    strong_view = True

    def __init__(self, task: Task, s: Settings, features: Trained) -> None:
        super().__init__()
        self.s, self.features = s, features.prediction.features
        with task.drawn():
            classifier = CosineClassifier(task.feature_dim, task.classes)
        self.student = nn.ModuleDict({"tail": features.predictor.tail, "classifier": classifier})
        self.teacher = frozen_copy(self.student)

    def begin(self, task: Task) -> None:
        if self.s.start == "clusters":
            rows = self.features.numpy()
            clusters = kmeans(rows, task.classes, task.seed).clusters
            classifier = self.student["classifier"]
            assert isinstance(classifier, CosineClassifier)
            start_at_clusters(classifier, rows, clusters, task.labels)
        self.teacher.load_state_dict(self.student.state_dict())

    def losses(self, batch: Batch) -> Step:
        s = self.s
        assert s.entropy_weight is not None  # decided settings have it
        first, second = batch.tokens.chunk(2)
        with torch.no_grad():
            targets = _cosines(self.teacher, second, batch)
        both = batch.everyone(torch.cat([_cosines(self.student, first, batch), targets]))  # 2B×K
        student, teacher = both.chunk(2)
        temperature = self.schedule(batch.epoch)["teacher_temperature"]
        parts = mugcd_losses(
            student, teacher, batch.labels, teacher_temperature=temperature, entropy_weight=s.entropy_weight,
            supervised_weight=s.supervised_weight, student_temperature=s.student_temperature,
        )  # fmt: skip
        return Step(parts)

    def after_step(self, batch: Batch, kept: Mapping[str, Tensor]) -> None:
        momentum = teacher_momentum(batch.step, batch.steps, self.s.momentum_start, self.s.momentum_end)
        ema_(self.teacher, self.student, momentum)

    def schedule(self, epoch: int) -> dict[str, float]:
        return simgcd.schedule_of(self.s, epoch)

    def encode(self, tokens: Tensor) -> Tensor:
        features: Tensor = self._answering()["tail"](tokens)
        return features

    def predictor(self) -> Predictor:
        network = self._answering()
        classifier = network["classifier"]
        assert isinstance(classifier, CosineClassifier)
        return Predictor(network["tail"], classifier, self.s.student_temperature)

    def _answering(self) -> nn.ModuleDict:
        return self.teacher if self.s.predict_with == "teacher" else self.student


def _cosines(network: nn.ModuleDict, tokens: Tensor, batch: Batch) -> Tensor:
    """b×K, of one view of this process's images."""
    with batch.autocast():
        features = network["tail"](tokens)
    logits: Tensor = network["classifier"](features.float())
    return logits


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
        "cross_entropy": labelled_cross_entropy(log_student, labels),  # of one view, the student's
        "mean_entropy": mean_entropy(log_student),
    }
    balanced = supervised_weight * parts["cross_entropy"] + (1 - supervised_weight) * parts["distillation"]
    parts["total"] = balanced + entropy_weight * parts["mean_entropy"]
    return parts
