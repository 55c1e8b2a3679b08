"""What is exported: the run as it stands after a review, and names that other programs can take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from newfound.runs.decisions import reviewed_of
from newfound.runs.results import read_results
from newfound.runs.review_state import NOT_A_CLASS, Reviewed

NOT_A_CLASS_NAME = "not a class"  # where images of dismissed classes go
VERDICTS = {1: "accepted", -1: "rejected"}


def read_decided(run: Path | str) -> Reviewed:
    """A finished run with the decisions that were made on it."""
    return reviewed_of(read_results(run))


def classes_with_images(reviewed: Reviewed) -> list[int]:
    """The numbers of the classes that images are in, `NOT_A_CLASS` last."""
    used = set(reviewed.class_of.tolist())
    return [*sorted(used & reviewed.names.keys()), *([NOT_A_CLASS] if NOT_A_CLASS in used else [])]


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
