"""What is published about each data set: its owner, its classes, and numbers by which to know the right split."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Count = tuple[int, int]  # from and to, both included: where only "31.9K" is published, a range


@dataclass(frozen=True)
class Facts:
    """Of one data set. Class ids count from 0 in the owner's order; positions are among the training images."""

    name: str
    origin: str  # what it is called, and its owner's page
    images: Count
    labelled: Count
    known: tuple[int, ...]  # in published order, which numbers the targets
    new: tuple[int, ...]  # in published order: hard, medium, easy
    class_names: tuple[str, ...] = ()  # empty where the owner's files name the classes
    classes_hash: str | None = None  # of the class ids of all training images, in native order
    labelled_hash: str | None = None  # of what identifies the labelled images, sorted
    imagenet1k_ids: tuple[int, ...] = ()  # ImageNet-100 only: of its classes among the thousand


@cache
def published(name: str) -> Facts:
    """The facts about one data set.

    >>> facts = published("cub")
    >>> facts.class_names[facts.known[0]], facts.labelled
    ('151.Black_capped_Vireo', (1498, 1498))
    """
    entry = _entries()[name]
    return Facts(
        name=name,
        origin=entry["origin"],
        images=_count(entry["images"]),
        labelled=_count(entry["labelled"]),
        known=tuple(entry["known"]),
        new=tuple(entry["new"]),
        class_names=tuple(entry.get("names", ())),
        classes_hash=entry.get("classes_hash"),
        labelled_hash=entry.get("labelled_hash"),
        imagenet1k_ids=tuple(entry.get("imagenet1k_class_indices", ())),
    )


@cache
def _entries() -> dict[str, dict[str, Any]]:
    text = resources.files("newfound.research.datasets").joinpath("classes.json").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = json.loads(text)
    return entries


def _count(value: int | list[int]) -> Count:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
