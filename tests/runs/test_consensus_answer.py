"""From a consensus to what a person reads."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from newfound.consensus import consensus
from newfound.runs.assignments import Assignment
from newfound.runs.consensus_answer import assignment_of, imitation_of
from newfound.runs.consensus_facts import ConsensusFacts
from newfound.screen import Screen

KNOWN = 2  # as many classes as are kept even if they are empty: which new ones would be kept is arbitrary


def answer_of(classes, count, seed=0, anchors=()):
    """An answer as a run gives it, -1 for images that are left out, and its probabilities."""
    classes, n = np.array(classes, dtype=np.int64), len(classes)
    rows = np.random.default_rng(seed).uniform(0, 1, (n, count))
    rows[np.arange(n), np.maximum(classes, 0)] += 1
    rows = (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)
    names = ("cat", "cow", *(f"new-{k}" for k in range(1, count - 1)))
    second = np.argsort(-rows, axis=1)[:, 1]
    confidence = np.where(classes < 0, 0.0, rows.max(axis=1))
    is_anchor = np.isin(np.arange(n), list(anchors))
    return Assignment(names, ("dog",), KNOWN, classes, confidence, second, rows.min(axis=1), is_anchor), rows


def table_of(answers):
    """The consensus of such answers as an assignment, and the consensus itself."""
    each = [one for one, _ in answers]
    found = consensus([one.classes for one in each], [rows for _, rows in answers], KNOWN, fewest=2)
    return assignment_of(found, each), found


some_answers = st.integers(1, 10).flatmap(
    lambda n: st.lists(
        st.tuples(st.lists(st.integers(-1, 3), min_size=n, max_size=n), st.integers(0, 99)), min_size=1, max_size=4
    )
)


@settings(max_examples=40)
@given(some_answers)
def test_it_is_what_sorting_the_averaged_probabilities_gives(drawn):
    a, found = table_of([answer_of(classes, 4, seed) for classes, seed in drawn])
    means = found.probabilities(slice(0, len(a.classes)))
    assert a.classes.tolist() == found.classes.tolist()
    for i, row in enumerate(means):
        first, second = np.sort(row)[::-1][:2]
        if a.classes[i] < 0:
            assert a.confidence[i] == 0
            assert (row[a.runner_up[i]], a.runner_up_confidence[i]) == (first, first)
        else:
            assert a.runner_up[i] != a.classes[i]
            np.testing.assert_allclose([a.confidence[i], a.runner_up_confidence[i]], [first, second])
    assert a.class_names == ("cat", "cow", *(f"new-{k}" for k in range(1, found.count - 1)))
    assert (a.n_known, a.unseen) == (KNOWN, ("dog",))


@settings(max_examples=40)
@given(some_answers, st.randoms(use_true_random=False))
def test_the_order_of_the_seeds_does_not_matter(drawn, random):
    answers = [answer_of(classes, 4, seed, anchors=[seed % len(classes)]) for classes, seed in drawn]
    one, _ = table_of(answers)
    random.shuffle(answers)
    other, _ = table_of(answers)
    assert one.classes.tolist() == other.classes.tolist()
    assert one.is_anchor.tolist() == other.is_anchor.tolist()
    np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-12)


def test_equal_answers_are_the_answer():
    answer = answer_of([0, 0, 1, 1, 1, 2, 2, -1], 3, anchors=[2, 5])
    a, found = table_of([answer] * 3)
    assert found.unanimous.all()
    for name in ("classes", "runner_up", "is_anchor"):
        expected = getattr(answer[0], name)[:-1].tolist()
        assert getattr(a, name)[:-1].tolist() == expected, name
    np.testing.assert_allclose(a.confidence, answer[0].confidence)
    assert a.classes[-1] == -1


def test_an_anchor_is_one_with_most_seeds_and_in_the_same_class():
    classes = [0, 1, 1, 1, 2, 2]
    other = [0, 1, 1, 1, 1, 2]  # image 4 is somewhere else
    a, _ = table_of([
        answer_of(classes, 3, 0, anchors=[1, 2, 4]),
        answer_of(classes, 3, 1, anchors=[1, 4]),
        answer_of(other, 3, 2, anchors=[1, 3, 4]),
    ])  # fmt: skip
    assert a.classes.tolist() == classes
    assert np.flatnonzero(a.is_anchor).tolist() == [1, 4]
    a, _ = table_of([answer_of(classes, 3, 0, anchors=[1]), answer_of(classes, 3, 1)])
    assert not a.is_anchor.any()  # half of them are not most
    a, _ = table_of([answer_of(classes, 3, s, anchors=[4]) for s in range(2)] + [answer_of(other, 3, 2, anchors=[4])])
    assert np.flatnonzero(a.is_anchor).tolist() == [4]
    a, _ = table_of([answer_of(classes, 3, 0, anchors=[4]), *(answer_of(other, 3, s, anchors=[]) for s in (1, 2))])
    assert not a.is_anchor.any()


def test_the_share_of_images_that_the_model_labels_alike():
    """Images that are left out do not count."""
    answer = answer_of([0, 0, 1, 1, -1], 2)
    _, found = table_of([answer] * 2)
    embeddings = np.float32([[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]])
    directions, share = imitation_of(found, embeddings, 0.1)
    assert share == 1
    assert (embeddings[:4] @ directions.T).argmax(axis=1).tolist() == [0, 0, 1, 1]
    _, share = imitation_of(found, np.float32([[1, 0]] * 5), 0.1)  # all look alike
    assert share == 0.5
    nobody = replace(answer[0], classes=np.full(5, -1))
    _, found = table_of([(nobody, answer[1])] * 2)
    assert np.isfinite(imitation_of(found, embeddings, 0.1)[0]).all()


@pytest.mark.parametrize(("agreement", "warned"), [(0.97, False), (0.965, True)])
def test_a_model_that_differs_much_says_so(agreement, warned):
    console = Console(file=io.StringIO(), width=200)
    ConsensusFacts([3, 4], 0.912, 4, agreement).tell(Screen(console))
    out = console.file.getvalue()
    assert "consensus of 2 seeds: 91.2 % of images unanimous\n" in out
    assert f"the model agrees with the consensus on {100 * agreement:.1f} % of the images" in out
    assert ("rely on assignments.csv for these images" in out) == ("warning" in out) == warned
