"""Scoring a finished run where the truth is known. Opened after training; nothing here reaches the training code."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.evaluate import (
    cluster_accuracy,
    cluster_accuracy_v1,
    cluster_accuracy_v2b,
    mutual_information,
    rand_index,
)
from newfound.images import ImageTable
from newfound.labels import match_rows, read_labels


@dataclass(frozen=True)
class Truth:
    """True classes of the unlabelled images that the truth file names."""

    images: NDArray[np.int64]  # n: positions in the table
    classes: NDArray[np.int64]  # n
    known: NDArray[np.bool_]  # n: is the true class a known one
    untold: int  # unlabelled images the file does not name


def read_truth(path: Path, table: ImageTable) -> Truth:
    """Read a CSV of ``file,label``; files are named as in the images folder."""
    rows = match_rows(read_labels(path), table.root, table.files).by_file
    label_of = {file: row.label for file, row in rows.items() if row.label is not None}
    unlabelled = np.flatnonzero(table.labels < 0)
    images = np.array([i for i in unlabelled if table.files[i] in label_of], dtype=np.int64)
    if not len(images):
        raise UserError(f"{path} names none of the {len(unlabelled)} unlabelled images in {table.root}")
    names = [label_of[table.files[i]] for i in images]
    number = {name: k for k, name in enumerate(sorted({*table.class_names, *names}))}
    return Truth(
        images=images,
        classes=np.array([number[name] for name in names], dtype=np.int64),
        known=np.isin(names, table.class_names),
        untold=len(unlabelled) - len(images),
    )


def score(truth: Truth, predicted: NDArray[np.int64], kmeans: NDArray[np.int64]) -> dict[str, Any]:
    """The content of metrics.json; accuracies as fractions, ``None`` where a group has no image."""
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
        "images_without_truth": truth.untold,
        "true_classes": len(np.unique(truth.classes)),
    }
    return {name: None if math.isnan(value) else value for name, value in metrics.items()}  # NaN is not JSON


def _prefixed(prefix: str, values: dict[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in values.items()}
