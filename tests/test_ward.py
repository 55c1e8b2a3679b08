import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from newfound import ward
from newfound.ward import ward_cut


def test_four_points_on_a_line():
    points = np.array([[0.0], [1.0], [10.0], [12.0]])
    assert ward_cut(points, 2).tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(linkage(points, "ward")[:, 2], [1, 2, 14.849242], atol=1e-6)  # heights, as documented


def naive_cut(points, n_clusters):
    """Merge, again and again, the two clusters whose union raises the squared error least."""
    clusters = [[i] for i in range(len(points))]
    while len(clusters) > n_clusters:
        heights = {}
        for a in range(len(clusters)):
            for b in range(a):
                first, second = points[clusters[a]], points[clusters[b]]
                share = len(first) * len(second) / (len(first) + len(second))
                heights[a, b] = share * np.square(first.mean(axis=0) - second.mean(axis=0)).sum()
        a, b = min(heights, key=heights.get)
        clusters[b] += clusters.pop(a)
    return sorted(sorted(members) for members in clusters)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 14), n_clusters=st.integers(1, 14))
def test_equals_a_naive_loop(seed, n, n_clusters):
    points = np.random.default_rng(seed).normal(size=(n, 3))
    found = ward_cut(points, n_clusters)
    assert [np.flatnonzero(found == c).tolist() for c in range(found.max() + 1)] == naive_cut(points, n_clusters)


@given(n=st.integers(1, 12), n_clusters=st.integers(1, 15), different=st.integers(1, 3))
def test_exactly_so_many_clusters_even_among_copies(n, n_clusters, different):
    """Every merge of copies has height 0, and a cut at a height would make far fewer clusters."""
    points = np.eye(3)[np.arange(n) % different]
    found = ward_cut(points, n_clusters)
    assert len(set(found.tolist())) == min(n, n_clusters)
    lowest = [int(np.flatnonzero(found == c)[0]) for c in range(found.max() + 1)]
    assert lowest == sorted(lowest)


@pytest.mark.parametrize("apart", [0.0, 1e-12, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("block", [1, 64, 10_000])
def test_distances_are_those_of_subtracted_rows(monkeypatch, apart, block):
    """Also between copies, and between rows that differ in their last digits."""
    monkeypatch.setattr(ward, "BLOCK", block)
    random = np.random.default_rng(0)
    rows = np.repeat(random.normal(size=(8, 50)), 3, axis=0) + 10
    rows += apart * random.normal(size=rows.shape)
    np.testing.assert_allclose(ward._distances(rows), pdist(rows), rtol=1e-10)
    if not apart:
        assert (ward._distances(rows) == 0).sum() == 3 * 8  # copies are at distance 0 exactly


def test_what_does_not_fit_says_so(monkeypatch):
    monkeypatch.setattr(ward, "MOST_ROWS", 3)
    assert ward_cut(np.eye(3), 2).max() == 1
    with pytest.raises(ValueError, match=r"4 rows would need .* GB of memory; it is made for at most 3 rows"):
        ward_cut(np.eye(4), 2)
