"""A study as a table: our numbers row by row with the paper's beside them, and one line per run for other programs."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from newfound.research.markdown import table
from newfound.research.seed_statistics import deviation, mean_text, over_seeds
from newfound.research.studies import Row, Study

GROUPS = ("all", "old", "new")


@dataclass(frozen=True)
class Result:
    """One row of a study with one seed."""

    row: str
    seed: int
    metrics: dict[str, Any]
    clean: int | None  # of the last epoch's anchors
    overall: int | None
    seconds: float  # of training, a shared first one included
    gigabytes: float | None = None  # that the process held at most; not in a shared first training

    @property
    def purity(self) -> float | None:
        return None if not self.overall or self.clean is None else 100 * self.clean / self.overall


def accuracies(results: Sequence[Result], row: str, group: str) -> list[float]:
    """Of a row, one per seed, in per cent; none where the group has no image."""
    found = [result.metrics[group] for result in results if result.row == row]
    return [100 * value for value in found if value is not None]


def study_markdown(chosen: Study, dataset: str, results: Sequence[Result]) -> str:
    """The paper's table with ours beside it."""
    seeds = sorted({result.seed for result in results})
    header = [chosen.axis or "method", "All", "Old", "New"]
    header += ["anchors clean"] if chosen.anchors else []
    header += ["training, s", "memory, GB", "paper: All", "Old", "New"] + (["paper: clean"] if chosen.anchors else [])
    rows = [_cells(row, results, dataset, with_anchors=chosen.anchors) for row in chosen.rows]
    return (
        f"## {chosen.title}: {dataset}\n\n"
        f"Unlabelled training images, last epoch, {over_seeds(seeds)}.\n\n{table(header, rows)}"
    )


def _cells(row: Row, results: Sequence[Result], dataset: str, *, with_anchors: bool) -> list[str]:
    of_row = [result for result in results if result.row == row.name]
    cells = [row.name, *(_spread(accuracies(results, row.name, group)) for group in GROUPS)]
    if with_anchors:
        purities = [r.purity for r in of_row if r.purity is not None]
        count = statistics.mean(r.overall or 0 for r in of_row)
        cells.append(f"{_spread(purities)} % of {count:.0f}" if purities else "-")
    cells.append(f"{statistics.median(r.seconds for r in of_row):.0f}")
    memory = [r.gigabytes for r in of_row if r.gigabytes is not None]
    cells.append(f"{max(memory):.1f}" if memory else "-")
    cells += [f"{value:.1f}" for value in row.paper.get(dataset, ())] or ["-"] * 3
    if with_anchors:
        clean, overall = row.paper_anchors.get(dataset, (0, 0))
        cells.append(f"{100 * clean / overall:.0f} % of {overall}" if overall else "-")
    return cells


def _spread(values: Sequence[float]) -> str:
    return mean_text(statistics.mean(values), deviation(values)) if values else "-"


def as_csv(results: Sequence[Result]) -> str:
    """A line per run."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["row", "seed", *GROUPS, "nmi", "ari", "clean", "overall", "seconds", "gigabytes", "oracle"])
    for r in results:
        numbers = [r.metrics[name] for name in (*GROUPS, "nmi", "ari")]
        memory = None if r.gigabytes is None else round(r.gigabytes, 2)
        oracle = "oracle" in r.metrics
        writer.writerow([r.row, r.seed, *numbers, r.clean, r.overall, round(r.seconds, 1), memory, oracle])
    return text.getvalue()
