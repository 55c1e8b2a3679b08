"""Run a table of the paper: every row and seed once, first trainings shared, then a table, a CSV and a figure.

Runs lie beside each other in one folder for all studies of a data set and are named by their settings, so what one
study has run the next one finds. A study that was stopped resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from newfound import fitting
from newfound.atomic import write_atomically
from newfound.distributed import from_first, is_first
from newfound.errors import SettingError, UserError
from newfound.images import ImageTable
from newfound.methods import oracle_setting
from newfound.research.datasets import Benchmark
from newfound.research.datasets.image_table import truth_of
from newfound.research.figures import FIGURES, Figure
from newfound.research.figures.rows import draw_rows
from newfound.research.figures.trained_model import FigureInputs
from newfound.research.run_bench import prepare
from newfound.research.stored_json import read_class_count
from newfound.research.studies import STUDIES, Study
from newfound.research.study_runs import Runner, settings_of
from newfound.research.study_table import GROUPS, Result, accuracies, as_csv, study_markdown
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.training.opened_images import OpenedImages


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
    if (oracle := oracle_setting(settings)) is not None:
        raise SettingError(oracle, True, "cannot be used in a study: hard-labels has rows with it")
    chosen = STUDIES[name] if name in STUDIES else FIGURES[name]
    benchmark, table, base = prepare(dataset, root, lists, settings, seeds, screen)
    runner = Runner(table, truth_of(benchmark), out / "runs", screen)
    seeds = seeds if isinstance(chosen, Study) else seeds[:1]
    counted = None
    if any(row.estimated_classes for row in chosen.rows):
        if settings.classes:
            raise UserError(
                f"--classes cannot be used in the study {name}, which compares the true and an estimated number"
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
    inputs = FigureInputs(benchmark, table, screen)
    return from_first(lambda: _write_figure(chosen, dataset, inputs, runs, out / name, seeds[0]))


def _counted_beside_truth(counted: Mapping[str, Any], benchmark: Benchmark) -> str:
    true = len(benchmark.known) + len(benchmark.new)
    return f"\nEstimated on the frozen features: {counted['sentence']}. There are {true}.\n"


def _write_table(chosen: Study, dataset: str, results: Sequence[Result], path: Path, note: str) -> str:
    text = study_markdown(chosen, dataset, results) + note
    _write(path.with_suffix(".csv"), as_csv(results))
    _write(path.with_suffix(".md"), text)  # before the figure, which may lack its library
    rows = {row.name: {group: accuracies(results, row.name, group) for group in GROUPS} for row in chosen.rows}
    draw_rows(f"{chosen.title}: {dataset}", chosen.axis, rows, path)
    return text


def _write_figure(
    chosen: Figure, dataset: str, inputs: FigureInputs, runs: Mapping[str, RunFolder], path: Path, seed: int
) -> str:
    text = f"## {chosen.title}: {dataset}\n\nSeed {seed}.\n\n"
    text += chosen.draw(inputs, runs, path)
    _write(path.with_suffix(".md"), text)
    return text


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as file:
        file.write(text)


def _counted(table: ImageTable, base: Settings, out: Path, screen: Screen) -> dict[str, Any]:
    """How many classes there seem to be, counted once: another count might name the runs otherwise."""
    of = [table.fingerprint, base.backbone, base.image_size, base.grad_from_block]
    kept = out / "runs" / "class_count.json"
    found = from_first(lambda: read_class_count(kept))
    if found is None or found.get("of") != of:
        count = fitting.count(OpenedImages(table, base, screen).pretrained, table.seen_classes()[0], screen)
        found = {"of": of, "best": count.best, "sentence": str(count)}
        if is_first():
            kept.parent.mkdir(parents=True, exist_ok=True)
            _write(kept, json.dumps(found))
    return found
