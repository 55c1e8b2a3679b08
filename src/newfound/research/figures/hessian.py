"""How flat the loss is where a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.hessian import Spectrum, hessian_spectrum, smoothed_density
from newfound.methods.simgcd import SimGCD
from newfound.research.figures.canvas import new_canvas, save
from newfound.research.figures.trained_model import FigureInputs, last_model
from newfound.research.markdown import table
from newfound.research.stored_json import read_spectrum
from newfound.runs.folder import RunFolder
from newfound.training.learner import Batch
from newfound.training.samplers import half_labelled
from newfound.training.start import ROW_LENGTH
from newfound.training.task import Task

# 8 batches of 128 pairs and 92 products: some minutes per model on two cores, about 1.1 GB
HESSIAN_BATCHES, HESSIAN = 8, {"steps": 30, "samples": 2, "trace_samples": 32}
HESSIAN_MOMENT = 9_000_000  # of the random draws: none that training has used
PAPER_HESSIAN = {"SimGCD + DAS": (0.27, 301.79), "SimGCD + DAS + LSP (ours)": (0.16, 177.39)}  # largest, trace


def draw_hessian(inputs: FigureInputs, runs: Mapping[str, RunFolder], path: Path) -> str:
    """The density of the Hessian's eigenvalues where each run ended; each spectrum is kept in its run folder."""
    spectra = {name: _spectrum(inputs, name, run) for name, run in runs.items()}
    header = ["", "largest eigenvalue", "smallest", "trace ± standard error", "paper: largest", "trace"]
    rows = [
        [name, f"{s.largest:.3g}", f"{s.smallest:.3g}", f"{s.trace:.4g} ± {s.trace_error:.2g}",
         *map(str, PAPER_HESSIAN[name])]
        for name, s in spectra.items()
    ]  # fmt: skip
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
    return table(header, rows)


def _spectrum(inputs: FigureInputs, name: str, run: RunFolder) -> Spectrum:
    if (stored := read_spectrum(run.path / "hessian.json")) is not None:
        return stored
    model, batches = _where_it_ended(inputs, run)

    def loss(batch: Batch) -> Tensor:
        return model.losses(batch).parts["total"]

    with inputs.screen.track(f"Hessian, {name}", 1) as progress:
        found = hessian_spectrum(
            [partial(loss, batch) for batch in batches],
            list(model.parameters()),
            **HESSIAN,
            on_progress=lambda done, total: progress.update(done, total=total),
        )
    run.write_json("hessian.json", found.to_dict())
    return found


def _where_it_ended(inputs: FigureInputs, run: RunFolder) -> tuple[SimGCD, list[Batch]]:
    """The trained model and a few batches, the same for every run: given labels only, as anchors differ.

    Only directions of the classifier's rows matter, but their lengths scale the curvature: all are brought to one.
    """
    model, task, _ = last_model(inputs, run)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.nn.functional.normalize(model.classifier.weight, dim=1) * ROW_LENGTH)
    t = task.training
    drawn = half_labelled(task.labels, t.batch_size, task.seed, HESSIAN_MOMENT)[:HESSIAN_BATCHES]
    return model, [_batch(task, images, HESSIAN_MOMENT + i) for i, images in enumerate(drawn)]


def _batch(task: Task, images: NDArray[np.int64], moment: int) -> Batch:
    """On the CPU, as in the last epoch."""
    tokens = task.source.tokens_of(task.source.read_pair(images, task.seed, moment), torch.device("cpu"))
    labels, last = torch.from_numpy(task.labels[images]), task.training.epochs - 1
    return Batch(tokens, torch.from_numpy(images), labels, last, step=0, steps=1, seed=task.seed, stage=1)
