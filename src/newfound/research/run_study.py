"""Run a table of the paper: every row and seed once, first trainings shared, then a table, a CSV and a figure.

Runs lie beside each other in one folder for all studies of a data set and are named by their settings, so what one
study has run the next one finds. A study that was stopped resumes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from newfound.atomic import write_atomically
from newfound.discovery import count_table, discover_table
from newfound.distributed import asked_of_first, from_first, is_first
from newfound.errors import UserError
from newfound.images import ImageTable
from newfound.research.datasets import Benchmark
from newfound.research.datasets.table import truth_of
from newfound.research.figures import FIGURES, Figure
from newfound.research.figures.ground import Ground
from newfound.research.figures.rows import draw_rows
from newfound.research.protocol import prepare
from newfound.research.stored import read_class_count, read_metrics
from newfound.research.studies import STUDIES, Row, Study
from newfound.research.study_table import GROUPS, Result, accuracies, as_csv, study_markdown
from newfound.runs.folder import RunFolder
from newfound.runs.scoring import Truth
from newfound.screen import Screen
from newfound.settings import FULL_EPOCHS, Settings, to_toml


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
    if settings.oracle_clean_anchors:
        raise UserError("--oracle-clean-anchors has no place in a study: hard-labels has rows with it")
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
    runs = {row.name: RunFolder(out / "runs" / folder_name(settings)) for row, settings in plan}
    ground = Ground(benchmark, table, screen)
    return from_first(lambda: _write_figure(chosen, dataset, ground, runs, out / name, seeds[0]))


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
    found = from_first(lambda: read_class_count(kept))
    if found is None or found.get("of") != of:
        count = count_table(table, base, screen)
        found = {"of": of, "best": count.best, "sentence": str(count)}
        if is_first():
            kept.parent.mkdir(parents=True, exist_ok=True)
            _write(kept, json.dumps(found))
    return found


def settings_of(row: Row, base: Settings, table: ImageTable, estimated: int | None = None) -> Settings:
    """The base with what the row changes; all of it decided, so that equal settings are equal runs."""
    decided = base.resolved(table.n_known, len(table), table.labelled_per_class)
    assert decided.epochs is not None
    changes: dict[str, Any] = dict(row.settings)
    for name, share in row.relative.items():
        changes[name] = max(1.0, share * getattr(decided, name))
    for name, epochs in row.of_200_epochs.items():
        changes[name] = max(1, round(epochs * min(1, decided.epochs / FULL_EPOCHS)))
    if row.estimated_classes:
        assert estimated is not None
        changes |= {"classes": estimated, "preset": decided.preset}  # what follows from the number stays as it is
    return replace(base, **changes).stripped().resolved(table.n_known, len(table), table.labelled_per_class)


class Runner:
    """Runs settings that have not been run, in folders named after them."""

    def __init__(self, table: ImageTable, truth: Truth, folder: Path, screen: Screen) -> None:
        self._table, self._truth, self._folder, self._screen = table, truth, folder, screen
        self._left: dict[str, Settings] = {}  # by folder name
        self._seconds, self._epochs = 0.0, 0.0  # of the runs done here; an epoch with LSP counts twice

    def announce(self, wanted: Sequence[Settings]) -> None:
        """What is ahead: every run once, first trainings before those that take them."""
        for settings in wanted:
            for needed in (first_training(settings), settings):
                if needed is not None and not self._is_done(needed):
                    self._left[folder_name(needed)] = needed
        self._screen.say(f"{len(self._left)} runs to do, in {self._folder}")

    def result(self, row: str, settings: Settings) -> Result:
        """Of one run; started or resumed if need be."""
        first = first_training(settings)
        if first is not None:
            self._run(first)
            settings = replace(settings, stage1=self._folder / folder_name(first))
        self._run(settings)
        return self._read(row, settings)

    @asked_of_first
    def _read(self, row: str, settings: Settings) -> Result:
        run = RunFolder(self._folder / folder_name(settings))
        metrics = read_metrics(run.path)
        anchors = run.anchors()[-1] if run.anchors() else {}
        seconds = run.training_seconds()
        return Result(row, settings.seed, metrics, anchors.get("clean"), anchors.get("overall"), seconds)

    @asked_of_first
    def _is_done(self, settings: Settings) -> bool:
        return (self._folder / folder_name(settings) / "metrics.json").exists()

    def _run(self, settings: Settings) -> None:
        if self._is_done(settings):
            return
        name, started = folder_name(settings), time.perf_counter()
        self._screen.say(f"run {name}; {len(self._left)} left{self._time_left()}")
        run = RunFolder(self._folder / name)
        run.check_place(resume=True)
        discover_table(self._table, settings.stripped(), run, referee=self._truth, screen=self._screen)
        self._left.pop(name, None)
        if settings.method != "kmeans":
            self._seconds += time.perf_counter() - started
            self._epochs += _work(settings)

    def _time_left(self) -> str:
        if not self._epochs:
            return ""
        seconds = self._seconds / self._epochs * sum(map(_work, self._left.values()))
        return f", about {timedelta(seconds=round(seconds))}"


def _work(settings: Settings) -> float:
    """Epochs, doubled by the sharpness penalty; a first training is a run of its own."""
    assert settings.epochs is not None
    return 1 if settings.method == "kmeans" else settings.epochs * (2 if settings.rho else 1)


def first_training(settings: Settings) -> Settings | None:
    """The run whose training is exactly the first one of these settings, None if there is only one training."""
    return replace(settings, method="simgcd").stripped() if settings.stages == 2 else None


def folder_name(settings: Settings) -> str:
    """The same for the same training, whatever it is called and wherever it lies.

    >>> folder_name(Settings(10, method="simgcd", rho=0.0, seed=3))[:10]
    'simgcd-s3-'
    """
    plain = replace(settings.stripped(), weights=None, bank_dir=None, stage1=None, preset=None)
    text = to_toml(replace(plain, compile=False)).replace("compile = false\n", "")  # as it was before there was one
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{settings.method}-s{settings.seed}-{digest}"
