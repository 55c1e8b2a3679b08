import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from newfound import neighbours
from newfound.neighbours import nearest_neighbours


def naive(rows, queries, k, exclude=None):
    """Python's sort, which is stable: of equal products the lower index stays first."""
    products = (queries.double() @ rows.double().T).tolist()
    found = []
    for q, row in enumerate(products):
        others = [i for i in range(len(row)) if exclude is None or i != exclude[q]]
        found.append(sorted(others, key=lambda i: -row[i])[:k])
    return found


# Small whole numbers: every product is exact, so ties are ties on every machine.
@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), asked=st.integers(1, 12), k=st.integers(1, 50))
def test_equals_a_stable_sort_of_everything(seed, n, asked, k):
    random = torch.Generator().manual_seed(seed)
    rows = torch.randint(-1, 2, (n, 3), generator=random).float()
    queries = torch.randint(-1, 2, (asked, 3), generator=random).float()
    exclude = torch.randint(0, n, (asked,), generator=random)
    for left_out in (None, exclude):
        similarity, index = nearest_neighbours(rows, queries, k, exclude=left_out)
        assert index.tolist() == naive(rows, queries, k, left_out)
        assert torch.equal(similarity, (queries @ rows.T).gather(1, index))


@pytest.mark.parametrize("block", [1, 50, 101, 10**6])
def test_blocks_change_nothing(monkeypatch, block):
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(-2, 3, (50, 4), generator=random).float()
    expected = naive(rows, rows, 7, range(50))
    monkeypatch.setattr(neighbours, "BLOCK", block)
    assert nearest_neighbours(rows, rows, 7, exclude=torch.arange(50))[1].tolist() == expected


def test_no_table_of_all_pairs_is_built(monkeypatch):
    """The widest product that is asked for stays within the block."""
    rows, sizes = F.normalize(torch.randn(300, 5), dim=1), []
    largest = neighbours._largest

    def watched(table, k):
        sizes.append(table.numel())
        return largest(table, k)

    monkeypatch.setattr(neighbours, "BLOCK", 1000)
    monkeypatch.setattr(neighbours, "_largest", watched)
    nearest_neighbours(rows, rows, 3)
    assert sum(sizes) == 300 * 300
    assert max(sizes) <= 1000


def test_a_row_finds_itself_first_and_not_when_excluded():
    rows = F.normalize(torch.randn(30, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64), dim=1)
    similarity, index = nearest_neighbours(rows, rows, 4)
    assert index[:, 0].tolist() == list(range(30))
    np.testing.assert_allclose(similarity[:, 0], 1.0, atol=1e-12)  # rounding of lengths
    assert nearest_neighbours(rows, rows, 3, exclude=torch.arange(30))[1].tolist() == index[:, 1:].tolist()


def test_equal_rows_come_in_their_order():
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    query = torch.tensor([[1.0, 0.0]])
    assert nearest_neighbours(rows, query, 2)[1].tolist() == [[1, 2]]
    assert nearest_neighbours(rows, query, 4)[1].tolist() == [[1, 2, 3, 0]]
    assert nearest_neighbours(rows, query, 2, exclude=torch.tensor([1]))[1].tolist() == [[2, 3]]


def test_as_wide_as_there_are_rows():
    rows = torch.eye(3)
    assert nearest_neighbours(rows, rows, 9)[1].shape == (3, 3)
    assert nearest_neighbours(rows, rows, 9, exclude=torch.arange(3))[1].shape == (3, 2)
    similarity, index = nearest_neighbours(rows[:1], rows[:1], 9, exclude=torch.tensor([0]))
    assert similarity.shape == index.shape == (1, 0)
    assert nearest_neighbours(rows[:0], rows, 9)[1].shape == (3, 0)
    assert nearest_neighbours(rows, rows[:0], 2)[1].shape == (0, 2)


def test_no_gradient_flows():
    rows = torch.eye(3, requires_grad=True)
    assert not nearest_neighbours(rows, rows, 2)[0].requires_grad


def test_no_neighbours_asked_for_is_an_error():
    with pytest.raises(ValueError, match="k must be 1 or more; found 0"):
        nearest_neighbours(torch.eye(2), torch.eye(2), 0)
