import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.training.samplers import half_labelled


@settings(max_examples=50, deadline=None)
@given(labelled=st.integers(0, 40), unlabelled=st.integers(0, 60), batch=st.integers(1, 50), epoch=st.integers(0, 5))
def test_batches_are_full_and_as_many_as_fit(labelled, unlabelled, batch, epoch):
    labels = np.array([0] * labelled + [-1] * unlabelled)
    if not len(labels):
        return
    batches = half_labelled(labels, batch, seed=0, moment=epoch)
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


def test_draws_depend_on_seed_and_epoch_only():
    labels = np.array([0] * 10 + [-1] * 30)
    one = np.concatenate(half_labelled(labels, 8, 0, 3))
    assert np.array_equal(one, np.concatenate(half_labelled(labels, 8, 0, 3)))
    assert not np.array_equal(one, np.concatenate(half_labelled(labels, 8, 0, 4)))
    assert not np.array_equal(one, np.concatenate(half_labelled(labels, 8, 1, 3)))
