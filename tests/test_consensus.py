"""The consensus of several answers: classes are matched, probabilities averaged."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound import consensus as consensus_module
from newfound.consensus import consensus, match_classes

KNOWN = 2


@st.composite
def answered(draw, most=4, images=12, left_out=True):
    """Some answers: a class for each image, or none, and probabilities that say the same."""
    n = draw(st.integers(1, images))
    answers, probabilities = [], []
    for _ in range(draw(st.integers(1, most))):
        count = draw(st.integers(KNOWN, KNOWN + 3))
        lowest = -1 if left_out else 0
        answer = np.array(draw(st.lists(st.integers(lowest, count - 1), min_size=n, max_size=n)), dtype=np.int64)
        answers.append(answer)
        probabilities.append(sure_of(answer, count, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))))
    return answers, probabilities


def sure_of(answer, count, random):
    rows = random.uniform(0, 1, (len(answer), count))
    rows[np.arange(len(answer)), np.maximum(answer, 0)] += 1
    return rows / rows.sum(axis=1, keepdims=True)


def renamed(answer, rows, order):
    """The same with other numbers for the new classes: number k becomes order[k]."""
    order = np.asarray(order)
    return np.append(order, -1)[answer], rows[:, np.argsort(order)]


def agreeing(answers, columns):
    """In how many pairs of answers how many images are in the same class."""
    classes = [np.append(c, -1)[answer] for answer, c in zip(answers, columns, strict=True)]
    return sum(((one == other) & (one >= 0)).sum() for i, one in enumerate(classes) for other in classes[:i])


def equal(one, other):
    assert one.count == other.count
    assert one.classes.tolist() == other.classes.tolist()
    assert one.unanimous.tolist() == other.unanimous.tolist()
    everything = slice(0, len(one.classes))
    np.testing.assert_allclose(one.probabilities(everything), other.probabilities(everything), atol=1e-12)


def naive_means(answers, probabilities, found):
    """Image by image, answer by answer."""
    means = np.zeros((len(answers[0]), found.count))
    for i in range(len(means)):
        counted = [s for s, answer in enumerate(answers) if answer[i] >= 0] or range(len(answers))
        for s in counted:
            for k, column in enumerate(found.columns[s]):
                if column >= 0:
                    means[i, column] += probabilities[s][i, k]
    return means / means.sum(axis=1, keepdims=True)


@settings(max_examples=40)
@given(answered())
def test_it_is_what_averaging_image_by_image_gives(case):
    found = consensus(*case, KNOWN)
    means = naive_means(*case, found)
    np.testing.assert_allclose(found.probabilities(slice(0, len(means))), means, atol=1e-12)
    for i, k in enumerate(found.classes):
        left_out = sum(answer[i] < 0 for answer in case[0])
        assert (k < 0) == (left_out > len(case[0]) / 2)
        assert k < 0 or means[i, k] >= means[i].max() - 1e-12


@settings(max_examples=40)
@given(answered(most=2))
def test_two_answers_are_matched_as_well_as_can_be(case):
    """Compared with every way to match them."""
    answers, counts = case[0], [rows.shape[1] for rows in case[1]]
    columns = match_classes(answers, counts, KNOWN)
    wide = range(KNOWN, max(counts) if len(counts) < 2 else sum(counts))
    for column, k in zip(columns, counts, strict=True):
        assert column[:KNOWN].tolist() == list(range(KNOWN))
        assert len(set(column.tolist())) == k
        assert set(column.tolist()) <= {*range(KNOWN), *wide}
    if len(answers) == 2:
        first = np.arange(counts[0])
        best = max(
            agreeing(answers, [first, np.array([*range(KNOWN), *others])])
            for others in permutations(range(KNOWN, KNOWN + 6), counts[1] - KNOWN)
        )
        assert agreeing(answers, columns) == best


@settings(max_examples=40)
@given(answered(), st.data())
def test_what_new_classes_are_called_does_not_matter(case, data):
    others = [
        renamed(answer, rows, [*range(KNOWN), *data.draw(st.permutations(range(KNOWN, rows.shape[1])))])
        for answer, rows in zip(*case, strict=True)
    ]
    equal(consensus(*case, KNOWN), consensus(*map(list, zip(*others, strict=True)), KNOWN))


@settings(max_examples=40)
@given(answered(), st.randoms(use_true_random=False))
def test_the_order_of_the_answers_does_not_matter(case, random):
    pairs = list(zip(*case, strict=True))
    random.shuffle(pairs)
    one, other = consensus(*case, KNOWN), consensus(*map(list, zip(*pairs, strict=True)), KNOWN)
    equal(one, other)


@settings(max_examples=40)
@given(answered(most=1), st.integers(1, 5))
def test_copies_of_one_answer_give_that_answer(case, copies):
    (answer,), (rows,) = case
    found = consensus([answer] * copies, [rows] * copies, KNOWN)
    assert found.unanimous.all()
    assert (found.columns[0][answer] == found.classes)[answer >= 0].all()
    assert (found.classes < 0).tolist() == (answer < 0).tolist()
    left = found.columns[0] >= 0
    share = rows[:, left] / rows[:, left].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities(slice(0, len(rows)))[:, found.columns[0][left]], share, atol=1e-12)


@settings(max_examples=40)
@given(answered())
def test_new_classes_are_numbered_by_size(case):
    found = consensus(*case, KNOWN)
    sizes = np.bincount(found.classes[found.classes >= 0], minlength=found.count)[KNOWN:]
    assert (sizes > 0).all()
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


@settings(max_examples=40)
@given(answered(), st.integers(1, 7))
def test_memory_does_not_matter(case, cells):
    with pytest.MonkeyPatch.context() as patch:
        whole = consensus(*case, KNOWN)
        patch.setattr(consensus_module, "CELLS", cells)
        parts = consensus(*case, KNOWN)
    equal(whole, parts)
    assert [i for rows in parts.blocks() for i in range(len(parts.classes))[rows]] == list(range(len(parts.classes)))


def test_the_majority_decides_image_by_image():
    """Each answer is wrong about another image, and calls the new classes as it likes."""
    true = np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 3])
    answers = [true.copy() for _ in range(3)]
    answers[0][0], answers[1][4], answers[2][9] = 1, 3, 2
    answers[1] = np.array([0, 1, 3, 2])[answers[1]]
    rows = [sure_of(answer, 4, np.random.default_rng(s)) for s, answer in enumerate(answers)]
    found = consensus(answers, rows, KNOWN)
    assert found.classes.tolist() == true.tolist()
    assert np.flatnonzero(~found.unanimous).tolist() == [0, 4, 9]
    assert found.columns[1].tolist() == [0, 1, 3, 2]


def test_a_class_without_a_counterpart_stays_its_own_or_goes():
    """The first answer splits a class in two; the others do not."""
    split, whole = np.array([0, 1, 2, 2, 2, 3, 3]), np.array([0, 1, 2, 2, 2, 2, 2])
    rows = {k: np.eye(k) * 0.9 + 0.1 / k for k in (3, 4)}
    found = consensus([split, whole], [rows[4][split], rows[3][whole]], KNOWN)
    assert found.columns[0][3] != found.columns[1][2]
    found = consensus([split, whole, whole], [rows[4][split], rows[3][whole], rows[3][whole]], KNOWN)
    assert found.count == 3
    assert found.columns[0].tolist() == [0, 1, 2, -1]
    found = consensus([split, split, whole], [rows[4][split], rows[4][split], rows[3][whole]], KNOWN)
    assert found.classes.tolist() == split.tolist()


def test_an_image_is_left_out_by_more_than_half():
    none = np.array([2, -1, -1, -1]), np.array([2, 2, -1, -1]), np.array([2, 2, 1, -1])
    rows = [sure_of(answer, 3, np.random.default_rng(s)) for s, answer in enumerate(none)]
    found = consensus(none, rows, KNOWN)
    assert found.classes.tolist() == [2, 2, -1, -1]
    assert found.unanimous.tolist() == [True, False, False, True]
    np.testing.assert_allclose(found.probabilities(slice(2, 3)), rows[2][2:3])  # of the only answer that has a class


def test_so_many_classes_are_kept_even_if_they_are_empty():
    answer, rows = np.zeros(3, np.int64), np.full((3, 3), [0.8, 0.1, 0.1])
    assert consensus([answer], [rows], 0).count == 1
    found = consensus([answer, answer], [rows, rows], 0, fewest=2)
    assert (found.count, found.classes.tolist()) == (2, [0, 0, 0])
