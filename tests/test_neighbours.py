import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from newfound import neighbours
from newfound.neighbours import nearest_by_distance, nearest_neighbours, row_lengths


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


@pytest.mark.parametrize("nearest", [nearest_neighbours, nearest_by_distance])
def test_no_neighbours_asked_for_is_an_error(nearest):
    with pytest.raises(ValueError, match="k must be 1 or more; found 0"):
        nearest(torch.eye(2), torch.eye(2), 0)


# By distance


def naive_by_distance(rows, queries, k, exclude=None):
    """Python's stable sort of math.dist, which adds squares exactly."""
    found = []
    for q, query in enumerate(queries.double().tolist()):
        away = {i: math.dist(query, row) for i, row in enumerate(rows.double().tolist())}
        others = [i for i in away if exclude is None or i != exclude[q]]
        found.append([(away[i], i) for i in sorted(others, key=away.__getitem__)[:k]])
    return found


# Small whole numbers again: squares of distances are exact in single precision, and rows of all lengths tie.
@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), asked=st.integers(1, 12), k=st.integers(1, 50))
def test_distances_equal_a_stable_sort_of_everything(seed, n, asked, k):
    random = torch.Generator().manual_seed(seed)
    rows = torch.randint(-2, 3, (n, 3), generator=random).float()
    queries = torch.randint(-2, 3, (asked, 3), generator=random).float()
    exclude = torch.randint(0, n, (asked,), generator=random)
    for left_out in (None, exclude):
        expected = naive_by_distance(rows, queries, k, left_out)
        distance, index = nearest_by_distance(rows, queries, k, exclude=left_out)
        assert index.tolist() == [[i for _, i in line] for line in expected]
        np.testing.assert_allclose(distance, [[d for d, _ in line] for line in expected], atol=1e-12)


@pytest.mark.parametrize("block", [1, 50, 101, 10**6])
def test_blocks_change_no_distance(monkeypatch, block):
    rows = F.normalize(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    expected = nearest_by_distance(rows, rows, 7, exclude=torch.arange(50))
    monkeypatch.setattr(neighbours, "BLOCK", block)
    monkeypatch.setattr(neighbours, "PAIRS", block)
    found = nearest_by_distance(rows, rows, 7, exclude=torch.arange(50))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_copies_and_near_copies_are_distinguished():
    """In single precision their dot products are all the same: a distance of 1e-5 is 5e-11 away from a product of 1."""
    query = F.normalize(torch.randn(1, 200, generator=torch.Generator().manual_seed(3)), dim=1)
    rows = query.repeat(12, 1)
    for i in range(9):  # the nearest but for the copies comes last of these
        rows[i, i] += 1e-5 * (9 - i)
    distance, index = nearest_by_distance(rows, query, 6)
    assert index.tolist() == [[9, 10, 11, 8, 7, 6]]
    assert distance[0, :3].tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(distance[0, 3:], [1e-5, 2e-5, 3e-5], rtol=0.02)  # single precision of the rows


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_far_from_the_origin_distances_are_exact(precision):
    """There dot products have no digits left."""
    random = torch.Generator().manual_seed(4)
    rows = (1000 + torch.randn(300, 8, generator=random)).to(precision)
    distance, index = nearest_by_distance(rows, rows[:20], 5, exclude=torch.arange(20))
    expected = naive_by_distance(rows, rows[:20], 5, range(20))
    assert index.tolist() == [[i for _, i in line] for line in expected]
    np.testing.assert_allclose(distance, [[d for d, _ in line] for line in expected], rtol=1e-12)


def test_by_distance_it_is_as_wide_as_there_are_rows():
    rows = torch.eye(3)
    assert nearest_by_distance(rows, rows, 9)[1].shape == (3, 3)
    assert nearest_by_distance(rows, rows, 9, exclude=torch.arange(3))[1].shape == (3, 2)
    assert nearest_by_distance(rows[:1], rows[:1], 9, exclude=torch.tensor([0]))[0].shape == (1, 0)
    assert nearest_by_distance(rows, rows[:0], 2)[1].shape == (0, 2)


@given(seed=st.integers(0, 1000), width=st.integers(1, 40))
def test_equal_rows_are_of_equal_length_wherever_they_are(seed, width):
    vectors = torch.randn(9, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    vectors[7] = vectors[2]
    lengths = row_lengths(vectors)
    np.testing.assert_allclose(lengths, vectors.norm(dim=1), rtol=1e-14)
    assert lengths[7] == lengths[2] == row_lengths(vectors[2:3])[0]
