"""The runs of a study: every row and seed once, first trainings shared, in folders named by their settings."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from newfound.discovery import discover_table
from newfound.distributed import asked_of_first
from newfound.images import ImageTable
from newfound.methods import decide, load, method_of, own_settings, with_method, with_own
from newfound.research.peak_memory import peak_memory
from newfound.research.run_bench import as_published
from newfound.research.stored_json import read_memory, read_metrics
from newfound.research.studies import Row
from newfound.research.study_table import Result
from newfound.runs.folder import RunFolder
from newfound.runs.scoring import Truth
from newfound.screen import Screen
from newfound.settings import FULL_EPOCHS, DataFacts, MethodSettings, Settings

MEMORY = "memory.json"
NOT_THE_RUN = (
    "method",
    "seed",
    "preset",
    "weights",
    "bank_dir",
    "device",
    "compile",
)  # what a name leaves out


def facts_of(table: ImageTable, classes: int | None) -> DataFacts:
    """What the settings of a study's runs depend on; a method that finds its own number of classes has none yet."""
    known = len(table.seen_classes()[1])
    return DataFacts(len(table), table.n_known, table.n_labelled, known, table.n_known if classes is None else classes)


def settings_of(row: Row, base: Settings, table: ImageTable, estimated: int | None = None) -> Settings:
    """The base with what the row changes; all of it decided, so that equal settings are equal runs."""
    assert base.classes is not None
    changes: dict[str, Any] = dict(row.settings)
    settings = with_own(_of_method(base, str(changes.pop("method"))), changes)
    facts = facts_of(table, settings.classes)
    decided = decide(settings, facts)
    assert decided.epochs is not None or not row.of_200_epochs
    changes = {}
    for name, share in row.relative.items():
        changes[name] = max(1.0, share * getattr(decided.method, name))
    for name, epochs in row.of_200_epochs.items():
        changes[name] = max(1, round(epochs * min(1, (decided.epochs or 0) / FULL_EPOCHS)))
    if row.estimated_classes:
        assert estimated is not None
        changes |= {"classes": estimated, "preset": decided.preset}  # what follows from the number stays as it is
        facts = facts_of(table, estimated)
    return decide(with_own(settings, changes), facts)


def _of_method(base: Settings, name: str) -> Settings:
    """The base for another method."""
    return as_published(with_method(base, name))


class Runner:
    """Runs settings that have not been run, in folders named after them."""

    def __init__(self, table: ImageTable, truth: Truth, folder: Path, screen: Screen) -> None:
        self._table, self._truth, self._folder, self._screen = table, truth, folder, screen
        self._left: dict[str, Settings] = {}  # by folder name
        self._seconds, self._epochs = 0.0, 0.0  # of the runs done here; an epoch with LSP counts twice

    def place(self, settings: Settings) -> RunFolder:
        """Where such a run lies."""
        return RunFolder(self._folder / folder_name(settings, self._facts(settings)))

    def announce(self, wanted: Sequence[Settings]) -> None:
        """What is ahead: every run once, first trainings before those that take them."""
        for settings in wanted:
            for needed in (first_training(settings, self._facts(settings)), settings):
                if needed is not None and not self._is_done(needed):
                    self._left[self.place(needed).path.name] = needed
        self._screen.say(f"{len(self._left)} runs to do, in {self._folder}")

    def result(self, row: str, settings: Settings) -> Result:
        """Of one run; it is run, or resumed, if need be."""
        first = first_training(settings, self._facts(settings))
        if first is not None:
            self._run(first)
            settings = with_own(settings, {str(method_of(settings).NEEDS.first_training_from): self.place(first).path})
        self._run(settings)
        return self._read(row, settings)

    def _facts(self, settings: Settings) -> DataFacts:
        return facts_of(self._table, settings.classes)

    @asked_of_first
    def _read(self, row: str, settings: Settings) -> Result:
        run = self.place(settings)
        metrics = read_metrics(run.path)
        lines = run.journal.pseudo_labels()
        last = lines[-1] if lines else {}
        return Result(
            row, settings.seed, metrics, last.get("clean"), last.get("overall"), run.journal.training_seconds(),
            read_memory(run.path / MEMORY),
        )  # fmt: skip

    @asked_of_first
    def _is_done(self, settings: Settings) -> bool:
        return (self.place(settings).path / "metrics.json").exists()

    def _run(self, settings: Settings) -> None:
        if self._is_done(settings):
            return
        run, started = self.place(settings), time.perf_counter()
        self._screen.say(f"run {run.path.name}; {len(self._left)} left{self._time_left()}")
        run.check_place(resume=True)
        memory = peak_memory(
            lambda: discover_table(self._table, settings, run, referee=self._truth, screen=self._screen)
        )
        run.write_json(MEMORY, {"gigabytes": memory})
        self._left.pop(run.path.name, None)
        if settings.epochs is not None:
            self._seconds += time.perf_counter() - started
            self._epochs += _work(settings)

    def _time_left(self) -> str:
        if not self._epochs:
            return ""
        seconds = self._seconds / self._epochs * sum(map(_work, self._left.values()))
        return f", about {timedelta(seconds=round(seconds))}"


def _work(settings: Settings) -> float:
    """Epochs, doubled by the sharpness penalty; a first training is a run of its own."""
    return 1 if settings.epochs is None else settings.epochs * (2 if settings.rho else 1)


def first_training(settings: Settings, facts: DataFacts) -> Settings | None:
    """The run whose training is exactly the first one of these settings, None if there is only one training."""
    method, own = method_of(settings), own_settings(settings)
    needed = method.NEEDS.first_training
    if needed is None or method.trainings(own, facts) < 2:
        return None
    first = load(needed).Settings
    shared = {field.name: getattr(own, field.name) for field in fields(first) if hasattr(own, field.name)}
    return decide(replace(settings, method=cast(MethodSettings, first(**shared))), facts)


def folder_name(settings: Settings, facts: DataFacts) -> str:
    """The same for the same training, whatever it is called and wherever it lies: only what differs from the defaults
    of a study on this data counts, so a setting that is added later renames no finished run. Defaults are those of a
    CPU, or on another machine a name would stand for another training.

    >>> facts = DataFacts(images=99, known=2, labelled=9, labelled_classes=2, classes=10)
    >>> folder_name(decide(as_published(Settings(10, method="simgcd", seed=3, device="cpu")), facts), facts)
    'simgcd-s3-k10'
    """
    name, taken = method_of(settings).NAME, method_of(settings).NEEDS.first_training_from
    usual = decide(as_published(Settings(classes=settings.classes, method=name, device="cpu")), facts)
    pairs = [(settings, usual), (own_settings(settings), usual.method)]
    other = {
        field.name: str(getattr(chosen, field.name))
        for chosen, default in pairs
        for field in fields(chosen)
        if field.name not in (*NOT_THE_RUN, taken) and getattr(chosen, field.name) != getattr(default, field.name)
    }
    digest = hashlib.sha256(json.dumps(other, sort_keys=True).encode()).hexdigest()[:10]
    number = "" if settings.classes is None else f"-k{settings.classes}"
    return f"{name}-s{settings.seed}{number}" + (f"-{digest}" if other else "")
