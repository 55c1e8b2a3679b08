"""Which settings to take."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from newfound.tuning.choice import chosen, differences

tables = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6), elements=st.integers(0, 100).map(float)
)


@given(tables)
def test_differences_are_by_pairs(accuracy):
    found, n = differences(accuracy), accuracy.shape[1]
    pairs = [[x - first for x, first in zip(row, accuracy[0], strict=True)] for row in accuracy]
    own = [statistics.stdev(row) / n**0.5 for row in pairs]
    usual = statistics.mean(error**2 for error in own[1:]) ** 0.5
    np.testing.assert_allclose(found.means, [statistics.mean(row) for row in pairs], atol=1e-9)
    np.testing.assert_allclose(found.errors, [0, *(max(error, usual) for error in own[1:])], atol=1e-9)


@given(tables, arrays(np.float64, 6, elements=st.integers(-50, 50).map(float)))
def test_splits_may_be_hard_for_all(accuracy, easier):
    before, after = differences(accuracy), differences(accuracy + easier[: accuracy.shape[1]])
    np.testing.assert_allclose(before.means, after.means, atol=1e-9)
    np.testing.assert_allclose(before.errors, after.errors, atol=1e-9)


def choice(*rows, seconds=None):
    accuracy = np.array(rows)
    return chosen(differences(accuracy), np.ones(len(rows)) if seconds is None else np.array(seconds))


def test_what_is_clearly_better_is_taken():
    assert choice([0.50, 0.60, 0.55], [0.60, 0.71, 0.64], [0.58, 0.66, 0.62]) == 1


def test_doubt_goes_to_the_default():
    assert choice([0.5, 0.6], [0.5, 0.6]) == 0
    assert choice([0.5, 0.6], [0.4, 0.5]) == 0
    assert choice([0.5, 0.6], [0.9, 0.5]) == 0  # better on average, by chance
    assert choice([0.5, 0.5, 0.5], [0.50, 0.55, 0.53]) == 0  # by 1.8 standard errors
    assert choice([0.5, 0.5, 0.5], [0.51, 0.55, 0.53]) == 1  # by 2.6
    assert choice([0.5, 0.6]) == 0


def test_two_splits_that_happen_to_agree_prove_nothing():
    """The others say how much differences vary."""
    assert choice([0.5, 0.6], [0.52, 0.62]) == 1
    assert choice([0.5, 0.6], [0.52, 0.62], [0.40, 0.60], [0.60, 0.60]) == 0


@pytest.mark.parametrize("quick", [1, 2])
def test_of_equal_ones_the_quickest(quick):
    seconds = [1.0, 9.0, 9.0]
    seconds[quick] = 2.0
    assert choice([0.5, 0.5], [0.75, 0.75], [0.75, 0.75], seconds=seconds) == quick
