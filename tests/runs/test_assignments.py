import tracemalloc

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from newfound.fitting import Found
from newfound.runs import assignments as module
from newfound.runs.assignments import assign, new_names, two_best
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Prediction, Predictor


def make():
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.05, 0.9, 0.05], [0.5, 0.5, 0.0]])
    directions = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 5.0]])
    is_anchor = np.array([False, False, True, False])
    predictor = Predictor(torch.nn.Identity(), CosineClassifier.holding({"weight": directions}), 0.1)
    return assign(Found(predictor, Prediction(torch.zeros(4, 2), probabilities), is_anchor, 0, task=None), ("cat",))


def test_class_confidence_and_runner_up():
    a = make()
    assert a.class_names == ("cat", "new-1", "new-2")
    assert a.classes.tolist() == [0, 1, 1, 0]  # a tie goes to the first class
    np.testing.assert_allclose(a.confidence, [0.7, 0.6, 0.9, 0.5])
    assert a.runner_up.tolist() == [1, 2, 0, 1]
    np.testing.assert_allclose(a.runner_up_confidence, [0.2, 0.3, 0.05, 0.5])
    assert a.is_anchor.tolist() == [False, False, True, False]


@given(
    scores=hnp.arrays(
        np.float32, st.tuples(st.integers(0, 7), st.integers(2, 5)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])
    )
)
def test_two_best_are_the_first_two_of_a_stable_sort(scores):
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")
    best, second = two_best(scores)
    assert best.tolist() == order[:, 0].tolist()
    assert second.tolist() == order[:, 1].tolist()


def test_two_best_in_blocks(monkeypatch):
    scores = np.random.default_rng(0).integers(0, 4, (50, 6)).astype(float)
    whole = two_best(scores)
    monkeypatch.setattr(module, "ROWS", 7)
    np.testing.assert_array_equal(two_best(scores), whole)


def test_assigning_needs_little_memory_beside_the_probabilities():
    n, k = 10_000, 400
    probabilities = torch.rand(n, k, generator=torch.Generator().manual_seed(0))
    found = Found(None, Prediction(torch.zeros(n, 2), probabilities), np.zeros(n, dtype=bool), 0, task=None)
    tracemalloc.start()
    assert len(assign(found, ("cat",)).runner_up) == n
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * k * 8 / 8  # of a copy in double precision


def test_table_of_classes():
    a = make()
    assert a.sizes().tolist() == [2, 2, 0]
    np.testing.assert_allclose(a.mean_confidence(), [0.6, 0.75, 0.0])
    assert a.most_certain(1, 3) == [2, 1]


def test_new_names_never_collide():
    assert new_names((), 2) == ("new-1", "new-2")
    assert new_names(("new-7",), 1) == ("discovered-1",)
    names = new_names(("new-1", "discovered-2"), 2)
    assert not set(names) & {"new-1", "discovered-2"}
