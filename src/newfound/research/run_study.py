"""Run a table of the paper: every row and seed once, first trainings shared, then a table, a CSV and a figure.

Runs lie beside each other in one folder for all studies of a data set and are named by their settings, so what one
study has run the next one finds. A study that was stopped goes on.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import statistics
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from newfound.research.figures.canvas import new_canvas, save
from newfound.research.figures.ground import Ground
from newfound.research.protocol import prepare
from newfound.research.studies import STUDIES, Row, Study
from newfound.runs.folder import RunFolder
from newfound.runs.scoring import Truth
from newfound.screen import Screen
from newfound.settings import FULL_EPOCHS, Settings, to_toml

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

    @property
    def purity(self) -> float | None:
        return None if not self.overall or self.clean is None else 100 * self.clean / self.overall


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
        """Of one run; it is run, or gone on with, if need be."""
        first = first_training(settings)
        if first is not None:
            self._run(first)
            settings = replace(settings, stage1=self._folder / folder_name(first))
        self._run(settings)
        return self._read(row, settings)

    @asked_of_first
    def _read(self, row: str, settings: Settings) -> Result:
        run = RunFolder(self._folder / folder_name(settings))
        metrics = json.loads((run.path / "metrics.json").read_text("utf-8"))
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
