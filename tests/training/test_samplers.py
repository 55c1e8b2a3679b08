import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.training.samplers import all_alike, half_labelled

both = pytest.mark.parametrize("draw", [half_labelled, all_alike])


@both
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


@both
def test_draws_depend_on_seed_and_epoch_only(draw):
    labels = np.array([0] * 10 + [-1] * 30)
    one = np.concatenate(draw(labels, 8, 0, 3))
    assert np.array_equal(one, np.concatenate(draw(labels, 8, 0, 3)))
    assert not np.array_equal(one, np.concatenate(draw(labels, 8, 0, 4)))
    assert not np.array_equal(one, np.concatenate(draw(labels, 8, 1, 3)))
