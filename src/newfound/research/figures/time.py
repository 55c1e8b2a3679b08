"""How long training and inference take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from newfound.research.figures.canvas import new_canvas, save
from newfound.research.figures.trained_model import FigureInputs, last_model
from newfound.research.markdown import table
from newfound.research.stored_json import read_metrics
from newfound.runs.folder import RunFolder
from newfound.settings.device import resolve_device
from newfound.sources.fresh_views import FreshViews

LABELLED_FOR_TIME = 500  # images
PAPER_HOURS = {  # of training
    "SimGCD": {"ImageNet-100": 44.6, "SSB": 3.6},
    "SimGCD + LSP": {"ImageNet-100": 84.1, "SSB": 6.7},
    "SimGCD + DAS": {"ImageNet-100": 76.8, "SSB": 6.1},
    "SimGCD + LSP + DAS (ours)": {"ImageNet-100": 131.0, "SSB": 9.2},
}


def draw_time(inputs: FigureInputs, runs: Mapping[str, RunFolder], path: Path) -> str:
    """Seconds of training, both trainings counted, and of labelling images; the paper's hours beside them."""
    training = {name: run.journal.training_seconds() for name, run in runs.items()}
    labelling = {name: _labelling_seconds(inputs, run) for name, run in runs.items()}
    accuracy = {name: 100 * read_metrics(run.path)["all"] for name, run in runs.items()}
    first = next(iter(training.values()))
    columns = ["", "All", "training, s", "ratio", "inference, s per 1,000 images"]
    columns += [f"paper, {data}: training" for data in PAPER_HOURS["SimGCD"]] + ["ratio"] * len(PAPER_HOURS["SimGCD"])
    rows = []
    for name in runs:
        hours, base = PAPER_HOURS[name].values(), PAPER_HOURS["SimGCD"].values()
        cells = [name, f"{accuracy[name]:.1f}", f"{training[name]:.0f}", f"{training[name] / first:.2f}"]
        cells += [f"{labelling[name]:.1f}", *(f"{h:g} h" for h in hours)]
        cells += [f"{h / b:.2f}" for h, b in zip(hours, base, strict=True)]
        rows.append(cells)
    _draw_ratios({name: seconds / first for name, seconds in training.items()}, path)
    note = "The median epoch counts, times the number of epochs; banks are built before."
    return f"{table(columns, rows)}\n{note}\n"


def _labelling_seconds(inputs: FigureInputs, run: RunFolder) -> float:
    """From files to classes, per 1,000 images."""
    model, _, opened = last_model(inputs, run)
    device = resolve_device(run.settings().device)
    predictor = model.to(device).eval().predictor()
    images, views = np.arange(len(inputs.table))[:LABELLED_FOR_TIME], FreshViews(inputs.table, opened.backbone)

    @torch.inference_mode()
    def label(batch: NDArray[np.int64]) -> None:
        predictor.probabilities(predictor.features(views.evaluation(batch).to(device)))

    label(images[:50])  # warm
    started = time.perf_counter()
    for batch in np.array_split(images, max(1, len(images) // 50)):
        label(batch)
    return 1000 * (time.perf_counter() - started) / len(images)


def _draw_ratios(ours: Mapping[str, float], path: Path) -> None:
    """Times as multiples of SimGCD's, which machines have in common."""
    base = PAPER_HOURS["SimGCD"]
    bars = {"here": list(ours.values())}
    bars |= {f"paper, {data}": [PAPER_HOURS[name][data] / base[data] for name in ours] for data in base}
    canvas = new_canvas(6.4, 3.6)
    axes = canvas.subplots()
    for i, (label, values) in enumerate(bars.items()):
        places = [k + 0.27 * (i - 1) for k in range(len(values))]
        colour, hatch = ("#000000", "#0072B2", "#D55E00")[i], ("", "//", "..")[i]
        axes.bar(places, values, 0.25, color=colour, alpha=0.75, hatch=hatch, label=label)
    axes.set_xticks(range(len(ours)), [name.replace(" + ", "\n+ ") for name in ours])
    axes.set_ylabel("training time, times SimGCD's")
    axes.grid(axis="y", alpha=0.3)
    canvas.legend(frameon=False, ncols=3, fontsize=8, loc="outside lower center")
    save(canvas, path)
