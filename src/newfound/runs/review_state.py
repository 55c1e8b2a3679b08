"""The model's answer with a person's decisions applied: the classes there are now, and the images in each.

Classes are numbered as in classes.csv, those that decisions add continue from there; images are called by their file
names. Nothing here touches a file: `decisions` keeps the decisions on disk and replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from newfound.errors import UserError
from newfound.runs.assignments import NONE_OF_THESE, new_names
from newfound.runs.nearest_class import nearest_classes
from newfound.runs.results import Results

LONGEST_NAME = 200
NOT_A_CLASS = -1
Decider = Literal["given", "person", "model"]
Decision = dict[str, Any]  # an action and what it is applied to, as in decisions.json


class Refused(UserError):
    """A decision that makes no sense in the present state; the text is for the person who made it."""


@dataclass
class Reviewed:
    """The model's answer with decisions applied."""

    results: Results
    names: dict[int, str]  # of the classes there are now, by number
    known: set[int]  # of them, those that were known or have a known class merged in
    class_of: NDArray[np.int64]  # N: number of a class, or NOT_A_CLASS: dismissed, or none of these from the start
    verdict: NDArray[np.int8]  # N: 1 accepted as being of its class, -1 rejected, 0 not judged
    placed: NDArray[np.bool_]  # N: a person put it where it is
    merged: dict[int, int] = field(default_factory=dict)  # a class that is gone: the one it went into
    meant: set[int] = field(default_factory=set)  # classes a person has named, merged or split: they are real
    next_number: int = 0

    @classmethod
    def of(cls, results: Results, decisions: Sequence[Decision] = ()) -> Reviewed:
        """Replay the decisions."""
        a, n = results.assignment, len(results)
        reviewed = cls(
            results,
            names=dict(enumerate(a.class_names)),
            known=set(range(a.n_known)),
            class_of=a.classes.copy(),
            verdict=np.zeros(n, np.int8),
            placed=np.zeros(n, np.bool_),
            next_number=len(a.class_names),
        )
        numbers = {file: i for i, file in enumerate(results.files)}
        for decision in decisions:
            reviewed.apply(decision, numbers)
        return reviewed

    def apply(self, decision: Decision, numbers: dict[str, int]) -> None:
        """Change the state by one decision; raises `Refused`, with nothing changed, if it makes no sense."""
        actions = {
            "rename": self._rename, "merge": self._merge, "split": self._split, "move": self._move,
            "dismiss": self._dismiss, "judge": self._judge,
        }  # fmt: skip
        wanted = decision.get("action")
        if not isinstance(wanted, str) or wanted not in actions:
            raise Refused(f"there is no action {wanted!r}; there are: {', '.join(actions)}")
        actions[wanted](decision, numbers)

    def members(self, number: int) -> NDArray[np.int64]:
        """The images of a class, in the order of the files."""
        return np.flatnonzero(self.class_of == number)

    # Each action checks everything before it changes anything.

    def _rename(self, d: Decision, numbers: dict[str, int]) -> None:
        number = self._class(d.get("class"))
        name = self._free_name(d.get("name"), besides=number)
        self.names[number] = name
        self.meant.add(number)

    def _merge(self, d: Decision, numbers: dict[str, int]) -> None:
        into = self._class(d.get("into"))
        classes = d.get("classes")
        gone = {self._class(number) for number in classes} - {into} if isinstance(classes, list) else set()
        if not gone:
            raise Refused("merging needs two classes")
        for number in gone:
            del self.names[number]
            self.class_of[self.class_of == number] = into
            self.merged[number] = into
        if self.known & gone:
            self.known = self.known - gone | {into}
        self.meant = self.meant - gone | {into}

    def _split(self, d: Decision, numbers: dict[str, int]) -> None:
        number = self._class(d.get("class"))
        images = self._images(d, numbers)
        members = self.members(number)
        if not np.isin(images, members).all() or len(images) == len(members):
            raise Refused(f"splitting {self.names[number]!r} takes some of its images, not all, and no others")
        own = np.array([self.label_of_given(i) == number for i in images], dtype=np.bool_)
        new = self._new_class(d.get("name"))
        self.class_of[images] = new
        self.placed[images] = own  # or their labels would keep them; where a person put others is another class now
        self.verdict[images] = 0
        self.meant |= {number, new}

    def _move(self, d: Decision, numbers: dict[str, int]) -> None:
        images = self._images(d, numbers)
        if d.get("to") is None:
            to = self._new_class(d.get("name"))
            self.meant.add(to)
        else:
            to = self._class(d["to"])
        self.class_of[images] = to
        self.placed[images] = True
        self.verdict[images] = 0  # the verdict was about another class

    def _dismiss(self, d: Decision, numbers: dict[str, int]) -> None:
        number = self._class(d.get("class"))
        if number in self.known:
            raise Refused(f"{self.names[number]!r} is a known class: it has labels. Rename or merge it instead.")
        members = self.members(number)
        del self.names[number]
        self.class_of[members] = NOT_A_CLASS
        self.verdict[members] = 0
        self.meant.discard(number)

    def _judge(self, d: Decision, numbers: dict[str, int]) -> None:
        verdict = d.get("verdict")
        if isinstance(verdict, bool) or verdict not in (-1, 0, 1):
            raise Refused(f"a verdict is 1 (accepted), -1 (rejected) or 0 (none); found {verdict!r}")
        images = self._images(d, numbers)
        if verdict and (self.class_of[images] == NOT_A_CLASS).any():
            raise Refused("an image that is in no class cannot be accepted or rejected; move it first")
        self.verdict[images] = verdict

    # What a decision may name

    def _class(self, number: object) -> int:
        if isinstance(number, int) and not isinstance(number, bool) and number in self.names:
            return number
        raise Refused(f"there is no class number {number!r}")

    def _images(self, d: Decision, numbers: dict[str, int]) -> NDArray[np.int64]:
        files = d.get("images")
        if not isinstance(files, list) or not files:
            raise Refused("no images are named")
        if unknown := [file for file in files if not isinstance(file, str) or file not in numbers]:
            raise Refused(f"{unknown[0]!r} is not an image of this run")
        return np.array(sorted({numbers[file] for file in files}), dtype=np.int64)

    def _new_class(self, name: object) -> int:
        taken = (*self.names.values(), *self.results.assignment.unseen, *self.results.assignment.class_names)
        chosen = self._free_name(name) if name is not None else self._unused(taken)
        number = self.next_number
        self.names[number] = chosen
        self.next_number += 1
        return number

    def _unused(self, taken: tuple[str, ...]) -> str:
        """The next name of the kind that discovered classes have."""
        a = self.results.assignment
        candidates = new_names(a.class_names[: a.n_known] + a.unseen, self.next_number + len(taken) + 1)
        return next(name for name in candidates[len(a.class_names) - a.n_known :] if name not in taken)

    def _free_name(self, name: object, besides: int | None = None) -> str:
        if not isinstance(name, str) or not name.strip():
            raise Refused("a class needs a name")
        name = " ".join(name.split())
        if len(name) > LONGEST_NAME:
            raise Refused(f"a name has at most {LONGEST_NAME} characters; found {len(name)}")
        if not all(character.isprintable() for character in name):
            raise Refused(f"a name must be printable; found {name!r}")
        if name.casefold() == NONE_OF_THESE:
            raise Refused(f"{NONE_OF_THESE!r} is what images unlike any class are called")
        for number, other in self.names.items():
            if other == name and number != besides:
                raise Refused(f"there is a class {name!r} already; merge the two if they are one")
        return name

    # What follows from it

    def now(self, number: int) -> int:
        """The class that one of this number has become by merges."""
        while number in self.merged:
            number = self.merged[number]
        return number

    def label_of_given(self, image: int) -> int:
        """The class that an image's given label means now, -1 without one."""
        return self.now(int(self.results.given[image]))

    def human_label(self, image: int) -> int | None:
        """The class that a person says an image is of: accepted or moved there, or labelled and not rejected.

        `NOT_A_CLASS` where a person took it out of its class, None where nobody has labelled it.
        """
        number, label = int(self.class_of[image]), self.label_of_given(image)
        if self.verdict[image] > 0:
            return number
        if self.placed[image]:
            return NOT_A_CLASS if self.verdict[image] < 0 else number
        if label < 0:
            return None
        return NOT_A_CLASS if self.verdict[image] < 0 and number == label else label

    def decided_by(self, image: int) -> Decider:
        """Who says which class an image is of: its given label, a person (also that it is of none), or the model."""
        label, verdict, number = self.label_of_given(image), self.verdict[image], self.class_of[image]
        if label >= 0 and not self.placed[image] and verdict <= 0 and not (verdict < 0 and number == label):
            return "given"
        dismissed = number == NOT_A_CLASS != self.results.assignment.classes[image]
        return "person" if self.placed[image] or verdict or dismissed else "model"

    def next_labels(self) -> dict[str, str | None]:
        """File to class name: what the next round may take as labelled; None where a person took the label away.

        What a person says; and of each class that a person named, merged or split, the anchors, or where it has none
        the more certain half. Rejected ones never.
        """
        labels: dict[str, str | None] = {}
        examples = self._examples()
        for i, file in enumerate(self.results.files):
            label = self.human_label(i)
            if label is not None:
                labels[file] = self.names.get(label)
            elif examples[i] and not self.verdict[i]:
                labels[file] = self.names[int(self.class_of[i])]
        return labels

    def _examples(self) -> NDArray[np.bool_]:
        """The images that show what a person means by a class."""
        a, chosen = self.results.assignment, np.zeros(len(self.results), np.bool_)
        for number in self.meant:
            members = self.members(number)
            anchors = members[a.is_anchor[members]]
            if not len(anchors) and len(members):
                anchors = members[a.confidence[members] >= np.median(a.confidence[members])]
            chosen[anchors] = True
        return chosen

    def live_names(self) -> set[str]:
        """The classes there are now: known ones, and those that an image is left in."""
        counted = (self.known | set(self.class_of.tolist())) & self.names.keys()
        return {self.names[number] for number in counted}

    def model_names(self) -> list[str | None]:
        """What the model's own classes are called now, in its order; None for one that is not a class."""
        return [self.names.get(self.now(number)) for number in range(len(self.results.assignment.class_names))]

    def state(self) -> dict[str, Any]:
        """For the page."""
        kinds = {number: "known" if number in self.known else "new" for number in self.names}
        labels = [self.label_of_given(i) for i in range(len(self.results))]
        nearest = nearest_classes(self.results.embeddings, self.class_of, self.next_number).tolist()
        return {
            "classes": [
                {"id": k, "name": name, "kind": kinds[k], "nearest": nearest[k] if nearest[k] >= 0 else None}
                for k, name in sorted(self.names.items())
            ],
            "class_of": self.class_of.tolist(),
            "given": np.where(self.placed & (self.results.given >= 0), self.class_of, labels).tolist(),
            "verdict": self.verdict.tolist(),
        }


def halves(reviewed: Reviewed, number: int, seed: int = 0) -> list[str]:
    """Cluster a class in two; the files of the smaller half, which is to leave."""
    members = reviewed.members(number)
    if len(members) < 2:
        raise Refused(f"{reviewed.names.get(number)!r} has fewer than two images: there is nothing to split")
    embeddings = reviewed.results.embeddings[members]
    if (embeddings == embeddings[0]).all():
        raise Refused(f"all images of {reviewed.names[number]!r} look the same to the model")
    with threadpool_limits(1):
        second = KMeans(2, n_init=10, random_state=seed).fit_predict(embeddings) == 1
    leaving = members[second] if second.sum() * 2 <= len(members) else members[~second]
    return [reviewed.results.files[i] for i in leaving]
