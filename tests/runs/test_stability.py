"""Which classes come out again with another seed."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newfound.runs.assignments import Assignment
from newfound.runs.stability import Stability, compare


def assignment(classes, n_known=0, size=None):
    classes = np.asarray(classes, dtype=np.int64)
    n, k = len(classes), size or max(int(classes.max()) + 1, n_known)
    names = tuple(f"known-{i}" if i < n_known else f"new-{i - n_known + 1}" for i in range(k))
    confidence = np.linspace(0.5, 1, n)
    return Assignment(names, (), n_known, classes, confidence, classes, confidence, np.zeros(n, bool))


def naive_together(own, runs, k):
    """Pair by pair."""
    pairs = list(combinations(np.flatnonzero(own == k), 2))
    return np.mean([[run[i] == run[j] for i, j in pairs] for run in runs]) if pairs else None


def naive_found(own, runs, k):
    mine = set(np.flatnonzero(own == k))
    found = 0
    for other in runs:
        theirs = [set(np.flatnonzero(other == j)) for j in set(other.tolist())]
        found += any(len(mine & c) > len(mine | c) / 2 for c in theirs)
    return found if mine else 0


sorted_images = st.integers(2, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=2, max_size=4)
)


def compared(answer, runs, n_known=0, size=None, seeds=None):
    """By the classes of images alone."""
    seen = [assignment(run, n_known, size) for run in runs]
    return compare(assignment(answer, n_known, size), seen, range(len(runs)) if seeds is None else seeds)


@given(sorted_images)
def test_it_is_what_counting_pair_by_pair_gives(runs):
    answer, *runs = map(np.array, runs)
    for k, entry in enumerate(compared(answer, runs, size=4).classes):
        assert entry.together == pytest.approx(naive_together(answer, runs, k))
        assert entry.found == naive_found(answer, runs, k)


@given(sorted_images, st.permutations(range(4)))
def test_what_classes_are_called_elsewhere_does_not_matter(runs, names):
    answer, *runs = map(np.array, runs)
    plain, other = (compared(answer, some, size=4) for some in (runs, [np.array(names)[run] for run in runs]))
    assert plain.classes == other.classes
    assert {(e.seed, *e.images) for e in plain.elsewhere} == {(e.seed, *e.images) for e in other.elsewhere}


@given(sorted_images)
def test_each_new_class_is_here_or_elsewhere_and_never_twice(runs):
    answer, *runs = map(np.array, runs)
    found = compared(answer, runs, size=4)
    listed = [set(np.flatnonzero(answer == k)) for k in set(answer.tolist())] + [set(e.images) for e in found.elsewhere]
    for run in runs:
        for k in set(run.tolist()):
            mine = set(np.flatnonzero(run == k))
            assert any(len(mine & other) > len(mine | other) / 2 for other in listed)


def test_a_class_of_one_seed_is_unstable():
    own = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    other = [0, 0, 0, 1, 1, 1, 0, 1, 1]
    found = compared(own, [own, other, other], n_known=1, size=3, seeds=[7, 8, 9])
    assert [entry.found for entry in found.classes] == [3, 3, 1]
    assert found.unstable(n_known=1) == [2]
    assert found.unstable(n_known=3) == []  # a known class is there because somebody said so
    assert found.classes[2].together == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)
    assert found.elsewhere == []
    text = found.sentence(assignment(own, n_known=1))
    assert text.startswith("With 3 seeds, 1 of 2 new classes came out every time; ")
    assert text.endswith("; 1 came out with one seed at most, and is unstable: new-2.")


def test_a_class_that_only_other_seeds_have_is_reported_once():
    own = [0, 0, 0, 0, 1, 1, 1, 1, 1]
    other = [0, 0, 0, 2, 1, 1, 1, 2, 2]
    found = compared(own, [own, other, other], size=3)
    assert [(entry.seed, entry.images, entry.found) for entry in found.elsewhere] == [(1, [8, 7, 3], 2)]  # surest first


def test_without_new_classes_there_is_nothing_to_say():
    run = assignment([0, 0, 1, 1], n_known=2)
    assert compare(run, [run, run], [0, 1]).sentence(run) == ""


def test_a_class_that_no_seed_has_is_unstable():
    """Such as one that a consensus has put together."""
    found = compared([0, 0, 0, 0], [[0, 0, 1, 1], [0, 1, 0, 1]])
    assert [entry.found for entry in found.classes] == [0]
    assert found.unstable(n_known=0) == [0]
    assert [(entry.seed, entry.found) for entry in found.elsewhere] == [(0, 1), (0, 1), (1, 1), (1, 1)]


def test_a_class_of_one_image_and_an_empty_one():
    found = compared([0, 0, 1], [[0, 0, 1]] * 2, n_known=3, size=3)
    assert [(entry.together, entry.found) for entry in found.classes] == [(1.0, 2), (None, 2), (None, 0)]


def test_it_survives_json():
    found = compared([0, 0, 1, 1], [[0, 0, 1, 1], [0, 1, 1, 1]])
    assert Stability.from_json(found.as_json(), images=4) == found
    assert replace(found, seeds=[5, 6]) != found
