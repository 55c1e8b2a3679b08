"""The label that each image ends up with: given, decided by a person, or predicted by the model."""

from __future__ import annotations

from dataclasses import dataclass

from newfound.runs.decisions import reviewed_of
from newfound.runs.results import Results
from newfound.runs.review_state import NOT_A_CLASS, Decider, Reviewed
from newfound.runs.rounds import History, read_history


@dataclass(frozen=True)
class FinalLabel:
    """Of one image."""

    label: str | None  # None: a person, or a model that leaves images out, says that it is in none of the classes
    is_new: bool | None  # is the class a newly found one; None without a class
    decided_by: Decider
    round: int | None  # in which it was decided; None for a given label, which was there before the first


def final_labels(results: Results) -> list[FinalLabel]:
    """In the order of the files. A person's decision counts most, then a given label, then the model's prediction.

    A label that came out of the review of an earlier round was decided there, not given.
    """
    reviewed, history = reviewed_of(results), read_history(results.run.path)
    return [_final(reviewed, history, image) for image in range(len(results))]


def _final(reviewed: Reviewed, history: History, image: int) -> FinalLabel:
    number = reviewed.human_label(image)
    if number is None:
        number = NOT_A_CLASS if reviewed.verdict[image] < 0 else int(reviewed.class_of[image])
    label = reviewed.names.get(number)
    is_new = None if label is None else number not in reviewed.known
    who, when = reviewed.decided_by(image), history.round
    if who == "given":
        return FinalLabel(label, is_new, *history.decided.get(reviewed.results.files[image], (who, None)))
    return FinalLabel(label, is_new, who, when)
