"""The classes of a run as they are after a review, and the images in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from newfound.runs.results import Results
from newfound.runs.review_state import Reviewed


@dataclass(frozen=True)
class FoundClass:
    """A class, known or new."""

    name: str
    is_new: bool
    size: int  # images
    labelled: int  # of these, images that were given a label, whichever it was
    confidence: float  # of the model, on average; NaN for a class without images
    files: tuple[str, ...] = field(repr=False)  # the most certain first


def found_classes(reviewed: Reviewed) -> tuple[FoundClass, ...]:
    """Known classes, then new ones, each in the order of their numbers."""
    numbers = sorted(reviewed.names, key=lambda number: (number not in reviewed.known, number))
    return tuple(_found_class(reviewed, number) for number in numbers)


def _found_class(reviewed: Reviewed, number: int) -> FoundClass:
    results, members = reviewed.results, reviewed.members(number)
    confidence = results.assignment.confidence[members]
    ordered = members[np.argsort(-confidence, kind="stable")]
    return FoundClass(
        name=reviewed.names[number],
        is_new=number not in reviewed.known,
        size=len(members),
        labelled=int((results.given[members] >= 0).sum()),
        confidence=float(confidence.mean()) if len(members) else float("nan"),
        files=tuple(results.files[i] for i in ordered),
    )


def columns_of(results: Results) -> dict[str, Any]:
    """A table of the images by column, as in assignments.csv; `class` is None for an image in none of the classes."""
    a, final = results.assignment, results.final_labels()
    names = np.array([*a.class_names, None], dtype=object)  # -1, unlabelled, is None
    return {
        "file": list(results.files),
        "given_label": names[results.given],
        "class": [label.label for label in final],
        "is_new": [bool(label.is_new) for label in final],
        "decided_by": [label.decided_by for label in final],
        "model_class": [a.name_of(k) for k in a.classes.tolist()],
        "confidence": a.confidence,
        "runner_up": names[a.runner_up],
        "runner_up_confidence": a.runner_up_confidence,
        "is_anchor": a.is_anchor,
        **{mark: [True] * len(results) for mark in results.marks},
    }
