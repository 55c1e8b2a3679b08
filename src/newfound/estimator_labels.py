"""Labels of an estimator, as people write them: as numbers from 0, and names for the classes that nobody has named."""

from __future__ import annotations

import itertools
import math
import warnings
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from newfound.images.class_folders import UNLABELLED_FOLDERS, means_unsorted
from newfound.runs.assignments import NONE_OF_THESE, new_names

UNLABELLED_TEXT = ("", "-1")  # NumPy makes the latter of ["cat", -1]


def encoded(y: ArrayLike) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The number of each sample's class, -1 for unlabelled; and the known classes, sorted.

    >>> targets, known = encoded(["dog", None, "cat", -1, ""])
    >>> targets.tolist(), known.tolist()
    ([1, -1, 0, -1, -1], ['cat', 'dog'])
    """
    given = y if hasattr(y, "dtype") else np.asarray(y, dtype=object)  # NumPy would make strings of None and NaN
    values = column_or_1d(given, warn=True)
    if values.dtype.kind in "biuf":
        labelled = (values != -1) & ~np.isnan(values)
        named = values[labelled]
    else:
        labelled = np.array([not _marks_unlabelled(value) for value in values.tolist()], dtype=bool)
        named = _of_one_type(values[labelled].tolist())
    if len(named):
        assert_all_finite(named, input_name="y")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of many classes: here they may have one label each
            check_classification_targets(named)
    known, numbers = np.unique(named, return_inverse=True)
    _warn_of_unlabelled(known)
    targets = np.full(len(values), -1, dtype=np.int64)
    targets[labelled] = numbers
    return targets, known


def _warn_of_unlabelled(known: NDArray[Any]) -> None:
    """Words that may have been meant as "no label" are classes all the same."""
    if known.dtype.kind == "U":
        for name in known.tolist():
            if name.strip().lower() in UNLABELLED_FOLDERS or means_unsorted(name):
                warnings.warn(
                    f"y has {name!r}, which is taken as the name of a class; where there is no label use -1 or None",
                    UserWarning,
                    stacklevel=4,
                )


def _marks_unlabelled(value: object) -> bool:
    if isinstance(value, str):
        return value in UNLABELLED_TEXT
    if isinstance(value, Real):
        return value == -1 or math.isnan(value)
    return value is None or type(value).__name__ == "NAType"  # of pandas, which need not be installed


def _of_one_type(labels: list[Any]) -> NDArray[Any]:
    """All strings or all numbers, in an array of that type."""
    if not labels:
        return np.array([], dtype=np.int64)
    if not (all(isinstance(label, str) for label in labels) or all(isinstance(label, Real) for label in labels)):
        raise ValueError(f"labels must be all strings or all whole numbers; found {labels[:5]} among others")
    return np.array(labels)


def new_labels(known: NDArray[Any], count: int) -> NDArray[Any]:
    """Labels for new classes: of the same kind, none of them known, none of them -1.

    >>> new_labels(np.array([3, 7]), 2).tolist(), new_labels(np.array(["cat"]), 2).tolist()
    ([8, 9], ['new-1', 'new-2'])
    """
    if known.dtype.kind == "U":
        return np.array(new_names(tuple(known.tolist()), count))
    kind = known.dtype if known.dtype == np.uint64 else np.dtype(np.int64)  # together they would become floats
    taken = {int(label) for label in known}  # Python's integers: an unsigned one has no -1
    first = max([-1, *taken]) + 1
    if first + count - 1 > np.iinfo(kind).max:  # there is no room above
        return np.array(list(itertools.islice((k for k in itertools.count() if k not in taken), count)), dtype=kind)
    return np.arange(first, first + count, dtype=kind)


def with_none_of_these(labels: NDArray[Any], none: NDArray[np.bool_]) -> NDArray[Any]:
    """The same, but -1 where ``none`` holds, or "none of these" among strings.

    >>> with_none_of_these(np.array([3, 7]), np.array([True, False])).tolist()
    [-1, 7]
    >>> with_none_of_these(np.array(["cat", "dog"]), np.array([True, False])).tolist()
    ['none of these', 'dog']
    """
    if labels.dtype.kind == "U":
        return np.where(none, NONE_OF_THESE, labels)
    if labels.dtype.kind in "bu":  # which have no -1
        labels = labels.astype(object if labels.max(initial=0) > np.iinfo(np.int64).max else np.int64)
    return np.where(none, -1, labels)
