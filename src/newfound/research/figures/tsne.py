"""Features in two dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from newfound.research.figures.canvas import COLOURS, MARKERS, new_canvas, save
from newfound.research.figures.trained_model import FigureInputs
from newfound.research.markdown import table
from newfound.runs.folder import RunFolder
from newfound.runs.results import read_results


def draw_tsne(inputs: FigureInputs, runs: Mapping[str, RunFolder], path: Path) -> str:
    """The features of each run in two dimensions, coloured by true class: new classes, then the whole set."""
    benchmark = inputs.benchmark
    targets, n_known = benchmark.targets(), len(benchmark.known)
    unlabelled = benchmark.labels() < 0
    embeddings = {name: read_results(run.path).embeddings for name, run in runs.items()}
    scores: dict[str, list[float]] = {name: [] for name in runs}
    for shown, ending in ((unlabelled & (targets >= n_known), ""), (unlabelled, "-all")):
        canvas = new_canvas(4.4 * len(runs), 4.4)
        panels = np.atleast_1d(canvas.subplots(1, len(runs)))
        for axes, (name, rows) in zip(panels, embeddings.items(), strict=True):
            features = rows[shown]
            scores[name].append(float(silhouette_score(features, targets[shown], metric="cosine")))
            places = tsne(features)
            for k in np.unique(targets[shown]):
                of_class = places[targets[shown] == k]
                style = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k // len(COLOURS) % len(MARKERS)]}
                axes.scatter(of_class[:, 0], of_class[:, 1], s=7, linewidths=0, **style)
            axes.set_title(name, fontsize=10)
            axes.set_xticks([])
            axes.set_yticks([])
        save(canvas, path.with_name(path.name + ending))
    header = ["", "silhouette of the new classes", "of all classes"]
    return table(header, [[name, *(f"{value:.3f}" for value in values)] for name, values in scores.items()])


def tsne(features: NDArray[np.float32], seed: int = 0) -> NDArray[np.float32]:
    """Two dimensions that keep neighbours together, n×2; on one thread, which is quicker here and repeats exactly."""
    with threadpool_limits(1):
        perplexity = min(30.0, (len(features) - 1) / 3)
        found = TSNE(metric="cosine", init="random", perplexity=perplexity, random_state=seed).fit_transform(features)
    return np.asarray(found, dtype=np.float32)
