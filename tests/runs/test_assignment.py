import numpy as np
import torch

from newfound.runs.assignment import assign, classes_in_use, new_names
from newfound.training.loop import Prediction


def make():
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.05, 0.9, 0.05], [0.5, 0.5, 0.0]])
    directions = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 5.0]])
    is_anchor = np.array([False, False, True, False])
    return assign(Prediction(torch.zeros(4, 2), probabilities), directions, is_anchor, ("cat",))


def test_class_confidence_and_runner_up():
    a = make()
    assert a.class_names == ("cat", "new-1", "new-2")
    assert a.classes.tolist() == [0, 1, 1, 0]  # a tie goes to the first class
    np.testing.assert_allclose(a.confidence, [0.7, 0.6, 0.9, 0.5])
    assert a.runner_up.tolist() == [1, 2, 0, 1]
    np.testing.assert_allclose(a.runner_up_confidence, [0.2, 0.3, 0.05, 0.5])
    assert a.is_anchor.tolist() == [False, False, True, False]


def test_empty_classes_can_be_left_out():
    probabilities = torch.tensor([[0.2, 0.1, 0.7, 0.0], [0.1, 0.1, 0.8, 0.0]])
    said = Prediction(torch.zeros(2, 3), probabilities)
    assert classes_in_use(said, 1).tolist() == [0, 2]  # the known one, the used one
    assert classes_in_use(said, 2).tolist() == [0, 1, 2]
    assert classes_in_use(said, 0).tolist() == [0, 2]  # a second one, so that there is a runner-up
    kept = torch.tensor([0, 2])
    torch.testing.assert_close(said.of(kept).probabilities, torch.tensor([[2 / 9, 7 / 9], [1 / 9, 8 / 9]]))
    assert said.of(torch.arange(4)) is said  # to the last bit


def test_table_of_classes():
    a = make()
    assert a.sizes().tolist() == [2, 2, 0]
    np.testing.assert_allclose(a.mean_confidence(), [0.6, 0.75, 0.0])
    assert a.nearest_class.tolist() == [1, 0, 1]  # by angle: lengths do not count
    assert a.most_certain(1, 3) == [2, 1]


def test_new_names_never_collide():
    assert new_names((), 2) == ("new-1", "new-2")
    assert new_names(("new-7",), 1) == ("discovered-1",)
    names = new_names(("new-1", "discovered-2"), 2)
    assert not set(names) & {"new-1", "discovered-2"}
