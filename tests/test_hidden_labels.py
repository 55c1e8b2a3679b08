"""Known classes that play new ones."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newfound.errors import UserError
from newfound.hidden_labels import FEWEST_CLASSES, hide


@st.composite
def labels_of_folders(draw):
    """Classes of one to seven labels, enough of them with several, and unlabelled images in between."""
    sizes = draw(st.lists(st.integers(2, 7), min_size=FEWEST_CLASSES, max_size=12))
    sizes += draw(st.lists(st.just(1), max_size=3))
    labels = np.repeat(np.arange(-1, len(sizes)), [draw(st.integers(0, 9)), *sizes])
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(labels)


numbers, shares = st.integers(0, 20), st.sampled_from([0.1, 1 / 4, 1 / 3, 1 / 2, 0.9])


@given(labels_of_folders(), numbers, shares, shares, st.integers(0, 3))
def test_what_training_sees_and_what_is_scored(labels, number, classes, images, seed):
    split = hide(labels, number, share_of_classes=classes, share_of_images=images, seed=seed)
    told = split.labels >= 0
    np.testing.assert_array_equal(split.scored, np.flatnonzero((labels >= 0) & ~told))  # all that is hidden
    assert (labels[told] >= 0).all()  # and nothing that was unlabelled
    np.testing.assert_array_equal(split.true, labels[split.scored])
    left = sorted(set(labels[told].tolist()))
    assert split.labels[told].tolist() == [left.index(k) for k in labels[told]]  # from 0, in the same order
    assert split.known.tolist() == [k in left for k in split.true]


@given(labels_of_folders(), numbers, shares, shares)
def test_there_is_evidence_of_both_kinds_and_something_to_learn_from(labels, number, classes, images):
    split = hide(labels, number, share_of_classes=classes, share_of_images=images)
    sizes, hidden = Counter(labels[labels >= 0].tolist()), Counter(split.true.tolist())
    new = {int(k) for k in split.true[~split.known]}
    assert len(new) >= 2
    assert split.labels.max() + 1 == len(sizes) - len(new) >= 2
    for k, size in sizes.items():
        if size == 1:
            assert hidden[k] == 0
        elif k in new:
            assert hidden[k] == size
        else:
            assert 1 <= hidden[k] < size


@given(labels_of_folders(), shares, st.integers(0, 3))
def test_every_class_has_its_turn_before_one_has_another(labels, share, seed):
    turns = Counter({k: 0 for k, size in Counter(labels[labels >= 0].tolist()).items() if size > 1})
    for number in range(12):
        split = hide(labels, number, share_of_classes=share, seed=seed)
        turns.update({int(k) for k in split.true[~split.known]})
        assert max(turns.values()) - min(turns.values()) <= 1
    assert min(turns.values()) >= 1


def test_shares_are_as_asked_for():
    labels = np.repeat(np.arange(30), 20)
    split = hide(labels, 0, share_of_classes=1 / 3, share_of_images=1 / 4)
    assert split.labels.max() + 1 == 20
    assert Counter(split.true[split.known].tolist()) == {int(k): 5 for k in set(split.true[split.known])}
    assert split.known.sum() == 20 * 5


def test_a_split_is_what_seed_and_number_say():
    labels = np.repeat(np.arange(12), 5)
    splits = {(seed, number): hide(labels, number, seed=seed) for seed in range(3) for number in range(6)}
    assert len({split.labels.tobytes() for split in splits.values()}) == len(splits)
    np.testing.assert_array_equal(hide(labels, 4, seed=2).labels, splits[2, 4].labels)


def test_the_score_is_that_of_the_hidden_images():
    labels = np.repeat(np.arange(-1, 6), 4)
    split = hide(labels, 0)
    perfect = np.full(len(labels), 77)  # nobody asks what the others are
    perfect[split.scored] = split.true
    assert vars(split.accuracy(perfect)) == {"all": 1.0, "old": 1.0, "new": 1.0}
    wrong = perfect.copy()
    wrong[split.scored[split.known]] = -1  # in no class
    found = split.accuracy(wrong)
    assert (found.old, found.new) == (0.0, 1.0)
    assert found.all == pytest.approx((~split.known).mean())


@pytest.mark.parametrize(
    ("labels", "found"),
    [([-1, -1], "0 known classes"), ([0, 0, 1, 1, 2, 2, 3, 4], "3 known classes"), ([0, 0, 1], "1 known class like")],
)
def test_too_few_classes_are_refused(labels, found):
    with pytest.raises(UserError, match=f"at least 4 with two labelled images each; found {found}"):
        hide(np.array(labels), 0)
