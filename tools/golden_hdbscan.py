"""Compute the golden numbers of HDBSCAN again, and compare them with those that are stored.

    pip install fast-hdbscan==0.3.4
    python tools/golden_hdbscan.py

``hdbscan_trees.npz`` has places, and what fast-hdbscan makes of them with the stored ``min_samples`` and
``min_cluster_size``: the condensed tree, and as ``labels`` the clusters of its usual choice ("eom"). ``hdbscan_bc.npz``
has condensed trees, labels of their images, and the clusters that two choices take from them: the semi-supervised one
("bc") as ``clusters``, the usual one as ``unlabelled``. Numba is turned off, as it cannot compile the former.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

os.environ["NUMBA_DISABLE_JIT"] = "1"  # before the import below
from fast_hdbscan import cluster_trees
from fast_hdbscan.hdbscan import fast_hdbscan

STORED = Path(__file__).parent.parent / "tests" / "golden" / "peers"


def main() -> None:
    with np.load(STORED / "hdbscan_trees.npz", allow_pickle=False) as file:
        for case in cases(file):
            settings = {name: int(file[f"{case}_{name}"]) for name in ("min_samples", "min_cluster_size")}
            compare(file, case, "trees", printed_tree(file[f"{case}_places"], settings))
    with np.load(STORED / "hdbscan_bc.npz", allow_pickle=False) as file:
        for case in cases(file):
            tree = [file[f"{case}_{name}"] for name in ("parent", "child", "density", "size")]
            compare(file, case, "bc", chosen(tree, file[f"{case}_labels"].astype(np.int64)))


def cases(file: np.lib.npyio.NpzFile) -> list[int]:
    return sorted({int(name.partition("_")[0]) for name in file.files})


def printed_tree(places: np.ndarray, settings: dict[str, int]) -> dict[str, np.ndarray]:
    found = fast_hdbscan(places, **settings, reproducible=True, return_trees=True)
    return {"labels": found[0], **dict(zip(("parent", "child", "density", "size"), found[3], strict=True))}


def chosen(tree: list[np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
    parent, child, density, size = tree
    condensed = cluster_trees.CondensedTree(parent.astype(np.int64), child.astype(np.int64), density, size)
    groups = cluster_trees.cluster_tree_from_condensed_tree(condensed)
    bc = cluster_trees.extract_clusters_bcubed(condensed, groups, labels, allow_virtual_nodes=True)
    eom = cluster_trees.extract_eom_clusters(condensed, groups)
    named = [cluster_trees.get_cluster_label_vector(condensed, c, 0.0, n_samples=len(labels)) for c in (bc, eom)]
    return dict(zip(("clusters", "unlabelled"), named, strict=True))


def compare(file: np.lib.npyio.NpzFile, case: int, what: str, found: dict[str, np.ndarray]) -> None:
    same = {name: np.allclose(file[f"{case}_{name}"], array, rtol=1e-6, equal_nan=True) for name, array in found.items()
            if file[f"{case}_{name}"].shape == array.shape}  # fmt: skip
    other = sorted(found.keys() - {name for name, equal in same.items() if equal})
    print(f"{what} {case}: {'as stored' if not other else 'other ' + ', '.join(other)}")


if __name__ == "__main__":
    main()
