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
from newfound.training.loop import Job, Prediction, Trained, train


def fit(job: Job, new_model: Callable[[], SimGCD]) -> Trained:
    """Both trainings, or what the settings leave of them; the last one."""
    s = job.settings
    if s.classes == job.n_known or (job.labels >= 0).all():
        why = "no new class to find" if s.classes == job.n_known else "no unlabelled image"
        job.screen.say(f"there is {why}: one training, without anchors")
        with job.progress([1]) as progress:
            return train(job, new_model(), progress)
    if s.strategy == "without-pretrain":
        with job.progress([1]) as progress:
            return train(job, new_model(), progress, anchoring=DynamicAnchors(job, None, stage=1))
    assert s.alpha is not None  # resolved settings have them
    assert s.epochs is not None
    if s.strategy == "dynamic" and s.alpha >= s.epochs:
        job.screen.say(f"the first anchors stay for all {s.epochs} epochs: alpha is {s.alpha}")
    with job.progress([1, 2] if s.stage1 is None else [2]) as progress:
        first = train(job, new_model(), progress)
        anchoring = DynamicAnchors(job, first.prediction, stage=2)
        return train(job, new_model(), progress, stage=2, anchoring=anchoring)


class DynamicAnchors:
    """The labels of each epoch: those given, and the anchors chosen from what a model said before.

    ``initial`` is what the first training said, None where there was none.
    """

    def __init__(self, job: Job, initial: Prediction | None, stage: int) -> None:
        self._job, self._initial, self._stage = job, initial, stage
        self._unlabelled = np.flatnonzero(job.labels < 0)
        self._calibration: tuple[float, float] | None = None  # omega, gamma
        self._initial_anchors: Anchors | None = None
        self._warned: set[str] = set()

    def __call__(self, epoch: int, said: Prediction | None, before: NDArray[np.int64]) -> NDArray[np.int64]:
        s = self._job.settings
        assert s.alpha is not None  # resolved settings have it
        assert s.warmup_epochs is not None
        if self._initial is not None and (s.strategy == "fixed" or epoch < s.alpha):
            self._initial_anchors = self._initial_anchors or self._choose(self._initial)
            anchors, said = self._initial_anchors, self._initial
        elif said is None or (self._initial is None and epoch < s.warmup_epochs):
            return self._job.labels
        else:
            anchors = self._choose(said)
        self._warn(anchors, said)
        anchors, judgement = self._judge(anchors, said)
        self._job.run.save_anchors({**self._describe(anchors, epoch, before), **judgement})
        labels = self._job.labels.copy()
        labels[anchors.index] = anchors.label
        return labels

    def _choose(self, said: Prediction) -> Anchors:
        """Among the unlabelled images; ``index`` of the answer counts all images."""
        s, n_known = self._job.settings, self._job.n_known
        assert s.beta is not None  # resolved settings have it
        assert s.anchors_per_class is not None
        probabilities, count = self._probabilities(said), max(1, round(s.anchors_per_class))
        features = normalize(said.features.numpy()[self._unlabelled])
        if s.selection == "max-prob":
            found = most_confident(probabilities, n_known, count=count)
        elif s.selection == "max-density":
            found = densest(probabilities, features, n_known, count=count, k=s.k)
        else:
            omega, gamma = self._calibrated(said)
            found = select_anchors(probabilities, features, n_known, omega=omega, gamma=gamma, beta=s.beta, k=s.k)
        return Anchors(self._unlabelled[found.index], found.label, found.eta, found.threshold)

    def _calibrated(self, said: Prediction) -> tuple[float, float]:
        """Omega and gamma, found once; from then on eta follows the model.

        On what the first training said. Without one, or if it put nothing into new classes, on the first output that
        does: anchors.jsonl remembers it for a run that was stopped.
        """
        if self._calibration is not None:
            return self._calibration
        if self._initial is not None and self._n_new(self._initial):
            said = self._initial
        else:
            for line in self._job.run.anchors():
                if line["omega"] is not None:
                    self._calibration = line["omega"], line["gamma"]
                    return self._calibration
        assert self._job.settings.anchors_per_class is not None
        found = calibrate(self._probabilities(said), self._job.n_known, self._job.settings.anchors_per_class)
        if self._n_new(said):
            self._calibration = found
        return found

    def _probabilities(self, said: Prediction) -> NDArray[np.floating]:
        return said.probabilities.numpy()[self._unlabelled]

    def _n_new(self, said: Prediction) -> int:
        """How many unlabelled images are put into new classes."""
        return int((self._probabilities(said).argmax(axis=1) >= self._job.n_known).sum())

    def _judge(self, anchors: Anchors, said: Prediction) -> tuple[Anchors, dict[str, Any]]:
        """Where a truth was given: how many are clean, for the log. Only the oracle setting acts on it."""
        referee = self._job.referee
        if referee is None:
            return anchors, {}
        clean, told = referee.clean(said.classes.numpy(), anchors.index, anchors.label), referee.knows(anchors.index)
        judgement: dict[str, Any] = {"clean": int(clean.sum()), "overall": int(told.sum())}
        if not self._job.settings.oracle_clean_anchors:
            return anchors, judgement
        kept = clean | ~told
        judgement["oracle"] = f"{int((~kept).sum())} anchors that are not clean were dropped"
        return Anchors(anchors.index[kept], anchors.label[kept], anchors.eta, anchors.threshold), judgement

    def _describe(self, anchors: Anchors, epoch: int, before: NDArray[np.int64]) -> dict[str, Any]:
        """A line of anchors.jsonl."""
        s, n_known = self._job.settings, self._job.n_known
        omega, gamma = self._calibration or (None, None)
        had_some, same = bool((before[self._unlabelled] >= 0).any()), before[anchors.index] == anchors.label
        return {
            "stage": self._stage,
            "epoch": epoch + 1,
            "anchors": len(anchors.index),
            "per_class": np.bincount(anchors.label - n_known, minlength=s.classes - n_known).tolist(),
            "eta": anchors.eta,
            "threshold": None if math.isnan(anchors.threshold) else anchors.threshold,
            "omega": omega,
            "gamma": gamma,
            "overlap": float(same.mean()) if had_some and len(same) else None,
        }

    def _warn(self, anchors: Anchors, said: Prediction) -> None:
        """Say once what a person should know."""
        n_new = self._job.settings.classes - self._job.n_known
        if not self._n_new(said):
            text = "no image was put into a new class: there are no anchors until one is"
        elif anchors.eta == 0:
            text = "too few new classes have certain images (eta is 0): an epoch without anchors"
        elif len(np.unique(anchors.label)) < n_new:
            text = "new classes with fewer than two images get no anchors; anchors.jsonl has the counts"
        else:
            return
        if text not in self._warned:
            self._warned.add(text)
            self._job.screen.warn(text)
