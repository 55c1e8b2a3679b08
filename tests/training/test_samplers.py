from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.random_streams import SAMPLER
from newfound.training.samplers import all_alike, half_labelled, label_weights

each = pytest.mark.parametrize("draw", [half_labelled, all_alike, partial(half_labelled, balance=0.5)])
balances = st.floats(0, 1)
label_lists = st.lists(st.integers(-1, 4), min_size=1, max_size=60).map(np.array)


@each
@settings(max_examples=50, deadline=None)
@given(labelled=st.integers(0, 40), unlabelled=st.integers(0, 60), batch=st.integers(1, 50), epoch=st.integers(0, 5))
def test_batches_are_full_and_as_many_as_fit(draw, labelled, unlabelled, batch, epoch):
    labels = np.array([0] * labelled + [-1] * unlabelled)
    if not len(labels):
        return
    batches = draw(labels, batch, seed=0, moment=epoch)
    assert len(batches) == max(1, len(labels) // batch)
    assert {len(b) for b in batches} == {min(batch, len(labels))}
    assert all(0 <= i < len(labels) for b in batches for i in b)


def test_half_of_the_draws_are_labelled_on_average():
    labels = np.array([3] * 20 + [-1] * 480)
    drawn = np.concatenate([b for epoch in range(40) for b in half_labelled(labels, 100, 0, epoch)])
    share = (labels[drawn] >= 0).mean()
    assert 0.47 < share < 0.53
    counts = np.bincount(drawn, minlength=500)
    assert counts[:20].std() / counts[:20].mean() < 0.1  # alike within the labelled ones
    assert counts[20:].min() > 0


def test_drawn_alike_every_image_has_the_same_chance():
    labels = np.array([3] * 20 + [-1] * 480)
    drawn = np.concatenate([b for epoch in range(400) for b in all_alike(labels, 100, 0, epoch)])
    counts = np.bincount(drawn, minlength=500)
    assert counts.mean() == 400
    assert counts[:20].mean() == pytest.approx(400, rel=0.05)
    assert 10 < counts.std() < 30  # with replacement: about 20


@each
def test_draws_depend_on_seed_and_epoch_only(draw):
    labels = np.array([0] * 10 + [-1] * 30)
    one = np.concatenate(draw(labels, 8, 0, 3))
    assert np.array_equal(one, np.concatenate(draw(labels, 8, 0, 3)))
    assert not np.array_equal(one, np.concatenate(draw(labels, 8, 0, 4)))
    assert not np.array_equal(one, np.concatenate(draw(labels, 8, 1, 3)))


# Classes with few labels and with many


def without_balance(labels, batch_size, seed, moment):
    """How batches were drawn before there was a balance."""
    n, labelled = len(labels), labels >= 0
    weights = np.ones(n)
    if 0 < labelled.sum() < n:
        weights[~labelled] = labelled.sum() / (n - labelled.sum())
    drawn = np.random.default_rng([seed, SAMPLER, moment]).choice(n, size=n, p=weights / weights.sum())
    size = min(batch_size, n)
    return [drawn[i : i + size] for i in range(0, n - size + 1, size)]


@settings(max_examples=60)
@given(labels=label_lists, batch=st.integers(1, 70), seed=st.integers(0, 2**32 - 1), epoch=st.integers(0, 5))
def test_balance_0_draws_what_was_drawn_without_it(labels, batch, seed, epoch):
    before = without_balance(labels, batch, seed, epoch)
    for now in (half_labelled(labels, batch, seed, epoch), half_labelled(labels, batch, seed, epoch, balance=0)):
        assert [b.tobytes() for b in now] == [b.tobytes() for b in before]


@settings(max_examples=60)
@given(labels=st.lists(st.integers(0, 4), max_size=60).map(lambda labels: np.array(labels, np.int64)), balance=balances)
def test_chances_are_1_on_average_and_a_power_of_the_number_of_labels(labels, balance):
    weights = label_weights(labels, balance)
    assert weights.sum() == pytest.approx(len(labels))
    for a in range(len(labels)):
        n_a, n_0 = (labels == labels[a]).sum(), (labels == labels[0]).sum()
        assert weights[a] / weights[0] == pytest.approx((n_0 / n_a) ** balance)


UNEVEN = np.array([0] * 1 + [3] * 4 + [1] * 25 + [-1] * 170)  # class 2 has no label


@pytest.mark.parametrize("balance", [0, 0.3, 0.5, 1])
def test_shares_of_the_classes_in_many_draws(balance):
    """A class with n labels has a share in proportion to n^(1-b) of the labelled half, within six standard errors."""
    drawn = np.concatenate([b for epoch in range(200) for b in half_labelled(UNEVEN, 50, 7, epoch, balance=balance)])
    counts = {k: int((UNEVEN[drawn] == k).sum()) for k in (-1, 0, 1, 3)}
    parts = {0: 1.0, 3: 4 ** (1.0 - balance), 1: 25 ** (1.0 - balance)}
    expected = {-1: 0.5} | {k: 0.5 * part / sum(parts.values()) for k, part in parts.items()}
    for k, share in expected.items():
        assert counts[k] / len(drawn) == pytest.approx(share, abs=6 * (share * (1 - share) / len(drawn)) ** 0.5)
    within = np.bincount(drawn, minlength=len(UNEVEN))[UNEVEN == 1]  # the images of a class are alike
    assert within.std() < 1.6 * within.mean() ** 0.5


@settings(max_examples=40)
@given(labels=label_lists, balance=balances, epoch=st.integers(0, 5))
def test_any_labels_can_be_balanced(labels, balance, epoch):
    """None, all of them, a single class: there are as many batches, and they are as full."""
    batches = half_labelled(labels, 16, 0, epoch, balance=balance)
    assert [len(b) for b in batches] == [len(b) for b in without_balance(labels, 16, 0, epoch)]
    assert set(np.concatenate(batches).tolist()) <= set(range(len(labels)))


@pytest.mark.parametrize("labels", [[-1] * 30, [0] * 30, [2] * 10 + [-1] * 20, [0, 1] * 10 + [-1] * 10], ids=str)
@pytest.mark.parametrize("balance", [0.5, 1])
def test_where_all_classes_have_as_many_labels_there_is_nothing_to_balance(labels, balance):
    plain, balanced = (half_labelled(np.array(labels), 7, 3, 2, balance=b) for b in (0, balance))
    assert [b.tolist() for b in plain] == [b.tolist() for b in balanced]
