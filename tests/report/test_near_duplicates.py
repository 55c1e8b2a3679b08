import numpy as np
import pytest

from newfound.report import near_duplicates
from newfound.report.near_duplicates import duplicate_groups, similar_pairs


@pytest.mark.parametrize("cells", [1, 3000, 1 << 22])
@pytest.mark.parametrize("dim", [8, 100, 200])
def test_pairs_are_those_of_a_full_table(monkeypatch, cells, dim):
    monkeypatch.setattr(near_duplicates, "CELLS", cells)
    random = np.random.default_rng(3)
    rows = random.normal(size=(120, dim))
    rows[60:90] = rows[:30] + random.normal(0, 1, (30, dim)) * random.uniform(0.05, 0.25, (30, 1))  # around 0.99
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    first, second = np.nonzero(np.triu(unit @ unit.T >= 0.99, 1))
    pairs = similar_pairs(rows, 0.99)
    assert 5 < len(first) < 30
    assert sorted(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == list(
        zip(first, second, strict=True)
    )


def test_planted_copies_come_as_groups_the_most_alike_first():
    random = np.random.default_rng(4)
    rows = random.normal(size=(50, 30))
    rows[[10, 20, 30]] = rows[5]
    rows[41] = rows[7] + 0.08 * random.normal(size=30)
    groups = duplicate_groups(similar_pairs(rows, 0.98))
    assert [group.images for group in groups] == [(5, 10, 20, 30), (7, 41)]
    assert groups[0].similarity == pytest.approx(1)
    assert 0.98 <= groups[1].similarity < 1


def test_pairs_found_in_two_ways_make_one_group():
    a = similar_pairs(np.array([[1, 0], [1, 0], [0, 1.0]]), 0.9)
    b = similar_pairs(np.array([[1, 0], [1, 0.0]]), 0.9).of(np.array([1, 7]))
    assert [group.images for group in duplicate_groups(a, b)] == [(0, 1, 7)]
    assert duplicate_groups(similar_pairs(np.eye(3), 0.9)) == []


def test_a_thousand_copies_of_one_image_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(near_duplicates, "MOST_PAIRS", 5000)
    pairs = similar_pairs(np.ones((1000, 4)), 0.98)
    assert len(pairs.first) <= 10_000


def test_rows_that_are_no_direction_are_like_nothing():
    rows = np.array([[0, 0], [0, 0], [np.nan, 1], [np.inf, 1], [1, 0.0]])
    assert len(similar_pairs(rows, 0.9).first) == 0
