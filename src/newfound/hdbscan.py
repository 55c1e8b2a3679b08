"""HDBSCAN*(BC): clusters are dense groups, as many as there are; labels choose between a group and its parts.

Castro Gertrudes, Zimek, Sander, Campello: A unified view of density-based methods for semi-supervised clustering and
classification, Data Mining and Knowledge Discovery 33, 2019 (section 4.3): each of the dense groups
(`newfound.dense_groups`) is taken whole or in parts, whichever agrees better with the labels (BCubed F-measure), and
where labels do not decide, whichever is more stable. What lies in none of them is in no cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from newfound.dense_groups import DenseGroups, dense_groups
from newfound.evaluate import claimed_clusters
from newfound.text import counted

NO_CLUSTER = -1
ROUNDING = 1e-7  # of single precision: the spread, of features of length 1, that is none
FEWEST = 5  # images of a cluster, unless somebody asks for fewer
FEWEST_LABELLED = 2  # images that give one more cluster the name of their class; a single label may be a mistake


def usual_cluster_size(labelled_per_class: float) -> int:
    """The smallest cluster: half as many images as a known class has labelled ones, on average; at least 5.

    >>> usual_cluster_size(100.0), usual_cluster_size(0.0)
    (50, 5)
    """
    return max(FEWEST, int(labelled_per_class / 2))


def density_clusters(
    features: NDArray[np.floating],
    labels: NDArray[np.int64],
    min_cluster_size: int,
    min_samples: int = 1,
    directions: int = 0,
) -> NDArray[np.int64]:
    """The cluster of each image, from 0, or `NO_CLUSTER`; of features N×d and labels, -1 for unlabelled.

    In many dimensions everything is about equally far from everything, and no place is dense. So the images are
    clustered on their t-SNE map (`newfound.flat_map`), or in so many principal ``directions``, if any.
    """
    from newfound.flat_map import flat_map  # which loads scikit-learn

    places = principal_directions(features, directions) if directions else flat_map(features)
    if len(places) <= min_samples:
        return np.full(len(places), NO_CLUSTER, dtype=np.int64)
    return chosen_clusters(dense_groups(places, min_cluster_size, min_samples), labels)


def principal_directions(features: NDArray[np.floating], count: int) -> NDArray[np.float32]:
    """The L2-normalised features along those directions in which they differ most: N×count.

    Equal images get equal places, and directions in which images differ by rounding alone are 0: to a measure of
    density, copies that lie 1e-17 apart would be the densest groups of all.
    """
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    count = min(count, *features.shape)
    distinct, copies = np.unique(features.astype(np.float64), axis=0, return_inverse=True)
    unit = normalize(distinct)
    with threadpool_limits(1):  # the same sums on every number of cores
        fitted = PCA(count, svd_solver="full").fit(unit[copies])
        places = fitted.transform(unit)
    places[:, fitted.singular_values_ < ROUNDING * len(features) ** 0.5] = 0.0
    return np.ascontiguousarray(places[copies], dtype=np.float32)


def chosen_clusters(tree: DenseGroups, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut the tree so that clusters agree with the labels, and are stable where labels do not decide.

    >>> # Four images split into two pairs
    >>> parent, child = np.array([4, 4, 5, 5, 6, 6]), np.array([5, 6, 0, 1, 2, 3])
    >>> tree = DenseGroups(parent, child, np.array([1.0, 1, 2, 2, 2, 2]), np.array([2.0, 2, 1, 1, 1, 1]))
    >>> chosen_clusters(tree, np.array([0, -1, 1, -1])).tolist()
    [0, 0, 1, 1]
    """
    n = len(labels)
    groups = max(tree.parent.max(), tree.child.max()) + 1 - n if len(tree.parent) else 1
    is_group = tree.child >= n
    above = np.full(groups, -1)
    above[tree.child[is_group] - n] = tree.parent[is_group] - n
    agreement, of_parts = _agreement(tree, labels, above)
    stability = _stability(tree, n, groups)
    stability_of_parts, whole = np.zeros(groups), np.zeros(groups, dtype=bool)
    for g in range(groups - 1, 0, -1):  # parts before what they are parts of; the group of everything is no cluster
        better, as_good = agreement[g] > of_parts[g], agreement[g] == of_parts[g]
        whole[g] = better or (as_good and stability[g] >= stability_of_parts[g])
        of_parts[above[g]] += agreement[g] if whole[g] else of_parts[g]
        stability_of_parts[above[g]] += stability[g] if whole[g] else stability_of_parts[g]
    return _members(tree, above, whole, n)


