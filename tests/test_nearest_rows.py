import numpy as np
import pytest

from newfound.nearest_rows import nearest, nearest_among, unit_rows


@pytest.mark.parametrize("cells", [1, 500, 1 << 20])
def test_neighbours_are_those_of_a_full_table(monkeypatch, cells):
    monkeypatch.setattr("newfound.nearest_rows.CELLS", cells)
    unit = unit_rows(np.random.default_rng(1).normal(size=(60, 5)))
    queries = np.array([3, 59, 0, 17])
    table = unit @ unit.T
    np.fill_diagonal(table, -np.inf)
    assert nearest(unit, queries, 7).tolist() == np.argsort(-table, axis=1, kind="stable")[queries, :7].tolist()


def test_neighbours_where_there_are_hardly_any():
    assert nearest(unit_rows(np.eye(2)), np.array([0, 1]), 5).tolist() == [[1], [0]]
    assert nearest(unit_rows(np.eye(1)), np.array([0]), 5).shape == (1, 0)


def test_nearest_among_others(monkeypatch):
    monkeypatch.setattr("newfound.nearest_rows.CELLS", 50)
    random = np.random.default_rng(2)
    points, others = random.normal(size=(20, 3)).astype(np.float32), random.normal(size=(30, 3)).astype(np.float32)
    index, distance = nearest_among(points, others, 4)
    full = np.linalg.norm(points[:, None] - others, axis=2)
    np.testing.assert_array_equal(index, np.argsort(full, axis=1)[:, :4])
    np.testing.assert_allclose(distance, np.sort(full, axis=1)[:, :4], rtol=1e-5)
