"""Keeping the score where the truth is known. The scores are logged; training learns nothing from them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newfound.distributed import asked_of_first
from newfound.errors import SettingError, UserError
from newfound.evaluate import (
    class_accuracies,
    cluster_accuracy,
    cluster_accuracy_v1,
    cluster_accuracy_v2b,
    matched_classes,
    mutual_information,
    rand_index,
)
from newfound.images import ImageTable
from newfound.images.labels import read_labels
from newfound.images.matching import match_rows
from newfound.methods import oracle_setting
from newfound.runs.assignments import ORACLE, Assignment
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import Settings


@dataclass(frozen=True)
class Truth:
    """True classes of the unlabelled images that the truth file names."""

    images: NDArray[np.int64]  # n: positions in the table
    classes: NDArray[np.int64]  # n
    known: NDArray[np.bool_]  # n: is the true class a known one
    without_truth: int  # unlabelled images the file does not name
    names: tuple[str, ...]  # of the classes

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.images.tobytes() + self.classes.tobytes()).hexdigest()

    def accuracy(self, predicted: NDArray[np.int64]) -> dict[str, float | None]:
        """All, Old and New of a prediction for every image of the table."""
        return _without_nan(asdict(cluster_accuracy(self.classes, predicted[self.images], self.known)))

    def knows(self, images: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``images`` the truth file names."""
        return np.isin(images, self.images)

    def clean(
        self, predicted: NDArray[np.int64], images: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """For each of ``images``: is its label, read through the matching of ``predicted``, its true class?"""
        true = np.full(len(predicted), -1)
        true[self.images] = self.classes
        clusters = predicted[self.images]
        meant = np.full(int(max(clusters.max(), labels.max(initial=0))) + 1, -2)
        meant[clusters] = matched_classes(self.classes, clusters)  # -2: no image with a known truth was put there
        return np.asarray(meant[labels] == true[images])


def read_truth(path: Path, table: ImageTable) -> Truth:
    """Read a CSV of ``file,label``; files are named as in the images folder."""
    rows = match_rows(read_labels(path), table.root, table.files).by_file
    label_of = {file: row.label for file, row in rows.items() if row.label is not None}
    unlabelled = np.flatnonzero(table.labels < 0)
    if not len(unlabelled):
        raise UserError(f"every image in {table.root} is labelled: there is nothing to score with {path}")
    images = np.array([i for i in unlabelled if table.files[i] in label_of], dtype=np.int64)
    if not len(images):
        raise UserError(f"{path} names none of the {len(unlabelled)} unlabelled images in {table.root}")
    names = [label_of[table.files[i]] for i in images]
    number = {name: k for k, name in enumerate(sorted({*table.class_names, *names}))}
    return Truth(
        images=images,
        classes=np.array([number[name] for name in names], dtype=np.int64),
        known=np.isin(names, table.class_names),
        without_truth=len(unlabelled) - len(images),
        names=tuple(number),
    )


def score(truth: Truth, predicted: NDArray[np.int64], kmeans: NDArray[np.int64], n_known: int) -> dict[str, Any]:
    """The content of metrics.json; accuracies as fractions, ``None`` where a group has no image.

    ``predicted`` and ``kmeans`` are classes of all images of the table, of which the first ``n_known`` are known ones;
    -1 in ``predicted`` is none of these, which is never right.
    """
    ours, baseline = predicted[truth.images], kmeans[truth.images]
    args = (truth.classes, ours, truth.known)
    metrics: dict[str, Any] = {
        **asdict(cluster_accuracy(*args)),
        **_prefixed("kmeans_", asdict(cluster_accuracy(truth.classes, baseline, truth.known))),
        **_prefixed("v1_", asdict(cluster_accuracy_v1(*args))),
        **_prefixed("v2b_", asdict(cluster_accuracy_v2b(*args))),
        "nmi": mutual_information(truth.classes, ours),
        "ari": rand_index(truth.classes, ours),
        "images_scored": len(truth.images),
        "images_without_truth": truth.without_truth,
        "images_none_of_these": int((ours < 0).sum()),
        "true_classes": len(np.unique(truth.classes)),
    }
    metrics = _without_nan(metrics)
    metrics["confusion"] = _confusion(truth.known, ours, n_known)
    metrics["per_class"] = {truth.names[k]: share for k, share in class_accuracies(truth.classes, ours).items()}
    return metrics


@asked_of_first
def write_score(
    run: RunFolder, truth: Truth | None, a: Assignment, kmeans: NDArray[np.int64] | None, oracle: str | None
) -> dict[str, Any] | None:
    """Compare with the truth, if there is one, beside plain k-means, and write metrics.json."""
    if truth is None or kmeans is None:
        return None
    metrics = score(truth, a.classes, kmeans, a.n_known)
    metrics = metrics if oracle is None else {"oracle": oracle, **metrics}
    run.write_json("metrics.json", metrics)
    return metrics


def oracle_mark(settings: Settings, truth: Truth | None, screen: Screen) -> str | None:
    """The mark of a run that uses the truth, for analysis; None for every other run."""
    name = oracle_setting(settings)
    if name is None:
        return None
    if truth is None:
        raise SettingError(name, True, "needs a truth")
    screen.warn(ORACLE)
    return ORACLE


def _confusion(known: NDArray[np.bool_], predicted: NDArray[np.int64], n_known: int) -> dict[str, int]:
    """How many images of known and of new classes were put into known and into new ones, right or wrong."""
    groups = {"known": known, "new": ~known}
    answers = {"known": (predicted >= 0) & (predicted < n_known), "new": predicted >= n_known}
    return {f"{g}_as_{a}": int((groups[g] & answers[a]).sum()) for g in groups for a in answers}


def _without_nan(metrics: dict[str, Any]) -> dict[str, Any]:
    """NaN is not JSON."""
    return {name: None if math.isnan(value) else value for name, value in metrics.items()}


def _prefixed(prefix: str, values: dict[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in values.items()}
