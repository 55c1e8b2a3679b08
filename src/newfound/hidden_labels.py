"""How well would settings do on new classes? Known classes can tell: some of them play the new ones.

The labels of these classes are hidden, and those of some images of the other classes, which play the unlabelled images
of known classes. What a method makes of the images is then scored on exactly the images whose labels were hidden. The
classes of images that are really unlabelled are needed by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from newfound.errors import UserError
from newfound.evaluate import Accuracy, cluster_accuracy
from newfound.random_streams import HIDDEN_CLASSES, HIDDEN_IMAGES
from newfound.text import counted

SHARE_OF_CLASSES = 1 / 3  # together they leave half of the labels, and as in the field's
SHARE_OF_IMAGES = 1 / 4  # benchmarks two scored images of new classes for one of known ones
FEWEST_CLASSES = 4  # below that, two of them cannot be hidden with two left to learn from


@dataclass(frozen=True)
class Split:
    """What a training is told, and what it is scored on."""

    labels: NDArray[np.int64]  # N: classes that stay known, from 0; -1 for unlabelled
    scored: NDArray[np.int64]  # n: images whose labels are hidden
    true: NDArray[np.int64]  # n: their classes, numbered as before
    known: NDArray[np.bool_]  # n: is their class one that stays known?

    @property
    def classes(self) -> int:
        """How many there are with a label, hidden or not."""
        return int(self.labels.max(initial=-1)) + 1 + len(np.unique(self.true[~self.known]))

    def accuracy(self, predicted: NDArray[np.int64]) -> Accuracy:
        """Of the classes that N images were put into; -1 for none."""
        return cluster_accuracy(self.true, predicted[self.scored], self.known)


def hide(
    labels: NDArray[np.int64],
    number: int,
    *,
    share_of_classes: float = SHARE_OF_CLASSES,
    share_of_images: float = SHARE_OF_IMAGES,
    seed: int = 0,
) -> Split:
    """Split number 0, 1, 2 and so on of labels (N, -1 for unlabelled), whichever others there are.

    All classes have their turn to be hidden before one of them has another. Classes with a single labelled image stay
    as they are: they would be poor evidence.

    >>> labels = np.array([0, 0, 1, 1, 2, 2, 3, 3, -1])
    >>> split = hide(labels, 0)
    >>> split.labels.tolist()
    [-1, -1, 0, -1, -1, -1, 1, -1, -1]
    >>> split.scored.tolist(), split.true.tolist(), split.known.tolist()
    ([0, 1, 3, 4, 5, 7], [0, 0, 1, 2, 2, 3], [False, False, True, False, False, True])
    """
    classes, sizes = np.unique(labels[labels >= 0], return_counts=True)
    several = classes[sizes > 1]
    check_enough(len(several))
    new = _classes_of_turn(several, number, share_of_classes, seed)
    hidden = np.isin(labels, new)
    drawn = np.random.default_rng([seed, HIDDEN_IMAGES, number])
    for k in np.setdiff1d(several, new):
        hidden[_some(np.flatnonzero(labels == k), share_of_images, drawn)] = True
    scored = np.flatnonzero(hidden)
    left = np.where(hidden | (labels < 0), -1, np.searchsorted(np.setdiff1d(classes, new), labels))
    return Split(left, scored, labels[scored], ~np.isin(labels[scored], new))


def check_enough(classes: int) -> None:
    """Raise if there are not so many known classes with two labelled images or more that some can be hidden."""
    if classes < FEWEST_CLASSES:
        found = counted(classes, "known class", "known classes")
        raise UserError(
            f"settings are compared by hiding the labels of some known classes, which takes at least {FEWEST_CLASSES} "
            f"with two labelled images each; found {found} like that. Label more images, or keep the defaults."
        )


def _classes_of_turn(classes: NDArray[np.int64], number: int, share: float, seed: int) -> NDArray[np.int64]:
    """Those that are hidden in a split: at least two, and never more than half of them, rounded up."""
    sets = min(max(round(1 / share), 2), len(classes) // 2)
    turn, place = divmod(number, sets)
    drawn = np.random.default_rng([seed, HIDDEN_CLASSES, turn])
    return np.array_split(drawn.permutation(classes), sets)[place]


def _some(images: NDArray[np.int64], share: float, drawn: np.random.Generator) -> NDArray[np.int64]:
    """About that share of a class, at least one; at least one is left."""
    count = min(max(round(share * len(images)), 1), len(images) - 1)
    return drawn.permutation(images)[:count]
