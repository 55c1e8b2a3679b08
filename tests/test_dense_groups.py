"""The tree of dense groups: against other programs, and against its definition."""

import tracemalloc
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist, squareform
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_blobs, make_circles, make_moons

from newfound.dense_groups import SHORTEST, DenseGroups, dense_groups, single_linkage, spanning_tree
from newfound.hdbscan import chosen_clusters

SMALL = {3, 4}  # cases of two and three places
EQUAL = {2, 9}  # cases with many equal places


def stored(golden, case):
    """Places, neighbours and size of a cluster, and what fast-hdbscan 0.3.4 made of them: tree, and clusters
    (tools/golden_hdbscan.py computes them again)."""
    with np.load(golden / "peers" / "hdbscan_trees.npz", allow_pickle=False) as file:
        parent, child = (file[f"{case}_{name}"].astype(np.int64) for name in ("parent", "child"))
        density = np.minimum(file[f"{case}_density"].astype(float), 1 / SHORTEST)  # there infinite, for equal places
        tree = DenseGroups(parent, child, density, file[f"{case}_size"].astype(float))
        settings = int(file[f"{case}_min_cluster_size"]), int(file[f"{case}_min_samples"])
        return file[f"{case}_places"], *settings, tree, file[f"{case}_labels"]


def as_sets(tree):
    """The density at which each image or group splits off from each group; groups by what is in them."""
    n, above = tree.parent.min(), dict(zip(tree.child.tolist(), tree.parent.tolist(), strict=True))
    members = defaultdict(set)
    for image in range(n):
        group = image
        while group != n:
            group = above[group]
            members[group].add(image)
    named = {group: frozenset(images) for group, images in members.items()}
    rows = zip(tree.parent.tolist(), tree.child.tolist(), tree.density.tolist(), strict=True)
    assert all(len(named.get(child, [0])) == size for child, size in zip(tree.child.tolist(), tree.size, strict=True))
    return {(named[parent], named.get(child, child)): density for parent, child, density in rows}


def clusters(places, min_cluster_size, min_samples):
    return chosen_clusters(dense_groups(places, min_cluster_size, min_samples), np.full(len(places), -1))


def same_clusters(found, wanted):
    """Whatever they are called; what is in none is in none."""
    pairs = set(zip(found.tolist(), wanted.tolist(), strict=True))
    named = len(pairs) == len(set(found.tolist())) == len(set(wanted.tolist()))
    return named and np.array_equal(found < 0, wanted < 0)


def reachability(places, min_samples):
    """Of all pairs, N×N."""
    distance = cdist(places, places)
    core = np.sort(distance, axis=1)[:, min_samples]
    reach = np.maximum(distance, np.maximum(core, core[:, None]))
    np.fill_diagonal(reach, 0)
    return reach


# Other programs


@pytest.mark.parametrize("case", range(11))
def test_the_tree_is_that_of_fast_hdbscan(golden, case):
    """Printed by fast-hdbscan 0.3.4, of places where no tie decides what a group is: it breaks ties in its own way."""
    places, min_cluster_size, min_samples, tree, labels = stored(golden, case)
    found, wanted = as_sets(dense_groups(places, min_cluster_size, min_samples)), as_sets(tree)
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose([found[row] for row in wanted], [*wanted.values()], rtol=1e-6)  # single precision
    assert same_clusters(clusters(places, min_cluster_size, min_samples), labels)


@pytest.mark.parametrize("case", sorted({*range(11)} - SMALL - EQUAL))
def test_without_labels_it_is_scikit_learns(golden, case):
    """Which counts an image among its neighbours."""
    places, min_cluster_size, min_samples, _, _ = stored(golden, case)
    other = HDBSCAN(min_cluster_size=min_cluster_size, min_samples=min_samples + 1, algorithm="kd_tree", copy=True)
    assert same_clusters(clusters(places, min_cluster_size, min_samples), other.fit_predict(places.astype(float)))


@pytest.mark.parametrize("min_cluster_size", [2, 5, 20])
@pytest.mark.parametrize(
    "places",
    [
        make_moons(300, noise=0.1, random_state=0)[0],
        make_circles(300, noise=0.08, factor=0.4, random_state=0)[0],
        make_blobs(300, 8, centers=6, cluster_std=3.0, random_state=0)[0],
        np.random.default_rng(0).uniform(size=(300, 3)),
    ],
)
def test_plain_distances_give_scikit_learns_clusters(places, min_cluster_size):
    """With one neighbour there are no ties."""
    other = HDBSCAN(min_cluster_size=min_cluster_size, min_samples=2, algorithm="kd_tree", copy=True)
    assert same_clusters(clusters(places, min_cluster_size, 1), other.fit_predict(places))


