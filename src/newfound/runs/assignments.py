"""From probabilities to what a person reads: a class per image, and a table of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.fitting import Found
from newfound.images import ImageTable
from newfound.runs.folder import RunFolder
from newfound.runs.nearest_class import nearest_classes

ORACLE = "oracle: --oracle-clean-anchors used the truth, so these are not results of a method"
NONE_OF_THESE = "none of these"  # an image unlike all that a model has seen, or in none of the classes of a run
FEWEST = 2  # classes, even if some are empty: an image has a runner-up
ROWS = 1024  # of probabilities that are held a second time


@dataclass(frozen=True)
class Assignment:
    """The class of every image, in the table's order."""

    class_names: tuple[str, ...]  # K: known ones first
    unseen: tuple[str, ...]  # known by name alone: no labelled image, so nothing can be recognised as them
    n_known: int
    classes: NDArray[np.int64]  # N: -1 for none of these; what comes closest is then the runner-up
    confidence: NDArray[np.float64]  # N: 0 for none of these
    runner_up: NDArray[np.int64]  # N
    runner_up_confidence: NDArray[np.float64]  # N
    is_anchor: NDArray[np.bool_]  # N: treated as labelled for a new class in the last epoch

    def sizes(self) -> NDArray[np.int64]:
        """Images per class."""
        return np.bincount(self.classes[self.classes >= 0], minlength=len(self.class_names))

    def none(self) -> int:
        """Images that are none of these."""
        return int((self.classes < 0).sum())

    def name_of(self, k: int) -> str:
        """Of a class, or of none of these."""
        return self.class_names[k] if k >= 0 else NONE_OF_THESE

    def mean_confidence(self) -> NDArray[np.float64]:
        """Per class, 0 where it is empty."""
        placed = self.classes >= 0
        total = np.bincount(self.classes[placed], self.confidence[placed], minlength=len(self.class_names))
        return total / np.maximum(self.sizes(), 1)

    def most_certain(self, k: int, n: int) -> list[int]:
        """The ``n`` images of class ``k`` the model is surest of."""
        members = np.flatnonzero(self.classes == k)
        return [int(i) for i in members[np.argsort(-self.confidence[members], kind="stable")][:n]]


def check_names(class_names: Sequence[str]) -> None:
    """Raise if a known class is called as images are that belong to none."""
    if odd := [name for name in class_names if name.casefold() == NONE_OF_THESE]:
        raise UserError(f"a class cannot be called {odd[0]!r}: that is what images unlike any class are called")


def assign(found: Found, known_names: tuple[str, ...], unseen: tuple[str, ...] = ()) -> Assignment:
    """Take the most probable class of each image, or none where the method says so."""
    probabilities = found.prediction.probabilities.numpy()
    names = new_names(known_names + unseen, probabilities.shape[1] - len(known_names))
    best, second = two_best(probabilities)
    rows = np.arange(len(probabilities))
    none = np.zeros(len(rows), dtype=bool) if found.none is None else found.none
    second = np.where(none, best, second)
    return Assignment(
        class_names=known_names + names,
        unseen=unseen,
        n_known=len(known_names),
        classes=np.where(none, -1, best),
        confidence=np.where(none, 0.0, probabilities[rows, best]).astype(np.float64),
        runner_up=second,
        runner_up_confidence=probabilities[rows, second].astype(np.float64),
        is_anchor=found.is_anchor,
    )


def two_best(scores: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row of N×K scores, K > 1, the column of the largest and of the next largest; of equal ones the first.

    >>> two_best(np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]))
    (array([1, 0]), array([2, 2]))
    """
    best = scores.argmax(axis=1)
    second = np.empty_like(best)
    for start in range(0, len(scores), ROWS):
        block = slice(start, start + ROWS)
        others = scores[block].copy()
        others[np.arange(len(others)), best[block]] = -np.inf
        second[block] = others.argmax(axis=1)
    return best, second


def new_names(known: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Names for discovered classes that no known class has.

    >>> new_names(("cat", "new-1"), 2)
    ('discovered-1', 'discovered-2')
    """
    prefix = "new"
    while any(name.startswith(f"{prefix}-") for name in known):
        prefix = "discovered" if prefix == "new" else f"newly-{prefix}"
    return tuple(f"{prefix}-{i + 1}" for i in range(count))


def write_assignment(
    run: RunFolder, table: ImageTable, a: Assignment, embeddings: NDArray[np.floating], *, oracle: bool = False
) -> None:
    """assignments.csv and classes.csv; a run that used the truth has a last column that says so."""
    mark = ["true"] if oracle else []
    given = [table.class_names[label] if label >= 0 else "" for label in table.labels]
    placed = (a.classes >= 0).tolist()
    run.write_csv(
        "assignments.csv",
        ["file", "given_label", "class", "is_new", "confidence", "runner_up", "runner_up_confidence", "is_anchor"]
        + ["oracle"] * oracle,
        (
            [
                file, given[i], a.name_of(a.classes[i]), yes_or_no(a.classes[i] >= a.n_known) if placed[i] else "",
                f"{a.confidence[i]:.6f}" if placed[i] else "", a.class_names[a.runner_up[i]],
                f"{a.runner_up_confidence[i]:.6f}",
                yes_or_no(a.is_anchor[i]), *mark,
            ]
            for i, file in enumerate(table.files)
        ),
    )  # fmt: skip
    sizes, confidence = a.sizes(), a.mean_confidence()
    nearest = nearest_classes(embeddings, a.classes, len(a.class_names))
    classes = [
        [
            k, name, "known" if k < a.n_known else "new", sizes[k],
            f"{confidence[k]:.6f}" if sizes[k] else "", a.class_names[nearest[k]] if nearest[k] >= 0 else "", *mark,
        ]
        for k, name in enumerate(a.class_names)
    ]  # fmt: skip
    classes += [["", name, "known", 0, "", "", *mark] for name in a.unseen]
    header = ["id", "name", "kind", "size", "mean_confidence", "nearest_class"] + ["oracle"] * oracle
    run.write_csv("classes.csv", header, classes)


def yes_or_no(value: bool) -> str:
    """As tables have it."""
    return "true" if value else "false"
