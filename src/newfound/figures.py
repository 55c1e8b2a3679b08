"""The paper's figures: what runs they need, and how they are drawn from what those runs have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from newfound.atomic import write_atomically
from newfound.datasets.benchmark import Benchmark
from newfound.errors import UserError
from newfound.studies import OURS, SIMGCD, Row

try:
    from matplotlib.figure import Figure as Canvas
except ImportError:  # tables can do without
    Canvas = None  # type: ignore[assignment, misc]

MARKERS = "os^vDP*X<>"  # with the colours: more classes can be told apart than there are colours
# Okabe and Ito's colours: told apart by colour-blind eyes
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000")


@dataclass(frozen=True)
class Figure:
    title: str
    rows: tuple[Row, ...]
    draw: Callable[[Mapping[str, Path], Benchmark, Path], str]  # run folder by row, data, path without ending: Markdown


def new_canvas(width: float, height: float) -> Canvas:
    """A page to draw on."""
    if Canvas is None:
        raise UserError("figures need matplotlib: pip install 'newfound[study]'. Finished runs are kept.")
    return Canvas(figsize=(width, height), layout="constrained")


def save(canvas: Canvas, path: Path) -> None:
    """As PDF and as PNG."""
    for ending in (".pdf", ".png"):
        with write_atomically(path.with_suffix(ending), "wb") as file:
            canvas.savefig(file, format=ending[1:], dpi=160)


def draw_tsne(runs: Mapping[str, Path], benchmark: Benchmark, path: Path) -> str:
    """The features of each run in two dimensions, coloured by true class: new classes, then the whole set."""
    targets, n_known = benchmark.targets(), len(benchmark.known)
    unlabelled = benchmark.labels() < 0
    lines = ["| | silhouette of the new classes | of all classes |", "|---|---|---|"]
    scores = {name: [] for name in runs}  # type: dict[str, list[float]]
    for shown, ending in ((unlabelled & (targets >= n_known), ""), (unlabelled, "-all")):
        canvas = new_canvas(4.4 * len(runs), 4.4)
        panels = np.atleast_1d(canvas.subplots(1, len(runs)))
        for axes, (name, run) in zip(panels, runs.items(), strict=True):
            features = np.load(run / "embeddings.npy")[shown].astype(np.float32)
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
    lines += [f"| {name} | {new:.3f} | {whole:.3f} |" for name, (new, whole) in scores.items()]
    return "\n".join(lines) + "\n"


def tsne(features: NDArray[np.float32], seed: int = 0) -> NDArray[np.float32]:
    """Two dimensions that keep neighbours together, n×2; on one thread, which is quicker here and repeats exactly."""
    with threadpool_limits(1):
        perplexity = min(30.0, (len(features) - 1) / 3)
        found = TSNE(metric="cosine", init="random", perplexity=perplexity, random_state=seed).fit_transform(features)
    return np.asarray(found, dtype=np.float32)


FIGURES: dict[str, Figure] = {
    "tsne": Figure(
        "t-SNE of the features, coloured by true class",
        (Row("SimGCD", SIMGCD), Row("ours", OURS)),
        draw_tsne,
    ),
}
