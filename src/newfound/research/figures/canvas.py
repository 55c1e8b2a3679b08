"""A page to draw on, colours that everybody can tell apart, and two files in the end."""

from __future__ import annotations

from pathlib import Path

from newfound.atomic import write_atomically
from newfound.errors import UserError

try:
    from matplotlib.figure import Figure as Canvas
except ImportError:  # tables can do without
    Canvas = None  # type: ignore[assignment, misc]

MARKERS = "os^vDP*X<>"  # with the colours: more classes can be told apart than there are colours
# Okabe and Ito's colours: told apart by colour-blind eyes
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000")


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
