"""The paper's method: SimGCD with the sharpness penalty, twice; the second training has dynamic anchors (Algorithm 1).

The first training finds clusters. From them the most certain images around each new class's densest point are taken as
anchors: in a second training, of a fresh model, they stand as labelled. After ``alpha`` epochs that model chooses its
own anchors, anew after each epoch. An anchor counts as labelled in cross-entropy, SupCon and the sampler; it stays in
the unsupervised parts, and it is scored like any unlabelled image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from newfound.anchors import Anchors, calibrate, densest, most_confident, select_anchors
from newfound.methods.simgcd import SimGCD
from newfound.train import Job, Prediction, Trained, train


def fit(job: Job, new_model: Callable[[], SimGCD]) -> Trained:
    """Both trainings, or what the settings leave of them; the last one."""
    s = job.settings
    if s.classes == job.n_known or (job.labels >= 0).all():
        job.screen.say("there is no new class to find anchors for: one training, without them")
        with job.progress([1]) as progress:
            return train(job, new_model(), progress)
    if s.strategy == "without-pretrain":
        with job.progress([1]) as progress:
            return train(job, new_model(), progress, anchoring=DynamicAnchors(job, None, stage=1))
    with job.progress([1, 2] if s.stage1 is None else [2]) as progress:
        first = train(job, new_model(), progress)
        anchoring = DynamicAnchors(job, first.prediction, stage=2)
        return train(job, new_model(), progress, stage=2, anchoring=anchoring)


class DynamicAnchors:
    """The labels of each epoch: those given, and the anchors chosen from what a model said before."""

    def __init__(self, job: Job, initial: Prediction | None, stage: int) -> None:
        self._job, self._initial, self._stage = job, initial, stage
        self._unlabelled = np.flatnonzero(job.labels < 0)
        self._warned: set[str] = set()
        self._calibration: tuple[float, float] | None = None

    def __call__(self, epoch: int, said: Prediction | None, before: NDArray[np.int64]) -> NDArray[np.int64]:
        s = self._job.settings
        assert s.alpha is not None  # resolved settings have it
        assert s.warmup_epochs is not None
        if self._initial is not None and (s.strategy == "fixed" or epoch < s.alpha):
            said = self._initial
        elif self._initial is None and epoch < s.warmup_epochs:
            said = None
        if said is None:
            return self._job.labels
        anchors, labels = self._choose(said), self._job.labels.copy()
        entry = self._describe(anchors, epoch, before)
        anchors = self._judge(anchors, said, entry)
        self._job.run.save_anchors(entry)
        self._warn(anchors)
        labels[anchors.index] = anchors.label
        return labels

    def _choose(self, said: Prediction) -> Anchors:
        """Among the unlabelled images; ``index`` of the answer counts all images."""
        s, n_known = self._job.settings, self._job.n_known
        assert s.beta is not None  # resolved settings have it
        assert s.anchors_per_class is not None
        probabilities = said.probabilities.numpy()[self._unlabelled]
        features = normalize(said.features.numpy()[self._unlabelled])
        count = max(1, round(s.anchors_per_class))
        if s.selection == "max-prob":
            found = most_confident(probabilities, n_known, count=count)
        elif s.selection == "max-density":
            found = densest(probabilities, features, n_known, count=count, k=s.k)
        else:
            omega, gamma = self._calibration = self._calibrated(probabilities)
            found = select_anchors(probabilities, features, n_known, omega=omega, gamma=gamma, beta=s.beta, k=s.k)
        return Anchors(self._unlabelled[found.index], found.label, found.eta, found.threshold)

    def _calibrated(self, probabilities: NDArray[np.floating]) -> tuple[float, float]:
        """Omega and gamma are found once, from the first choice of a run; from then on eta follows the model."""
        assert self._job.settings.anchors_per_class is not None
        if self._calibration is None and (earlier := self._job.run.anchors()):
            self._calibration = earlier[0]["omega"], earlier[0]["gamma"]
        return self._calibration or calibrate(probabilities, self._job.n_known, self._job.settings.anchors_per_class)

    def _describe(self, anchors: Anchors, epoch: int, before: NDArray[np.int64]) -> dict[str, Any]:
        """A line of anchors.jsonl."""
        s, n_known = self._job.settings, self._job.n_known
        omega, gamma = self._calibration or (None, None)
        had_some = bool((before[self._unlabelled] >= 0).any())
        return {
            "stage": self._stage,
            "epoch": epoch + 1,
            "anchors": len(anchors.index),
            "per_class": np.bincount(anchors.label - n_known, minlength=s.classes - n_known).tolist(),
            "eta": anchors.eta,
            "threshold": None if math.isnan(anchors.threshold) else anchors.threshold,
            "omega": omega,
            "gamma": gamma,
            "overlap": _share(before[anchors.index] == anchors.label) if had_some else None,
        }

    def _judge(self, anchors: Anchors, said: Prediction, entry: dict[str, Any]) -> Anchors:
        """Where a truth was given: write down how many are clean. Only the oracle setting acts on it."""
        referee = self._job.referee
        if referee is None:
            return anchors
        clean = referee.clean(said.classes.numpy(), anchors.index, anchors.label)
        entry.update(clean=int(clean.sum()), overall=int(referee.knows(anchors.index).sum()))
        if not self._job.settings.oracle_clean_anchors:
            return anchors
        entry["oracle"] = "anchors that are not clean were dropped"
        return Anchors(anchors.index[clean], anchors.label[clean], anchors.eta, anchors.threshold)

    def _warn(self, anchors: Anchors) -> None:
        """Say once what a person should know."""
        n_new = self._job.settings.classes - self._job.n_known
        bare = n_new - len(np.unique(anchors.label))
        if math.isnan(anchors.threshold) and not len(anchors.index):
            text = "no image was put into a new class: there are no anchors until one is"
        elif anchors.eta == 0:
            text = "no new class had enough certain images: an epoch without anchors"
        elif bare:
            text = "new classes with fewer than two images get no anchors; anchors.jsonl has the counts"
        else:
            return
        if text not in self._warned:
            self._warned.add(text)
            self._job.screen.warn(text)


def _share(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if len(mask) else None
