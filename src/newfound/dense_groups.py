"""The dense groups of HDBSCAN*: from one that holds everything down to the densest cores.

Campello, Moulavi, Sander: Density-based clustering based on hierarchical density estimates, PAKDD 2013 (Algorithm 1):
the minimum spanning tree of all places falls apart as its edges are removed, the longest first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import ClusterNode, DisjointSet, to_tree
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

SHORTEST = 1 / float(np.finfo(np.float32).max)  # equal places are so far apart: no density is infinite


@dataclass(frozen=True)
class DenseGroups:
    """The condensed tree: rows say which group or image splits off from which group, and at which density.

    Images are 0 to N-1; groups are numbered from N, the group of everything, and have higher numbers than what they
    split off from.
    """

    parent: NDArray[np.int64]
    child: NDArray[np.int64]
    density: NDArray[np.float64]  # 1 / distance
    size: NDArray[np.float64]  # images in the child


@dataclass(frozen=True)
class Edges:
    """Of a spanning tree of N places: N-1."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    length: NDArray[np.float32]


def dense_groups(places: NDArray[np.floating], min_cluster_size: int, min_samples: int) -> DenseGroups:
    """Of places N×d, more than ``min_samples``; a group has at least ``min_cluster_size`` images, which is 2 or more.

    >>> tree = dense_groups(np.array([[0.0], [1.0], [5.0], [7.0]]), min_cluster_size=2, min_samples=1)
    >>> for row in zip(tree.parent.tolist(), tree.child.tolist(), tree.density.tolist()):
    ...     print(*row)
    4 5 0.25
    4 6 0.25
    5 3 0.5
    5 2 0.5
    6 1 1.0
    6 0 1.0
    """
    return condensed(single_linkage(spanning_tree(places, min_samples)), min_cluster_size)


def spanning_tree(places: NDArray[np.floating], min_samples: int) -> Edges:
    """The minimum spanning tree of all places.

    The length of an edge is the distance, but no less than that of either place to its ``min_samples``-th neighbour
    (mutual reachability); in single precision, so that ties do not depend on the last bits of a sum. By Prim's
    algorithm: N rounds over the places that are left, and never a table of all pairs.

    >>> spanning_tree(np.array([[0.0], [1.0], [5.0], [7.0]]), min_samples=2).length.tolist()
    [5.0, 4.0, 6.0]
    """
    n, where = len(places), np.ascontiguousarray(places, dtype=np.float64)
    core = _squared_core_distances(where, min_samples)
    begin, end, squares = np.empty(n - 1, dtype=np.int64), np.empty(n - 1, dtype=np.int64), np.empty(n - 1)
    # What is not in the tree yet: number, place, core distance, nearest in the tree, and how near that is
    left: list[NDArray[Any]] = [np.arange(n), where.copy(), core.copy(), np.zeros(n, dtype=int), np.full(n, np.inf)]
    at = 0
    for i in range(n - 1):
        here = left[0][at]
        left = [_without(at, column) for column in left]
        number, place, reach, nearest, shortest = left
        length = cdist(where[here, None], place, "sqeuclidean")[0]
        np.maximum(length, reach, out=length)
        np.maximum(length, core[here], out=length)
        closer = length < shortest
        np.copyto(shortest, length, where=closer)
        np.copyto(nearest, here, where=closer)
        at = int(shortest.argmin())
        begin[i], end[i], squares[i] = nearest[at], number[at], shortest[at]
    return Edges(begin, end, np.sqrt(squares).astype(np.float32))


def _squared_core_distances(places: NDArray[np.float64], min_samples: int) -> NDArray[np.float64]:
    """To the ``min_samples``-th neighbour; 0 for the first, than which no other place is nearer anyway."""
    if min_samples == 1:
        return np.zeros(len(places))
    _, neighbour = KDTree(places).query(places, [min_samples + 1])  # the first is the place itself
    return np.asarray(np.square(places - places[neighbour[:, 0]]).sum(axis=1), dtype=np.float64)


def _without(at: int, column: NDArray[Any]) -> NDArray[Any]:
    """All but one, whose place the last takes."""
    column[at] = column[-1]
    return column[:-1]


def single_linkage(edges: Edges) -> NDArray[np.float64]:
    """The merges that a tree's edges make, the shortest first, as SciPy writes them: two nodes, distance, size.

    >>> single_linkage(Edges(np.array([0, 1]), np.array([1, 2]), np.array([5.0, 1.0]))).tolist()
    [[2.0, 1.0, 1.0, 2.0], [3.0, 0.0, 5.0, 3.0]]
    """
    order, n = np.argsort(edges.length, kind="stable"), len(edges.length) + 1
    begin, end, length = (column[order].tolist() for column in (edges.begin, edges.end, edges.length))
    sets, node, merges = DisjointSet(range(n)), list(range(n)), np.empty((n - 1, 4))
    for i in range(n - 1):
        two = sorted((node[sets[begin[i]]], node[sets[end[i]]]), reverse=True)
        sets.merge(begin[i], end[i])
        node[sets[begin[i]]] = n + i  # of a set, at its root
        merges[i] = *two, length[i], sets.subset_size(begin[i])
    return merges


def condensed(merges: NDArray[np.float64], min_cluster_size: int) -> DenseGroups:
    """Read from the top: a group splits where two parts or more are large enough, and loses the images of the others.

    >>> tree = condensed(np.array([[0.0, 1, 2, 2], [3, 2, 4, 3]]), min_cluster_size=2)
    >>> tree.parent.tolist(), tree.child.tolist(), tree.density.tolist()
    ([3, 3, 3], [2, 0, 1], [0.25, 0.5, 0.5])
    """
    n = len(merges) + 1
    rows: list[tuple[int, int, float, int]] = []
    queue, groups = deque([(to_tree(merges), n)]), n + 1
    while queue:
        node, group = queue.popleft()
        density, parts = 1 / max(float(node.dist), SHORTEST), _parts(node)
        large = [part for part in parts if part.count >= min_cluster_size]
        if len(large) == 1:
            queue.append((large[0], group))
        else:
            rows += [(group, groups + i, density, part.count) for i, part in enumerate(large)]
            queue.extend((part, groups + i) for i, part in enumerate(large))
            groups += len(large)
        small = [part for part in parts if part.count < min_cluster_size]
        rows += [(group, image, density, 1) for part in small for image in part.pre_order()]
    parent, child, densities, sizes = np.array(rows).T
    return DenseGroups(parent.astype(np.int64), child.astype(np.int64), densities, sizes)


def _parts(node: ClusterNode) -> list[ClusterNode]:
    """What a node falls apart into: two nodes, or more where edges are equally long, which are removed together."""
    parts: list[ClusterNode] = []
    tied = [node]
    while tied:
        top = tied.pop()
        for part in (top.left, top.right):
            (tied if part.count > 1 and part.dist == node.dist else parts).append(part)
    return parts
