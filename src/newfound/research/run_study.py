"""Run a table of the paper: every row and seed once, first trainings shared, then a table, a CSV and a figure.

Runs lie beside each other in one folder for all studies of a data set and are named by their settings, so what one
study has run the next one finds. A study that was stopped goes on.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from newfound import fitting
from newfound.atomic import write_atomically
from newfound.distributed import from_first, is_first
from newfound.errors import SettingError, UserError
from newfound.images import ImageTable
from newfound.methods import is_oracle
from newfound.research.datasets import Benchmark
from newfound.research.datasets.table import truth_of
from newfound.research.figures import FIGURES, Figure
from newfound.research.figures.canvas import new_canvas, save
from newfound.research.figures.ground import Ground
from newfound.research.protocol import prepare
from newfound.research.runner import Result, Runner, settings_of
from newfound.research.studies import STUDIES, Row, Study
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.training.opened import OpenedImages

GROUPS = ("all", "old", "new")


def study(
    name: str,
    dataset: str,
    root: Path,
    settings: Settings,
    *,
    lists: Path | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    out: Path | None = None,
    screen: Screen | None = None,
) -> str:
    """Run what is not run yet, and write NAME.md, NAME.pdf and NAME.png to ``out``, and NAME.csv for a table; the text.

    A figure shows one run of each kind, with the first of the seeds.
    """
    screen, out = screen or Screen(quiet=True), out or Path(f"newfound-study-{dataset}")
    if is_oracle(settings):
        raise SettingError("oracle_clean_anchors", "", "has no place in a study: hard-labels has rows with it")
    chosen = STUDIES[name] if name in STUDIES else FIGURES[name]
    benchmark, table, base = prepare(dataset, root, lists, settings, seeds, screen)
    runner = Runner(table, truth_of(benchmark), out / "runs", screen)
    seeds = seeds if isinstance(chosen, Study) else seeds[:1]
    counted = None
    if any(row.estimated_classes for row in chosen.rows):
        if settings.classes:
            raise UserError(
                f"--classes has no place in the study {name}, which compares the true and an estimated number"
            )
        counted = _counted(table, base, out, screen)
    estimated = None if counted is None else max(counted["best"], table.n_known, 2)
    plan = [
        (row, settings_of(row, replace(base, seed=seed), table, estimated)) for row in chosen.rows for seed in seeds
    ]
    runner.announce([settings for _, settings in plan])
    results = [runner.result(row.name, settings) for row, settings in plan]
    if isinstance(chosen, Study):
        note = "" if counted is None else _counted_beside_truth(counted, benchmark)
        return from_first(lambda: _write_table(chosen, dataset, results, out / name, note))
    runs = {row.name: runner.place(settings) for row, settings in plan}
    ground = Ground(benchmark, table, screen)
    return from_first(lambda: _write_figure(chosen, dataset, ground, runs, out / name, seeds[0]))


def _counted_beside_truth(counted: Mapping[str, Any], benchmark: Benchmark) -> str:
    true = len(benchmark.known) + len(benchmark.new)
    return f"\nEstimated on the frozen features: {counted['sentence']}. There are {true}.\n"


def _write_table(chosen: Study, dataset: str, results: Sequence[Result], path: Path, note: str) -> str:
    text = markdown(chosen, dataset, results) + note
    _write(path.with_suffix(".csv"), as_csv(results))
    _write(path.with_suffix(".md"), text)  # before the figure, which may lack its library
    draw(chosen, dataset, results, path)
    return text


def _write_figure(
    chosen: Figure, dataset: str, ground: Ground, runs: Mapping[str, RunFolder], path: Path, seed: int
) -> str:
    text = f"## {chosen.title}: {dataset}\n\nSeed {seed}.\n\n"
    text += chosen.draw(ground, runs, path)
    _write(path.with_suffix(".md"), text)
    return text


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as file:
        file.write(text)


def _counted(table: ImageTable, base: Settings, out: Path, screen: Screen) -> dict[str, Any]:
    """How many classes there seem to be, counted once: another count might name the runs otherwise."""
    of = [table.fingerprint, base.backbone, base.image_size, base.grad_from_block]
    kept = out / "runs" / "class_count.json"
    found: dict[str, Any] = from_first(lambda: json.loads(kept.read_text("utf-8")) if kept.exists() else {})
    if found.get("of") != of:
        count = fitting.count(OpenedImages(table, base, screen).pretrained, table.seen_classes()[0], screen)
        found = {"of": of, "best": count.best, "sentence": str(count)}
        if is_first():
            kept.parent.mkdir(parents=True, exist_ok=True)
            _write(kept, json.dumps(found))
    return found


# What comes out


def markdown(chosen: Study, dataset: str, results: Sequence[Result]) -> str:
    """The paper's table with ours beside it."""
    seeds = ", ".join(map(str, sorted({result.seed for result in results})))
    lines = [f"## {chosen.title}: {dataset}", ""]
    lines += [f"Unlabelled training images, last epoch, mean ± standard deviation over seeds {seeds}.", ""]
    header = [chosen.axis or "method", "All", "Old", "New"]
    header += ["anchors clean"] if chosen.anchors else []
    header += ["training, s", "paper: All", "Old", "New"] + (["paper: clean"] if chosen.anchors else [])
    lines += [_line(header), _line(["---"] * len(header))]
    for row in chosen.rows:
        of_row = [result for result in results if result.row == row.name]
        lines.append(_line(_cells(row, of_row, dataset, with_anchors=chosen.anchors)))
    return "\n".join(lines) + "\n"


