"""SimGCD: a parametric classifier over known and new classes, taught by labels and by its own other view."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import Tensor

from newfound.losses import simgcd_losses
from newfound.methods import Needs
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_at_least_1, require_not_negative, require_positive, require_share
from newfound.settings.value_types import checks_names
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Batch, Learner, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.schedules import teacher_temperature
from newfound.training.start import start_at_clusters
from newfound.training.task import Task

NAME = "simgcd"
ABOUT = "a classifier taught by labels and by its own prediction on another view; one training."
SOURCE = """\
Wen, Zhao, Qi: Parametric Classification for Generalized Category Discovery, ICCV 2023; github CVMI-Lab/SimGCD (MIT).
Losses, heads and schedules match the released code; on your own folder, the classifier starts at clusters."""
DEFAULTS: Mapping[str, object] = {}
# The weight of the mean entropy (one script per data set) and the random start are those of the released scripts.
PRESETS: Mapping[str, Mapping[str, object]] = {
    "cifar10": {"entropy_weight": 1.0, "start": "random"},
    "cifar100": {"entropy_weight": 4.0, "start": "random"},
    "imagenet100": {"entropy_weight": 1.0, "start": "random"},
    "cub": {"entropy_weight": 2.0, "start": "random"},
    "cars": {"entropy_weight": 1.0, "start": "random"},
    "aircraft": {"entropy_weight": 1.0, "start": "random"},
    "herbarium": {"entropy_weight": 1.0, "start": "random"},
}
NEEDS = Needs()

FULL_WARMUP_EPOCHS = 30  # as published


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of SimGCD; the defaults are its published values unless a line says otherwise."""

    start: Literal["clusters", "random"] | None = None
    """Where the classifier starts. clusters: means of the labelled images, and k-means centres of the frozen features
    for the new classes. random: as published. Default: clusters, but random for the preset of a data set."""
    entropy_weight: float | None = None
    """Weight of the mean-entropy term (epsilon), which keeps classes from staying empty. Default: log10 of the number
    of classes, at least 1, unless --preset has a published value."""
    supervised_weight: float = 0.35
    """Weight of the supervised losses (lambda); the unsupervised ones get the rest."""
    student_temperature: float = 0.1
    """Temperature of the predictions: cosines are divided by it."""
    teacher_temperature_start: float = 0.07
    """Temperature of the targets in the first epoch."""
    teacher_temperature: float = 0.04
    """Temperature of the targets after --warmup-epochs, reached linearly."""
    warmup_epochs: int | None = None
    """Epochs until the targets reach --teacher-temperature. Default: 30 (as published), or half of a run shorter than
    60."""
    info_nce_temperature: float = 1.0
    """Temperature of the contrastive loss between views, as in the released code; the SDAS paper's text swaps it with
    the next one (0.07 and 1.0)."""
    sup_con_temperature: float = 0.07
    """Temperature of the contrastive loss between labelled images."""


S = TypeVar("S", bound=Settings)


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    preset = PRESETS.get(facts.preset, {})
    return checked(filled(s, {**rules(facts, t), **preset}))


def rules(facts: DataFacts, t: Training) -> dict[str, object]:
    """Values for data of which nothing else is known."""
    return {
        "start": "clusters",
        "entropy_weight": max(1.0, math.log10(max(facts.classes, 1))),
        "warmup_epochs": max(1, min(FULL_WARMUP_EPOCHS, t.epochs // 2)),
    }


def checked(s: S) -> S:
    """The same settings; raises if they make no sense."""
    require_at_least_1(s, "warmup_epochs")
    require_not_negative(s, "entropy_weight")
    require_share(s, "supervised_weight")
    require_positive(s, "student_temperature", "teacher_temperature", "teacher_temperature_start")
    require_positive(s, "info_nce_temperature", "sup_con_temperature")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training."""
    return train(task, SimGCD(task, s))


def schedule_of(s: Settings, epoch: int) -> dict[str, float]:
    """What changes from epoch to epoch, by name."""
    assert s.warmup_epochs is not None  # decided settings have it
    now = teacher_temperature(epoch, s.warmup_epochs, s.teacher_temperature_start, s.teacher_temperature)
    return {"teacher_temperature": now}


class SimGCD(Learner):
    """Tail of the backbone, projector, classifier; the first outputs of the classifier are the known classes."""

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        self.s = s
        with task.drawn():
            self.tail = task.new_tail()
            self.projector = task.new_projector()
            self.classifier = CosineClassifier(task.feature_dim, task.classes)

    def begin(self, task: Task) -> None:
        if self.s.start == "clusters":
            start_at_clusters(self.classifier, task.frozen(), task.clusters().clusters, task.labels)

    def outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Projections 2B×256 and cosines 2B×K of the whole batch."""
        with batch.autocast():
            features = self.tail(batch.tokens)  # 2b×d
            projections = self.projector(features)
        logits = self.classifier(features.float())  # in float32 from here on: temperatures stretch small differences
        return batch.everyone(projections.float()), batch.everyone(logits)

    def losses(self, batch: Batch) -> Step:
        projections, logits = self.outputs(batch)
        return Step(simgcd_losses(projections, logits, batch.labels, **self.weights(batch.epoch)))

    def weights(self, epoch: int) -> dict[str, float]:
        """Weights and temperatures of the losses, by name."""
        s = self.s
        assert s.entropy_weight is not None  # decided settings have it
        return {
            **self.schedule(epoch),
            "entropy_weight": s.entropy_weight,
            "supervised_weight": s.supervised_weight,
            "student_temperature": s.student_temperature,
            "info_nce_temperature": s.info_nce_temperature,
            "sup_con_temperature": s.sup_con_temperature,
        }

    def schedule(self, epoch: int) -> dict[str, float]:
        return schedule_of(self.s, epoch)

    def predictor(self) -> Predictor:
        return Predictor(self.tail, self.classifier, self.s.student_temperature)
