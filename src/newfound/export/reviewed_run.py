"""What is exported: the run as it stands after a review, and names that other programs can take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.decisions import reviewed_of
from newfound.runs.results import read_results
from newfound.runs.review_state import NOT_A_CLASS, Reviewed

NOT_A_CLASS_NAME = "not a class"  # where images of dismissed classes go
REJECTED, REJECTED_NAME = -2, "_rejected"  # where images go that a person rejected from their class
VERDICTS = {1: "accepted", -1: "rejected"}


def read_decided(run: Path | str) -> Reviewed:
    """A finished run with the decisions that were made on it."""
    return reviewed_of(read_results(run))


def exported_classes(reviewed: Reviewed) -> NDArray[np.int64]:
    """The class that each image is exported as: the one it is in, but for a rejected one that of its given label.

    Without a label, or rejected from the very class that its label names, it is `REJECTED`.
    """
    classes = reviewed.class_of.copy()
    for image in np.flatnonzero(reviewed.verdict < 0).tolist():
        label = human_class(reviewed, image)
        classes[image] = REJECTED if label is None else label
    return classes


def rejected_from(reviewed: Reviewed, image: int) -> str | None:
    """The class that a person rejected an image from."""
    return reviewed.names[int(reviewed.class_of[image])] if reviewed.verdict[image] < 0 else None


def classes_with_images(reviewed: Reviewed) -> list[int]:
    """The numbers of the classes that images are exported as, `NOT_A_CLASS` and `REJECTED` last."""
    used = set(exported_classes(reviewed).tolist())
    return [*sorted(used & reviewed.names.keys()), *(number for number in (NOT_A_CLASS, REJECTED) if number in used)]


def class_name(reviewed: Reviewed, number: int) -> str:
    """Of a class, `NOT_A_CLASS` or `REJECTED`."""
    return {NOT_A_CLASS: no_class_name(reviewed), REJECTED: REJECTED_NAME}.get(number) or reviewed.names[number]


def no_class_name(reviewed: Reviewed) -> str:
    """What images in no class are called: by whether the model left some out itself."""
    return NONE_OF_THESE if reviewed.results.assignment.none() else NOT_A_CLASS_NAME


def human_class(reviewed: Reviewed, image: int) -> int | None:
    """The class that an image is in by its given label, a move or an acceptance; None where nobody says so."""
    number = reviewed.human_label(image)
    return number if number in reviewed.names else None


def given_name(reviewed: Reviewed, image: int) -> str | None:
    """The label as it was given, under the name it was given by."""
    given = int(reviewed.results.given[image])
    return reviewed.results.assignment.class_names[given] if given >= 0 else None


def plain(text: str) -> str:
    r"""Text that is UTF-8: bytes of a file name that are not are spelt out.

    >>> print(plain("caf\udce9.jpg"))
    caf\xe9.jpg
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def distinct(
    texts: Iterable[str],
    alike: Callable[[str], str] = str,
    numbered: Callable[[str, int], str] = "{}-{}".format,
) -> list[str]:
    """The texts, all different: of those that are ``alike``, the later ones get a number.

    >>> distinct(["a", "A", "a-2", "a"], alike=str.lower)
    ['a', 'A-2', 'a-2-2', 'a-3']
    """
    taken: set[str] = set()
    last: dict[str, int] = {}  # the number tried last, or many equal names would take a time that grows as their square
    chosen: list[str] = []
    for text in texts:
        key = alike(text)
        number, found = last.get(key, 1), text
        while alike(found) in taken:
            number += 1
            found = numbered(text, number)
        last[key] = number
        taken.add(alike(found))
        chosen.append(found)
    return chosen


def own_names_first(names: Sequence[str], wanted: Sequence[str], alike: Callable[[str], str]) -> list[str]:
    """`distinct` of the ``wanted`` forms, where a name that needs no other form keeps its own."""
    order = sorted(range(len(names)), key=lambda i: wanted[i] != names[i])
    found = distinct((wanted[i] for i in order), alike)
    return [name for _, name in sorted(zip(order, found, strict=True))]
