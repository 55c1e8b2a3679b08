import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.evaluate import (
    class_accuracies,
    cluster_accuracy,
    cluster_accuracy_v1,
    cluster_accuracy_v2b,
    mutual_information,
    rand_index,
)

N_CASES = 34


@pytest.mark.parametrize("i", range(N_CASES))
def test_matches_the_released_metrics(golden, i):
    data = np.load(golden / "evaluation.npz", allow_pickle=False)
    true, predicted, known = data[f"y_{i:02d}"].astype(int), data[f"pred_{i:02d}"].astype(int), data[f"old_{i:02d}"]
    v1, v2, v2b = (f(true, predicted, known) for f in (cluster_accuracy_v1, cluster_accuracy, cluster_accuracy_v2b))
    assert v2.all == pytest.approx(data["v2"][i, 0], abs=1e-12)
    np.testing.assert_allclose([v1.all, v1.old, v1.new], data["v1"][i], atol=1e-12)
    # Where several matchings are optimal, the released value is one of a range.
    for ours, (low, high), column in zip(
        [v2.old, v2.new, v2b.all, v2b.old, v2b.new], data["ranges"][i], range(5), strict=True
    ):
        assert low - 1e-12 <= ours <= high + 1e-12
        if data["unique"][i, column]:
            official = [*data["v2"][i, 1:], *data["v2b"][i]][column]
            assert ours == pytest.approx(official, abs=1e-12)


def test_a_group_without_samples_is_nan_instead_of_an_exception(golden):
    assert json.loads((golden / "evaluation_degenerate.json").read_text())  # what the released functions do instead
    for measure in (cluster_accuracy, cluster_accuracy_v1, cluster_accuracy_v2b):
        only_known = measure([0, 0, 1], [1, 1, 0], [True] * 3)
        assert (only_known.all, only_known.old) == (1.0, 1.0)
        assert math.isnan(only_known.new)
        only_new = measure([0, 0, 1], [1, 1, 0], [False] * 3)
        assert (only_new.all, only_new.new) == (1.0, 1.0)
        assert math.isnan(only_new.old)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=20))
def test_all_equals_the_best_of_every_matching(pairs):
    true, predicted = np.array(pairs).T
    best = max(np.mean(np.array(p)[predicted] == true) for p in itertools.permutations(range(5)))
    assert cluster_accuracy(true, predicted, true < 2).all == pytest.approx(best)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000))
def test_names_of_clusters_do_not_matter(seed):
    random = np.random.default_rng(seed)
    true, predicted = random.integers(0, 5, 60), random.integers(0, 5, 60)
    renamed = random.permutation(9)[predicted]
    assert cluster_accuracy(true, predicted, true < 3).all == cluster_accuracy(true, renamed, true < 3).all
    assert mutual_information(true, predicted) == pytest.approx(mutual_information(true, renamed))
    assert rand_index(true, predicted) == pytest.approx(rand_index(true, renamed))


MEASURES = (cluster_accuracy, cluster_accuracy_v1, cluster_accuracy_v2b)


@pytest.mark.parametrize("far", [20_000, 1_000_000, 2**62])
def test_ids_may_be_any_numbers(far):
    """Counts between two classes are a table of two by two, however the classes are numbered."""
    true, predicted = [0, 0, 0, far, far], [far, far, 3, 3, 3]
    known = [True, True, True, False, False]
    for measure in MEASURES:
        assert measure(true, predicted, known) == measure([0, 0, 0, 1, 1], [1, 1, 0, 0, 0], known)
    assert class_accuracies(true, predicted) == {0: pytest.approx(2 / 3), far: 1.0}


labelled_pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(pairs=labelled_pairs, gaps=st.lists(st.integers(1, 10**6), min_size=6, max_size=6))
def test_gaps_between_ids_do_not_matter(pairs, gaps):
    """All three protocols, old and new, even where several matchings are optimal: only the order of the ids remains."""
    true, predicted = np.array(pairs).T
    ids, known = np.cumsum(gaps), true < 2
    for measure in MEASURES:
        plain, spread = measure(true, predicted, known), measure(ids[true], ids[predicted], known)
        np.testing.assert_array_equal(
            [plain.all, plain.old, plain.new], [spread.all, spread.old, spread.new], err_msg=measure.__name__
        )
    spread_classes = class_accuracies(ids[true], ids[predicted])
    assert spread_classes == {int(ids[k]): share for k, share in class_accuracies(true, predicted).items()}


@settings(max_examples=40, deadline=None)
@given(pairs=labelled_pairs, order=st.permutations(range(6)))
def test_other_ids_give_another_optimal_matching_at_most(pairs, order):
    """Old and New are those of one of the best matchings, which are all that the metric leaves open."""
    true, predicted = np.array(pairs).T
    known = true < 2
    every = [np.array(p)[predicted] == true for p in itertools.permutations(range(6))]
    best = max(correct.sum() for correct in every)
    allowed = {(correct[known].sum(), correct[~known].sum()) for correct in every if correct.sum() == best}
    for ids in (predicted, np.array(order)[predicted]):
        found = cluster_accuracy(true, ids, known)
        counts = np.nan_to_num([found.old * known.sum(), found.new * (~known).sum()]).round().astype(int)
        assert tuple(counts) in allowed


def test_extra_clusters_stay_unmatched():
    result = cluster_accuracy([0, 0, 0, 1], [0, 1, 2, 3], [True, True, True, False])
    assert result.all == 0.5


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="boolean"):
        cluster_accuracy([0, 1], [0, 1], [0, 1])
    with pytest.raises(ValueError, match="one length"):
        cluster_accuracy([0, 1], [0, 1, 1], [True, True])
    with pytest.raises(ValueError, match="non-negative"):
        cluster_accuracy([0, -1], [0, 1], [True, True])
