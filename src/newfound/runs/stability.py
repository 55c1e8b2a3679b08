"""How far a result depends on the seed: runs with several seeds, compared class by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newfound.runs.assignments import Assignment
from newfound.text import counted

FILE = "stability.json"
NAMED = 10  # classes in a sentence
SAME = 0.5  # of the images of two classes together, those they share: above half, each has at most one counterpart


@dataclass(frozen=True)
class ClassStability:
    """Of a class of the answer."""

    together: float | None  # how often two of its images are in one class with a seed; None without two
    found: int  # seeds with a class of mostly the same images


@dataclass(frozen=True)
class Elsewhere:
    """A new class of a seed that the answer does not have."""

    seed: int
    images: list[int]  # the surest first
    found: int  # seeds that have it


@dataclass(frozen=True)
class Stability:
    """An answer beside runs with several seeds."""

    seeds: list[int]
    classes: list[ClassStability]  # by number of the class
    elsewhere: list[Elsewhere]  # the largest first

    def unstable(self, n_known: int) -> list[int]:
        """New classes that at most one seed has."""
        return [k for k, c in enumerate(self.classes) if k >= n_known and c.found <= 1]

    def sentence(self, run: Assignment) -> str:
        """In plain words."""
        seeds, new = len(self.seeds), len(run.class_names) - run.n_known
        if not new:
            return ""
        always = sum(c.found == seeds for c in self.classes[run.n_known :])
        text = f"With {seeds} seeds, {always:,} of {counted(new, 'new class')} came out every time"
        if unstable := self.unstable(run.n_known):
            names = ", ".join(run.class_names[k] for k in unstable[:NAMED]) + ", …" * (len(unstable) > NAMED)
            be = "is" if len(unstable) == 1 else "are"
            text += f"; {len(unstable):,} came out with one seed at most, and {be} unstable: {names}"
        return text + "."

    @classmethod
    def from_json(cls, content: dict[str, Any], images: int) -> Stability:
        """What ``as_json`` gave, of a run with so many images; raises KeyError, TypeError or ValueError otherwise."""
        found = cls(
            [int(seed) for seed in content["seeds"]],
            [ClassStability(**entry) for entry in content["classes"]],
            [Elsewhere(**entry) for entry in content["elsewhere"]],
        )
        seeds = range(len(found.seeds) + 1)
        if not all(c.found in seeds and (c.together is None or 0 <= c.together <= 1) for c in found.classes):
            raise ValueError("impossible shares or numbers of seeds")
        if not all(c.images and c.found in seeds and set(c.images) <= set(range(images)) for c in found.elsewhere):
            raise ValueError("classes of images that do not exist")
        return found

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(own: Assignment, runs: Sequence[Assignment], seeds: Sequence[int]) -> Stability:
    """The classes of an answer, as the runs with these seeds see them."""
    tables = [_shared(own, run) for run in runs]
    together = np.mean([_together(table) for table in tables], axis=0)
    found = np.sum([_counterparts(table) >= 0 for table in tables], axis=0)
    sizes = own.sizes()
    return Stability(
        list(seeds),
        [
            ClassStability(float(together[k]) if sizes[k] > 1 else None, int(found[k]) if sizes[k] else 0)
            for k in range(len(sizes))
        ],
        _elsewhere(own, runs, seeds),
    )


def _elsewhere(own: Assignment, runs: Sequence[Assignment], seeds: Sequence[int]) -> list[Elsewhere]:
    """Each once, with the first seed that has it."""
    listed = [(own, set(range(len(own.class_names))))]  # classes that later ones are compared with
    found: list[Elsewhere] = []
    for run, seed in zip(runs, seeds, strict=True):
        same = [(_counterparts(_shared(run, other)).tolist(), classes) for other, classes in listed]
        only_here = [
            k
            for k in np.flatnonzero(run.sizes()).tolist()
            if k >= run.n_known and not any(there[k] in classes for there, classes in same)
        ]
        everywhere = [_counterparts(_shared(run, other)) for other in runs]
        for k in only_here:
            images = run.most_certain(k, len(run.classes))
            found.append(Elsewhere(seed, images, sum(int(there[k] >= 0) for there in everywhere)))
        listed.append((run, set(only_here)))
    return sorted(found, key=lambda entry: -len(entry.images))


def _shared(one: Assignment, other: Assignment) -> NDArray[np.int64]:
    """K×K': images in class k here and k' there; not those that are in no class."""
    shape = len(one.class_names), len(other.class_names)
    table = np.zeros(shape, dtype=np.int64)
    placed = (one.classes >= 0) & (other.classes >= 0)
    np.add.at(table, (one.classes[placed], other.classes[placed]), 1)
    return table


def _together(table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of the pairs of images of each class here, the share that is in one class there, too."""
    sizes = table.sum(axis=1)
    pairs: NDArray[np.float64] = (table * (table - 1)).sum(axis=1) / np.maximum(sizes * (sizes - 1), 1)
    return pairs


def _counterparts(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """K: the class there that holds mostly the same images, or -1."""
    either = table.sum(axis=1)[:, None] + table.sum(axis=0)[None, :] - table
    same = table > SAME * either
    return np.where(same.any(axis=1), same.argmax(axis=1), -1)