def _cells(row: Row, results: Sequence[Result], dataset: str, *, with_anchors: bool) -> list[str]:
    cells = [row.name, *(_spread([100 * r.metrics[group] for r in results]) for group in GROUPS)]
    if with_anchors:
        purities = [r.purity for r in results if r.purity is not None]
        count = statistics.mean(r.overall or 0 for r in results)
        cells.append(f"{_spread(purities)} % of {count:.0f}" if purities else "-")
    cells.append(f"{statistics.median(r.seconds for r in results):.0f}")
    cells += [f"{value:.1f}" for value in row.paper.get(dataset, ())] or ["-"] * 3
    if with_anchors:
        clean, overall = row.paper_anchors.get(dataset, (0, 0))
        cells.append(f"{100 * clean / overall:.0f} % of {overall}" if overall else "-")
    return cells


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.pstdev(values):.1f}"


def as_csv(results: Sequence[Result]) -> str:
    """A line per run."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["row", "seed", *GROUPS, "nmi", "ari", "clean", "overall", "seconds", "oracle"])
    for r in results:
        numbers = [r.metrics[name] for name in (*GROUPS, "nmi", "ari")]
        writer.writerow([r.row, r.seed, *numbers, r.clean, r.overall, round(r.seconds, 1), "oracle" in r.metrics])
    return text.getvalue()


def draw(chosen: Study, dataset: str, results: Sequence[Result], path: Path) -> None:
    """All, Old and New of each row, as PDF and PNG."""
    colours = {"all": "#000000", "old": "#0072B2", "new": "#D55E00"}  # told apart by colour-blind eyes, and in print
    figure = new_canvas(6.4, 3.6)
    axes = figure.subplots()
    names = [row.name for row in chosen.rows]
    for offset, (group, colour) in enumerate(colours.items()):
        values = [[100 * r.metrics[group] for r in results if r.row == name] for name in names]
        means, spreads = [statistics.mean(v) for v in values], [statistics.pstdev(v) for v in values]
        if chosen.axis:
            style = {"all": "o-", "old": "s--", "new": "^:"}[group]
            axes.errorbar(range(len(names)), means, spreads, fmt=style, color=colour, capsize=3, label=group.title())
        else:
            places = [i + 0.27 * (offset - 1) for i in range(len(names))]
            hatch = {"all": "", "old": "//", "new": ".."}[group]
            axes.bar(places, means, 0.25, yerr=spreads, color=colour, alpha=0.75, hatch=hatch, label=group.title())
    axes.set_xticks(range(len(names)), [_wrapped(name, 72 // len(names)) for name in names])
    axes.set_xlabel(chosen.axis)
    axes.set_ylabel("accuracy, %")
    axes.set_title(f"{chosen.title}: {dataset}", fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(frameon=False, ncols=3, fontsize=8, loc="outside lower center")
    save(figure, path)


def _wrapped(name: str, width: int) -> str:
    """In lines that fit below a bar.

    >>> _wrapped("ours, estimated number", 12).splitlines()
    ['ours,', 'estimated', 'number']
    """
    lines = name.replace(" + ", "\n+ ").replace(" (", "\n(").replace(", ", ",\n").splitlines()
    return "\n".join(textwrap.fill(line, width, break_long_words=False) for line in lines)
