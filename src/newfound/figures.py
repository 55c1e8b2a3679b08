"""The paper's figures: what runs they need, and how they are drawn from what those runs have written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits
from torch import Tensor

from newfound.atomic import write_atomically
from newfound.backbones import load_backbone
from newfound.datasets.benchmark import Benchmark
from newfound.discovery import new_model, open_source
from newfound.errors import UserError
from newfound.hessian import Spectrum, hessian_spectrum, smoothed_density
from newfound.images import ImageTable
from newfound.methods.simgcd import SimGCD
from newfound.run_folder import RunFolder
from newfound.screen import Screen
from newfound.start import ROW_LENGTH
from newfound.studies import DAS, OURS, SIMGCD, Row
from newfound.train import draw_batches

try:
    from matplotlib.figure import Figure as Canvas
except ImportError:  # tables can do without
    Canvas = None  # type: ignore[assignment, misc]

# 8 batches of 128 pairs and 92 products: some minutes per model on two cores, about 1.1 GB
HESSIAN_BATCHES, HESSIAN = 8, {"steps": 30, "samples": 2, "trace_samples": 32}
HESSIAN_MOMENT = 9_000_000  # of the random draws: none that training has used

MARKERS = "os^vDP*X<>"  # with the colours: more classes can be told apart than there are colours
# Okabe and Ito's colours: told apart by colour-blind eyes
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000")


@dataclass(frozen=True)
class Figure:
    title: str
    rows: tuple[Row, ...]
    draw: Callable[[Ground, Mapping[str, RunFolder], Path], str]  # runs by row, a path without ending: Markdown


@dataclass(frozen=True)
class Ground:
    """What the runs of a figure have in common."""

    benchmark: Benchmark
    table: ImageTable
    screen: Screen


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


def draw_tsne(ground: Ground, runs: Mapping[str, RunFolder], path: Path) -> str:
    """The features of each run in two dimensions, coloured by true class: new classes, then the whole set."""
    benchmark = ground.benchmark
    targets, n_known = benchmark.targets(), len(benchmark.known)
    unlabelled = benchmark.labels() < 0
    lines = ["| | silhouette of the new classes | of all classes |", "|---|---|---|"]
    scores = {name: [] for name in runs}  # type: dict[str, list[float]]
    for shown, ending in ((unlabelled & (targets >= n_known), ""), (unlabelled, "-all")):
        canvas = new_canvas(4.4 * len(runs), 4.4)
        panels = np.atleast_1d(canvas.subplots(1, len(runs)))
        for axes, (name, run) in zip(panels, runs.items(), strict=True):
            features = np.load(run.path / "embeddings.npy")[shown].astype(np.float32)
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


def draw_hessian(ground: Ground, runs: Mapping[str, RunFolder], path: Path) -> str:
    """The density of the Hessian's eigenvalues where each run ended; each spectrum is kept in its run folder."""
    spectra = {name: _spectrum(ground, name, run) for name, run in runs.items()}
    lines = ["| | largest eigenvalue | smallest | trace |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {s.largest:.3g} | {s.smallest:.3g} | {s.trace:.4g} ± {s.trace_error:.2g} |"
        for name, s in spectra.items()
    ]
    low, high = min(s.smallest for s in spectra.values()), max(s.largest for s in spectra.values())
    grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 1000)
    canvas = new_canvas(6.4, 3.6)
    axes = canvas.subplots()
    for (name, s), colour, style in zip(spectra.items(), ("#0072B2", "#D55E00"), ("-", "--"), strict=True):
        density = smoothed_density(s.nodes, s.weights, grid, width=0.01 * (high - low))
        label = f"{name}: largest {s.largest:.2f}, trace {s.trace:.0f}"
        axes.semilogy(grid, np.maximum(density, 1e-9), style, color=colour, label=label)
    axes.set_xlabel("eigenvalue of the Hessian")
    axes.set_ylabel("density")
    axes.set_ylim(bottom=1e-8)
    canvas.legend(frameon=False, fontsize=8, loc="outside lower center")
    save(canvas, path)
    return "\n".join(lines) + "\n"


def _spectrum(ground: Ground, name: str, run: RunFolder) -> Spectrum:
    stored = run.path / "hessian.json"
    if stored.exists():
        return Spectrum.from_dict(json.loads(stored.read_text("utf-8")))
    model, batches = _where_it_ended(ground, run)
    last = (model.settings.epochs or 1) - 1

    def loss(tokens: Tensor, labels: Tensor) -> Tensor:
        return model.losses(tokens, labels, last)["total"]

    with ground.screen.track(f"Hessian, {name}", 1) as progress:
        found = hessian_spectrum(
            [partial(loss, *batch) for batch in batches],
            list(model.parameters()),
            **HESSIAN,
            on_progress=lambda done, total: progress.update(done, total=total),
        )
    run.write_json("hessian.json", found.to_dict())
    return found


def _where_it_ended(ground: Ground, run: RunFolder) -> tuple[SimGCD, list[tuple[Tensor, Tensor]]]:
    """The trained model and a few batches, the same for every run: given labels only, as anchors differ.

    Only directions of the classifier's rows matter, but their lengths scale the curvature: all are brought to one.
    """
    settings = run.settings()
    backbone = load_backbone(
        settings.backbone,
        image_size=settings.image_size,
        weights=settings.weights,
        grad_from_block=settings.grad_from_block,
    )
    source = open_source(ground.table, backbone, settings, ground.screen)
    model = new_model(backbone, source, settings)
    run.load_model(model)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.nn.functional.normalize(model.classifier.weight, dim=1) * ROW_LENGTH)
    labels = ground.table.seen_classes()[0]
    drawn = draw_batches(labels, settings.batch_size, settings.seed, HESSIAN_MOMENT)[:HESSIAN_BATCHES]
    pairs = [source.training_pair(images, settings.seed, HESSIAN_MOMENT + i) for i, images in enumerate(drawn)]
    return model, [(pair, torch.from_numpy(labels[images])) for pair, images in zip(pairs, drawn, strict=True)]


FIGURES: dict[str, Figure] = {
    "tsne": Figure(
        "t-SNE of the features, coloured by true class",
        (Row("SimGCD", SIMGCD), Row("ours", OURS)),
        draw_tsne,
    ),
    "hessian": Figure(
        "Eigenvalues of the training loss's Hessian",
        (Row("SimGCD + DAS", DAS), Row("SimGCD + DAS + LSP (ours)", OURS)),
        draw_hessian,
    ),
}
