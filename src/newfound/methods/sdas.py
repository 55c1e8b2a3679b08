"""The paper's method: SimGCD with the sharpness penalty, twice; the second training has dynamic anchors (Algorithm 1).

The first training finds clusters. From them the most certain images around each new class's densest point are taken as
anchors: in a second training, of a fresh model, they are treated as labelled. After ``alpha`` epochs that model chooses
its own anchors, again after each epoch. An anchor counts as labelled in cross-entropy, SupCon and the sampler; it stays
in the unsupervised parts, and it is scored like any unlabelled image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.anchors import Anchors, calibrate, densest, most_confident, select_anchors
from newfound.errors import SettingError
from newfound.methods import Needs, simgcd
from newfound.methods.simgcd import SimGCD
from newfound.settings import FULL_EPOCHS, DataFacts, Training, filled
from newfound.settings.ranges import require_at_least_1, require_share
from newfound.settings.value_types import checks_names
from newfound.training.learner import Batch, Between, Learner, Prediction, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.task import Task

NAME = "sdas"
ABOUT = "SimGCD with a sharpness penalty (LSP), then a second training with dynamic anchors (DAS)."
SOURCE = """\
Peng and others: Sharpness-aware Dynamic Anchor Selection for Generalized Category Discovery, 2025; arXiv 2512.12925 (no
released code). SimGCD's part matches its released code, LSP the released SAM, anchor selection an independent
reference; docs/method.md lists where text and released code disagree."""
DEFAULTS: Mapping[str, object] = {"rho": 0.05}  # the paper: "for all stages"
# The paper, "Implementation details": alpha and beta "for all generic datasets" and "for all fine-grained datasets",
# among which it counts Herbarium 19. The rest is SimGCD's.
GENERIC: Mapping[str, object] = {"alpha": 1, "beta": 0.8}
FINE_GRAINED: Mapping[str, object] = {"alpha": 10, "beta": 0.5}
PRESETS: Mapping[str, Mapping[str, object]] = {
    "generic": GENERIC,
    "fine-grained": FINE_GRAINED,
    **{name: {**GENERIC, **simgcd.PRESETS[name]} for name in ("cifar10", "cifar100", "imagenet100")},
    **{name: {**FINE_GRAINED, **simgcd.PRESETS[name]} for name in ("cub", "cars", "aircraft", "herbarium")},
}
NEEDS = Needs(first_training="simgcd", first_training_from="stage1", oracle="oracle_clean_anchors")


@checks_names
@dataclass(frozen=True)
class Settings(simgcd.Settings):
    """Of the paper's method: SimGCD's, and those of the anchors."""

    strategy: Literal["dynamic", "fixed", "without-pretrain"] = "dynamic"
    """When anchors are chosen. dynamic: after each epoch (DAS). fixed: once, after the first training.
    without-pretrain: one training only, with anchors once --warmup-epochs are over."""
    selection: Literal["das", "max-prob", "max-density"] = "das"
    """Which images become anchors. das: the most certain ones around the densest point of each new class. max-prob: the
    most certain ones. max-density: the densest ones."""
    alpha: int | None = None
    """Epochs of the second training that use the anchors of the first one. Default: by --preset, reduced in proportion
    below 200 epochs."""
    beta: float | None = None
    """Share of a new class around its densest point that may become anchors. Default: by --preset."""
    k: float = 0.5
    """How many neighbours define the density, as a share of the class."""
    anchors_per_class: float | None = None
    """How many anchors a new class should have at first (eta). Default: the mean number of labelled images per known
    class; if nothing is labelled, half of an average class."""
    oracle_clean_anchors: bool = False
    """For analysis only: drop anchors that are wrong according to --truth. Everything such a run writes is marked as an
    oracle."""
    stage1: Path | None = None
    """Take the first training from this run, on the same images with the same backbone and number of classes."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    preset = PRESETS[facts.preset]
    alpha = float(str(preset["alpha"])) * min(1, t.epochs / FULL_EPOCHS)
    published = {
        **simgcd.rules(facts, t), **preset, "alpha": max(1, round(alpha)), "anchors_per_class": usual_per_class(facts),
    }  # fmt: skip
    s = simgcd.checked(filled(s, published))
    _check(s, t)
    return s


def usual_per_class(facts: DataFacts) -> float:
    """As many as a known class has labelled images on average; with nothing labelled, half of an average class."""
    return max(1.0, facts.labelled_per_class or facts.images / (2 * max(facts.classes, 1)))


def _check(s: Settings, t: Training) -> None:
    require_at_least_1(s, "anchors_per_class", "alpha")
    require_share(s, "beta", "k")
    one_training = s.strategy == "without-pretrain"
    if s.stage1 is not None and one_training:
        raise SettingError("stage1", s.stage1, "needs a strategy of two trainings: this run has only one")
    if one_training and (s.warmup_epochs or 0) >= t.epochs:
        why = f"leaves no epoch with anchors to the strategy without-pretrain: there are only {t.epochs} epochs"
        raise SettingError("warmup_epochs", s.warmup_epochs, why)


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1 if s.strategy == "without-pretrain" else at_most_two(facts)


def at_most_two(facts: DataFacts) -> int:
    """Trainings: a second one with pseudo-labels for new classes, if there is anything to put into one."""
    return 1 if facts.classes == facts.labelled_classes or facts.labelled == facts.images else 2


