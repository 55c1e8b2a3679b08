"""The paper's figures: what runs they need, and how they are drawn from what those runs have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from newfound.research.figures.hessian import draw_hessian
from newfound.research.figures.time import draw_time
from newfound.research.figures.trained_model import FigureInputs
from newfound.research.figures.tsne import draw_tsne
from newfound.research.studies import DAS, LSP, OURS, SIMGCD, Row
from newfound.runs.folder import RunFolder


@dataclass(frozen=True)
class Figure:
    title: str
    rows: tuple[Row, ...]
    draw: Callable[[FigureInputs, Mapping[str, RunFolder], Path], str]  # runs by row, a path without ending: Markdown


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
    "time": Figure(
        "Time efficiency analysis",
        (
            Row("SimGCD", SIMGCD),
            Row("SimGCD + LSP", LSP),
            Row("SimGCD + DAS", DAS),
            Row("SimGCD + LSP + DAS (ours)", OURS),
        ),
        draw_time,
    ),
}
