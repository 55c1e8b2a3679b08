"""Which of the dense groups are clusters."""

import numpy as np
import pytest

from newfound.dense_groups import DenseGroups, dense_groups
from newfound.hdbscan import NO_CLUSTER, chosen_clusters, density_clusters, principal_directions

UNLABELLED = np.full(1000, -1)


def blobs(sizes, centres, seed=0, spread=1.0):
    """Places in the plane around each centre, and whose they are."""
    whose = np.repeat(np.arange(len(sizes)), sizes)
    places = np.array(centres, dtype=np.float32)[whose]
    return (places + spread * np.random.default_rng(seed).normal(size=places.shape)).astype(np.float32), whose


def grouped_alike(found, wanted):
    """The same groups, whatever they are called."""
    pairs = set(zip(found.tolist(), wanted.tolist(), strict=True))
    return len(pairs) == len(set(found.tolist())) == len(set(wanted.tolist()))


@pytest.mark.parametrize("case", range(6))
def test_the_choice_is_that_of_the_released_code(golden, case):
    """Trees and clusters of fast-hdbscan 0.3.4, run without numba: as "bc" with labels, as "eom" without
    (tools/golden_hdbscan.py)."""
    stored = np.load(golden / "peers" / "hdbscan_bc.npz", allow_pickle=False)
    parts = (stored[f"{case}_{name}"] for name in ("parent", "child", "density", "size"))
    parent, child, density, size = parts
    tree = DenseGroups(parent.astype(np.int64), child.astype(np.int64), density.astype(float), size.astype(float))
    labels = stored[f"{case}_labels"].astype(np.int64)
    assert chosen_clusters(tree, labels).tolist() == stored[f"{case}_clusters"].tolist()
    assert chosen_clusters(tree, np.full_like(labels, -1)).tolist() == stored[f"{case}_unlabelled"].tolist()


def test_what_is_far_from_everything_is_in_no_cluster():
    places, whose = blobs([40, 40, 1, 1], [(0, 0), (30, 0), (0, 300), (300, 300)])
    found = chosen_clusters(dense_groups(places, 10, 3), UNLABELLED[: len(places)])
    assert found[-2:].tolist() == [NO_CLUSTER, NO_CLUSTER]
    assert grouped_alike(found[:80][found[:80] >= 0], whose[:80][found[:80] >= 0])
    assert (found[:80] >= 0).mean() > 0.9


def test_labels_join_what_density_alone_would_part():
    """Two pairs of groups; of the first pair both halves have the same label, of the second each has its own."""
    places, whose = blobs([40] * 4, [(0, 0), (9, 0), (100, 0), (109, 0)])
    apart = chosen_clusters(dense_groups(places, 10, 3), UNLABELLED[: len(places)])
    assert apart.max() + 1 == 4
    meant = np.array([0, 0, 1, 2])[whose]
    labels = np.where(np.arange(len(places)) % 4 == 0, meant, -1)
    joined = chosen_clusters(dense_groups(places, 10, 3), labels)
    assert grouped_alike(joined[joined >= 0], meant[joined >= 0])


@pytest.mark.parametrize("directions", [0, 5])
def test_groups_in_many_dimensions_are_found(directions):
    random = np.random.default_rng(0)
    whose = np.repeat(np.arange(5), 40)
    rows = (random.normal(size=(5, 64)) * 8)[whose] + random.normal(size=(200, 64))
    found = density_clusters(rows, UNLABELLED[:200], 10, directions=directions)
    assert (found >= 0).mean() > 0.9
    assert grouped_alike(found[found >= 0], whose[found >= 0])


@pytest.mark.parametrize("rows", [np.ones((40, 3)), np.zeros((40, 3)), np.eye(2), np.ones((1, 4))])
def test_where_nothing_differs_nothing_is_dense(rows):
    assert set(density_clusters(rows, UNLABELLED[: len(rows)], 5).tolist()) == {NO_CLUSTER}


def test_many_equal_images_are_one_cluster_each():
    rows = np.repeat(np.eye(3, 8), 20, axis=0)
    found = density_clusters(rows, UNLABELLED[:60], 5, directions=3)
    assert grouped_alike(found, np.repeat(np.arange(3), 20))


@pytest.mark.parametrize("seed", range(5))
def test_copies_are_in_one_place_in_any_basis(seed):
    """Three distinct images differ along two directions; what rounding adds along a third one is no difference."""
    random = np.random.default_rng(seed)
    turned = np.linalg.qr(random.normal(size=(8, 8)))[0]
    order = random.permutation(60)
    rows = np.repeat(np.eye(3, 8) @ turned, 20, axis=0)[order]
    assert len(np.unique(principal_directions(rows, 3), axis=0)) == 3
    found = density_clusters(rows, UNLABELLED[:60], 5, directions=3)
    assert grouped_alike(found, np.repeat(np.arange(3), 20)[order])


def test_principal_directions_are_those_of_most_variance():
    rows = np.random.default_rng(0).normal(size=(50, 6))
    few = principal_directions(rows, 2)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(np.cov(unit.T, bias=True))[::-1]
    np.testing.assert_allclose(few.var(axis=0), values[:2], rtol=1e-4)
    assert principal_directions(rows, 30).shape == (50, 6)