def fit(task: Task, s: Settings) -> Trained:
    """Both trainings, or what the settings leave of them; the last one."""
    if nothing_new(task):
        return train(task, SimGCD(task, s))
    if s.strategy == "without-pretrain":
        return train(task, Anchored(task, s, None))
    assert s.alpha is not None  # decided settings have it
    if s.strategy == "dynamic" and s.alpha >= task.training.epochs:
        task.screen.say(f"the first anchors are kept for all {task.training.epochs} epochs: alpha is {s.alpha}")
    first = train(task, SimGCD(task, s))
    return train(task, Anchored(task, s, first.prediction), stage=2)


def nothing_new(task: Task) -> bool:
    """Is there nothing to put into a new class? Then a person is told of it."""
    if task.classes > task.n_known and (task.labels < 0).any():
        return False
    why = "no new class to find" if task.classes == task.n_known else "no unlabelled image"
    task.screen.say(f"there is {why}: one training, without anchors")
    return True


class Anchored(Learner):
    """SimGCD that begins each epoch with anchors, chosen from a prediction before it.

    ``initial`` is the prediction of the first training, None where there was none. Memory has ``calibration``: omega
    and gamma, found once; from then on eta follows the model.
    """

    def __init__(self, task: Task, s: Settings, initial: Prediction | None) -> None:
        super().__init__()
        self.student = SimGCD(task, s)
        self.s, self.task, self.initial = s, task, initial
        self.unlabelled = np.flatnonzero(task.labels < 0)

    def begin(self, task: Task) -> None:
        self.student.begin(task)

    def losses(self, batch: Batch) -> Step:
        return self.student.losses(batch)

    def encode(self, tokens: Tensor) -> Tensor:
        return self.student.encode(tokens)

    def predictor(self) -> Predictor:
        return self.student.predictor()

    def schedule(self, epoch: int) -> dict[str, float]:
        return self.student.schedule(epoch)

    def between_epochs(self, epoch: int, prediction: Prediction | None) -> Between:
        s = self.s
        assert s.alpha is not None  # decided settings have them
        assert s.warmup_epochs is not None
        if self.initial is not None and (s.strategy == "fixed" or epoch < s.alpha):
            prediction = self.initial
        elif prediction is None or (self.initial is None and epoch < s.warmup_epochs):
            return Between()
        calibration = self._calibration(prediction)
        anchors = self._choose(prediction, calibration)
        self._warn(anchors, prediction)
        labels = self.task.labels.copy()
        labels[anchors.index] = anchors.label
        on_new = "calibration" in self.memory or self._n_new(self._calibrated_on(prediction)) > 0
        if s.selection != "das" or not on_new:  # nothing to remember: it was calibrated on no new class
            return Between(labels, prediction, _facts(anchors, None))
        memory = {"calibration": torch.tensor(calibration, dtype=torch.float64)}
        return Between(labels, prediction, _facts(anchors, calibration), memory)

    def _choose(self, prediction: Prediction, calibration: tuple[float, float]) -> Anchors:
        """Among the unlabelled images; ``index`` of the answer counts all images."""
        from sklearn.preprocessing import normalize

        s, n_known = self.s, self.task.n_known
        assert s.beta is not None  # decided settings have them
        assert s.anchors_per_class is not None
        probabilities, count = self._probabilities(prediction), max(1, round(s.anchors_per_class))
        features = normalize(prediction.features.numpy()[self.unlabelled])
        if s.selection == "max-prob":
            found = most_confident(probabilities, n_known, count=count)
        elif s.selection == "max-density":
            found = densest(probabilities, features, n_known, count=count, k=s.k)
        else:
            omega, gamma = calibration
            found = select_anchors(probabilities, features, n_known, omega=omega, gamma=gamma, beta=s.beta, k=s.k)
        return Anchors(self.unlabelled[found.index], found.label, found.eta, found.threshold)

    def _calibration(self, prediction: Prediction) -> tuple[float, float]:
        """Omega and gamma: those found before, or those of now."""
        if "calibration" in self.memory:
            omega, gamma = self.memory["calibration"].tolist()
            return omega, gamma
        assert self.s.anchors_per_class is not None  # decided settings have it
        basis = self._probabilities(self._calibrated_on(prediction))
        return calibrate(basis, self.task.n_known, self.s.anchors_per_class)

    def _calibrated_on(self, prediction: Prediction) -> Prediction:
        """The prediction of the first training; without one, or if it put nothing into new classes, the one at hand."""
        return self.initial if self.initial is not None and self._n_new(self.initial) else prediction

    def _probabilities(self, prediction: Prediction) -> NDArray[np.floating]:
        return prediction.probabilities.numpy()[self.unlabelled]

    def _n_new(self, prediction: Prediction) -> int:
        """How many unlabelled images are put into new classes."""
        return int((self._probabilities(prediction).argmax(axis=1) >= self.task.n_known).sum())

    def _warn(self, anchors: Anchors, prediction: Prediction) -> None:
        """What a person should know."""
        n_new = self.task.classes - self.task.n_known
        if not self._n_new(prediction):
            self.task.screen.warn_once("no image was put into a new class: there are no anchors until one is")
        elif anchors.eta == 0:
            self.task.screen.warn_once("too few new classes have certain images (eta is 0): an epoch without anchors")
        elif len(np.unique(anchors.label)) < n_new:
            text = "new classes with fewer than two images get no anchors; anchors.jsonl has the counts"
            self.task.screen.warn_once(text)


def _facts(anchors: Anchors, calibration: tuple[float, float] | None) -> dict[str, object]:
    """For a line of anchors.jsonl."""
    omega, gamma = calibration or (None, None)
    threshold = None if math.isnan(anchors.threshold) else anchors.threshold
    return {"eta": anchors.eta, "threshold": threshold, "omega": omega, "gamma": gamma}
