"""Is it the features or the clustering? Each method's features, clustered in each way there is.

    python -m benchmarks.clusterings flowers --root FLOWERS --image-size 160 --out FOLDER

Methods that end with a clustering (GCD, CMS) are compared with classifiers by both at once; this separates the two.
Runs are those of `newfound bench`, kept in the folder and resumed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from newfound import Screen, Settings
from newfound.kmeans import kmeans
from newfound.mean_shift import cluster
from newfound.research.datasets.image_table import truth_of
from newfound.research.markdown import table
from newfound.research.run_bench import bench, prepare
from newfound.semi_kmeans import semi_kmeans

METHODS = {"kmeans": "frozen", "gcd": "GCD", "cms": "CMS", "simgcd": "SimGCD"}
Rows, Labels = NDArray[np.float32], NDArray[np.int64]
Clustering = Callable[[Rows, Labels, int], Labels]
CLUSTERINGS: dict[str, Clustering] = {
    "k-means": lambda rows, labels, k: kmeans(rows, k, 0).clusters,
    "semi-supervised k-means (GCD's)": lambda rows, labels, k: semi_kmeans(rows, labels, k, seed=0).labels,
    "mean shift and Ward (CMS's)": lambda rows, labels, k: cluster(torch.from_numpy(rows), labels, k).classes,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("dataset")
    arguments.add_argument("--root", type=Path, required=True)
    arguments.add_argument("--lists", type=Path)
    arguments.add_argument("--image-size", type=int, default=224)
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--out", type=Path, required=True)
    options = arguments.parse_args()
    screen, lines = Screen(), []
    for method in options.methods:
        settings = Settings(method=method, image_size=options.image_size)
        where = {"lists": options.lists, "out": options.out / method}
        report = bench(options.dataset, options.root, settings, seeds=(0,), screen=screen, **where)
        benchmark, images, settings = prepare(
            options.dataset, options.root, options.lists, settings, (0,), Screen(quiet=True)
        )
        assert settings.classes is not None
        rows = normalize(np.load(options.out / method / "seed-0" / "embeddings.npy").astype(np.float32))
        own = " / ".join(f"{report['numbers'][group]['mean']:.1f}" for group in ("all", "old", "new"))
        scores = []
        for clustering in CLUSTERINGS.values():
            found = truth_of(benchmark).accuracy(clustering(rows, images.seen_classes()[0], settings.classes))
            scores.append(" / ".join(f"{100 * (found[group] or 0):.1f}" for group in ("all", "old", "new")))
        lines.append([METHODS[method], own, *scores])
        print(table(["features of", "the method itself", *CLUSTERINGS], lines), flush=True)


if __name__ == "__main__":
    main()
