import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from newfound.sinkhorn import sinkhorn


def random_logits(seed, images=7, classes=5):
    return torch.rand(images, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize("case", range(5))
def test_assignments_match_the_released_implementation(golden, case):
    data = np.load(golden / "peers" / "uno_sinkhorn_00.npz", allow_pickle=False)
    logits, epsilon = torch.tensor(data[f"logits_{case}"]), float(data["epsilon"])
    for iterations, name in ((int(data["iterations"]), "assignment"), (1, "assignment_after_1")):
        ours = sinkhorn(logits, epsilon, iterations)
        np.testing.assert_allclose(ours, data[f"{name}_{case}"], atol=1e-10, rtol=0)


def test_worked_examples():
    assert torch.equal(sinkhorn(torch.zeros(2, 2)), torch.full((2, 2), 0.5))
    logits = 0.05 * torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=torch.float64).log()
    expected = torch.tensor([[0.6, 0.4], [1 / 3, 2 / 3]], dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(logits, 0.05, 1), expected)


@given(seed=st.integers(0, 1000), images=st.integers(1, 9), classes=st.integers(1, 9))
def test_rows_sum_to_one(seed, images, classes):
    shares = sinkhorn(random_logits(seed, images, classes))
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(images, dtype=torch.float64))
    assert (shares >= 0).all()


def test_with_many_iterations_classes_are_used_equally_often():
    shares = sinkhorn(random_logits(0, 12, 4), epsilon=0.5, iterations=200)
    torch.testing.assert_close(shares.sum(dim=0), torch.full((4,), 3.0, dtype=torch.float64))


def test_equal_rows_and_a_single_row_are_spread_evenly():
    one = random_logits(1, 1, 5)
    torch.testing.assert_close(sinkhorn(one), torch.full((1, 5), 0.2, dtype=torch.float64))
    torch.testing.assert_close(sinkhorn(one.repeat(6, 1)), torch.full((6, 5), 0.2, dtype=torch.float64))


@given(seed=st.integers(0, 1000), column=st.integers(0, 4), constant=st.floats(-2, 2))
def test_a_constant_added_to_a_class_changes_nothing(seed, column, constant):
    logits = random_logits(seed)
    moved = logits.clone()
    moved[:, column] += constant
    torch.testing.assert_close(sinkhorn(moved), sinkhorn(logits))


@given(seed=st.integers(0, 1000))
def test_it_does_not_depend_on_the_order_of_images_or_classes(seed):
    logits, random = random_logits(seed), np.random.default_rng(seed)
    images, classes = random.permutation(7), random.permutation(5)
    torch.testing.assert_close(sinkhorn(logits[images][:, classes]), sinkhorn(logits)[images][:, classes])


def test_nothing_overflows_and_no_rows_give_no_rows():
    far = torch.tensor([[1e4, -1e4], [1e4, -1e4], [-1e4, 1e4]])  # exp of it would be infinite
    assert sinkhorn(far).isfinite().all()
    assert sinkhorn(torch.zeros(0, 3)).shape == (0, 3)


def test_no_gradient_flows_through_it():
    assert not sinkhorn(random_logits(0).requires_grad_()).requires_grad
