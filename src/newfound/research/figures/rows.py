"""The rows of a study side by side: bars, or a line where the rows are values of one setting."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from newfound.research.figures.canvas import new_canvas, save
from newfound.research.seed_statistics import deviation

COLOURS = {"all": "#000000", "old": "#0072B2", "new": "#D55E00"}  # distinct to colour-blind eyes, and in print
LINES = {"all": "o-", "old": "s--", "new": "^:"}
HATCHES = {"all": "", "old": "//", "new": ".."}


MOST_UPRIGHT = 8  # bars with names below them; those of more rows lie, with names beside them


def draw_rows(title: str, axis: str, rows: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """All, Old and New of each row, as PDF and PNG; ``rows`` has for each row and group an accuracy per seed.

    ``axis`` is what the rows are values of, empty if they are not; whiskers are sample standard deviations.
    """
    several = any(len(values) > 1 for groups in rows.values() for values in groups.values())
    label = "accuracy, %" + (" (± sample std)" if several else "")
    lying = not axis and len(rows) > MOST_UPRIGHT
    figure = new_canvas(6.4, 1.2 + 0.34 * len(rows) if lying else 3.6)
    axes = figure.subplots()
    for offset, group in enumerate(COLOURS):
        values = [groups[group] for groups in rows.values()]
        means = [statistics.mean(v) if v else float("nan") for v in values]
        whiskers = [deviation(v) or 0.0 for v in values] if several else None
        style: dict[str, Any] = {"color": COLOURS[group], "label": group.title()}
        places = [i + 0.27 * (offset - 1) for i in range(len(rows))]
        if axis:
            axes.errorbar(range(len(rows)), means, yerr=whiskers, fmt=LINES[group], capsize=3, **style)
        elif lying:
            axes.barh(places, means, 0.25, xerr=whiskers, alpha=0.75, hatch=HATCHES[group], **style)
        else:
            axes.bar(places, means, 0.25, yerr=whiskers, alpha=0.75, hatch=HATCHES[group], **style)
    if lying:
        axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
        axes.set_ylim(len(rows) - 0.4, -0.6)  # the first row on top
        axes.set_xlabel(label)
    else:
        axes.set_xticks(range(len(rows)), [_wrapped(name, 60 // len(rows)) for name in rows])
        axes.set_xlabel(axis)
        axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x" if lying else "y", alpha=0.3)
    figure.legend(frameon=False, ncols=3, fontsize=8, loc="outside lower center")
    save(figure, path)


def _wrapped(name: str, width: int) -> str:
    """In lines that fit below a bar.

    >>> _wrapped("ours, estimated number", 12).splitlines()
    ['ours,', 'estimated', 'number']
    """
    lines = name.replace(" + ", "\n+ ").replace(" (", "\n(").replace(", ", ",\n").splitlines()
    return "\n".join(textwrap.fill(line, width, break_long_words=False) for line in lines)
