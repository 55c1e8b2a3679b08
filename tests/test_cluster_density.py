import numpy as np
import pytest
import torch

from helping.densities import naive_density_order, near_duplicates
from newfound import cluster_density
from newfound.cluster_density import dense_core, densest_rows


@pytest.mark.parametrize("spread", [2.0**-40, 2.0**-30, 2.0**-20, 2.0**-3])
@pytest.mark.parametrize("k", [0.1, 0.5, 1.0])
def test_near_duplicates_are_distinguished(spread, k):
    rows = near_duplicates(spread)
    expected = naive_density_order(rows.tolist(), range(len(rows)), k)
    for count in (1, 7, len(rows)):
        assert set(densest_rows(torch.tensor(rows), k, count).tolist()) == set(expected[:count])


def test_the_core_is_a_share_of_the_cluster_as_the_share_is_written():
    members = torch.arange(200, dtype=torch.float64)[:, None]
    assert 0.575 * 100 < 57.5
    assert len(dense_core(members[:100], 0.575, 0.5)) == 58  # half to even
    assert len(dense_core(members, 0.29, 0.5)) == 58


@pytest.mark.parametrize("spread", [0.0, 1e-12, 1e-8, 1e-4, 1.0])
@pytest.mark.parametrize("width", [1, 16, 768])
def test_quick_distances_are_as_good_as_they_claim(spread, width):
    random = np.random.default_rng(width)
    members = torch.tensor(1.0 + spread * random.normal(size=(30, width)))
    for outlier in (0.0, 5.0):  # an outlier makes the cluster large and the quick distances worse
        members[-1] += outlier
        for rows in (members, members.float()):
            exact = cluster_density._exact_mean_distances(rows, np.arange(30), 10)
            radius = (rows - rows.mean(dim=0)).norm(dim=1).max().item()
            for precision, good in ((torch.float32, 0.05), (torch.float64, 2e-6)):
                quick, error = cluster_density._quick_mean_distances(rows, np.arange(30), 10, precision)
                assert (np.abs(quick - exact) <= error).all()
                assert error.max() <= good * radius