def _agreement(
    tree: DenseGroups, labels: NDArray[np.int64], above: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """BCubed F-measure of each group as a cluster; and that of the labelled images that fall out of it one by one while
    it splits, each as a cluster of its own. Other parts of a group are still to be added to the latter."""
    n, groups = len(labels), len(above)
    sizes = np.bincount(labels[labels >= 0])  # of the classes, K
    single = (tree.child < n) & (labels[np.minimum(tree.child, n - 1)] >= 0)
    group, label = tree.parent[single] - n, labels[tree.child[single]]
    counts = np.zeros((groups, len(sizes)))
    np.add.at(counts, (group, label), 1.0)
    for g in range(groups - 1, 0, -1):
        counts[above[g]] += counts[g]
    labelled = max(int(sizes.sum()), 1)
    totals = counts.sum(axis=1, keepdims=True)
    agreement = (2 * counts**2 / np.maximum(totals + sizes, 1)).sum(axis=1) / labelled
    of_parts, splits = np.zeros(groups), np.isin(group, above)
    np.add.at(of_parts, group[splits], 2 / (1 + sizes[label[splits]]) / labelled)
    return agreement, of_parts


def _stability(tree: DenseGroups, n: int, groups: int) -> NDArray[np.float64]:
    """For each group the densities that its images stay in it for, added up (excess of mass)."""
    born = np.zeros(groups)
    is_group = tree.child >= n
    born[tree.child[is_group] - n] = tree.density[is_group]
    group = tree.parent - n
    lasting = (tree.density - born[group]) * tree.size
    return np.asarray(np.bincount(group, weights=lasting, minlength=groups), dtype=np.float64)


def _members(tree: DenseGroups, above: NDArray[np.int64], whole: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    """The largest group of each image that is taken whole, numbered from 0."""
    cluster = np.full(len(above), NO_CLUSTER)
    for g in range(1, len(above)):
        cluster[g] = g if cluster[above[g]] == NO_CLUSTER and whole[g] else cluster[above[g]]
    found, image = np.full(n, NO_CLUSTER), tree.child < n
    found[tree.child[image]] = cluster[tree.parent[image] - n]
    numbers = np.unique(found[found >= 0])
    return np.where(found >= 0, np.searchsorted(numbers, found), NO_CLUSTER).astype(np.int64)


def named_clusters(clusters: NDArray[np.int64], labels: NDArray[np.int64], n_known: int) -> NDArray[np.int64]:
    """The class of each image: a known one for the cluster that most of its labelled images are in, and for
    every other one whose labelled images, at least `FEWEST_LABELLED`, are all of that class; the others from
    ``n_known`` on, `NO_CLUSTER` for none.

    >>> named_clusters(np.array([0, 0, 1, 1, 2, -1]), np.array([-1, -1, 0, -1, -1, 0]), n_known=1).tolist()
    [1, 1, 0, 0, 2, -1]
    >>> named_clusters(np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 0, 0, 0, 0]), n_known=1).tolist()
    [0, 0, 0, 0, 0, 1]
    """
    placed = clusters >= 0
    if not placed.any():
        return clusters
    claimed, _ = claimed_clusters(clusters[placed], labels[placed], n_known)
    class_of = _agreed_classes(clusters, labels)
    class_of |= {cluster: k for k, cluster in claimed.items() if ((clusters == cluster) & (labels == k)).any()}
    others = [cluster for cluster in range(int(clusters.max()) + 1) if cluster not in class_of]
    class_of |= {cluster: n_known + i for i, cluster in enumerate(others)}
    number = np.array([class_of[cluster] for cluster in range(len(class_of))], dtype=np.int64)
    return np.where(placed, number[clusters], NO_CLUSTER)


def _agreed_classes(clusters: NDArray[np.int64], labels: NDArray[np.int64]) -> dict[int, int]:
    """The class of each cluster whose labelled images, enough of them, agree on it."""
    own = {cluster: labels[(clusters == cluster) & (labels >= 0)] for cluster in range(int(clusters.max()) + 1)}
    return {c: int(of[0]) for c, of in own.items() if len(of) >= FEWEST_LABELLED and (of == of[0]).all()}


@dataclass(frozen=True)
class DenseCount:
    """How many classes there seem to be, and the share of images in none of them."""

    classes: int
    known: int
    none: float

    def __str__(self) -> str:
        return (
            f"{counted(self.classes, 'class')} by density, {self.known:,} of them known; "
            f"{100 * self.none:.0f} % of the images are in none of them"
        )


def count_dense(features: NDArray[np.float32], labels: NDArray[np.int64]) -> DenseCount:
    """The known classes and every other dense group, with the usual settings; labels are -1 for unlabelled."""
    labelled, known = int((labels >= 0).sum()), int(labels.max(initial=-1)) + 1
    clusters = density_clusters(features, labels, usual_cluster_size(labelled / max(known, 1)))
    classes = named_clusters(clusters, labels, known)
    return DenseCount(max(int(classes.max()) + 1, known), known, float((classes < 0).mean()))