@pytest.mark.parametrize("min_samples", [1, 2, 7])
@pytest.mark.parametrize("directions", [1, 2, 9])
def test_the_spanning_tree_is_as_short_as_scipys(min_samples, directions):
    places = np.random.default_rng(0).normal(size=(200, directions))
    edges, table = spanning_tree(places, min_samples), reachability(places, min_samples)
    assert connected_components(csr_array((np.ones(199), (edges.begin, edges.end)), (200, 200)))[0] == 1
    np.testing.assert_allclose(edges.length, table[edges.begin, edges.end], rtol=1e-6)
    np.testing.assert_allclose(edges.length.sum(dtype=float), minimum_spanning_tree(table).sum(), rtol=1e-6)


@pytest.mark.parametrize("min_samples", [1, 4])
def test_merges_are_scipys(min_samples):
    places = np.random.default_rng(0).integers(12, size=(80, 2))  # some are equal
    merges = single_linkage(spanning_tree(places, min_samples))
    wanted = linkage(squareform(reachability(places, min_samples)), "single")
    np.testing.assert_allclose(merges[:, 2], wanted[:, 2], rtol=1e-6)
    assert merges[-1, 3] == 80


# The definition

GRIDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=25)  # full of ties


def groups_at(tree, density):
    """The images of each group that is left when all edges of this density or less are removed."""
    n, is_group = tree.parent.min(), tree.child >= tree.parent.min()
    above = dict(zip(tree.child.tolist(), tree.parent.tolist(), strict=True))
    born = {n: 0.0} | dict(zip(tree.child[is_group].tolist(), tree.density[is_group].tolist(), strict=True))
    found = defaultdict(list)
    for image, left in zip(tree.child[~is_group].tolist(), tree.density[~is_group].tolist(), strict=True):
        group = above[image]
        while born[group] > density:
            group = above[group]
        if left > density:
            found[group].append(image)
    return sorted(sorted(images) for images in found.values())


@given(grid=GRIDS, min_samples=st.integers(1, 4), min_cluster_size=st.integers(2, 6))
def test_at_each_density_groups_are_what_is_connected(grid, min_samples, min_cluster_size):
    places, n, min_samples = np.array(grid, dtype=float), len(grid), min(min_samples, len(grid) - 1)
    tree, table = dense_groups(places, min_cluster_size, min_samples), reachability(places, min_samples)
    for length in np.unique(table[np.triu_indices(n, 1)]):
        count, label = connected_components(csr_array(table < length))
        connected = [np.flatnonzero(label == part).tolist() for part in range(count)]
        wanted = sorted(part for part in connected if len(part) >= min(min_cluster_size, n))  # everything is a group
        assert groups_at(tree, 1 / max(float(np.float32(length)), SHORTEST)) == wanted


@given(seed=st.integers(0, 10_000), n=st.integers(5, 25), min_samples=st.integers(1, 4), size=st.integers(2, 4))
def test_the_order_of_the_images_does_not_matter(seed, n, min_samples, size):
    """Not even where distances are equal, as many are here: edges of the same length are removed together."""
    random = np.random.default_rng(seed)
    places, order = random.integers(7, size=(n, 2)).astype(float), random.permutation(n)
    tree = dense_groups(places[order], size, min_samples)
    image = np.where(tree.child < n, order[np.minimum(tree.child, n - 1)], tree.child)
    renamed = DenseGroups(tree.parent, image, tree.density, tree.size)
    assert as_sets(renamed) == as_sets(dense_groups(places, size, min_samples))


@given(seed=st.integers(0, 100), min_samples=st.integers(1, 4), shift=st.integers(-1000, 1000))
def test_moved_and_enlarged_places_have_the_same_groups(seed, min_samples, shift):
    places = np.random.default_rng(seed).integers(1000, size=(25, 2)).astype(float)  # exact, and so are their squares
    tree, other = dense_groups(places, 4, min_samples), dense_groups(8 * places + shift, 4, min_samples)
    wanted = {row: density / 8 if density < 1 / SHORTEST else density for row, density in as_sets(tree).items()}
    assert as_sets(other) == wanted


def test_an_image_as_far_from_two_groups_is_in_neither():
    places = np.array([[0.0], [1], [2], [12], [22], [23], [24]])
    assert clusters(places, 3, 1).tolist() == [1, 1, 1, -1, 0, 0, 0]


def test_two_places_are_one_group():
    tree = dense_groups(np.array([[0.0, 0], [3, 4]]), 2, 1)
    assert as_sets(tree) == {(frozenset({0, 1}), 0): 0.2, (frozenset({0, 1}), 1): 0.2}


@pytest.mark.parametrize("steps", [np.arange(1, 1500), np.arange(1500, 1, -1), np.ones(1499)])
def test_a_long_chain_loses_its_ends(steps):
    """Of 1,500 merges one within the other: neither recursion nor a list of images per merge."""
    tree = dense_groups(np.cumsum(np.append(0.0, steps))[:, None], 5, 1)
    assert set(tree.parent.tolist()) == {1500}
    assert sorted(tree.child.tolist()) == list(range(1500))


def test_no_table_of_all_pairs_is_made():
    places = np.random.default_rng(0).normal(size=(1500, 2))
    tracemalloc.start()
    spanning_tree(places, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1500**2  # bytes; a table of distances has eight times as many
