"""A training on what is left of the labels, scored on those that are hidden; and the file that remembers them."""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from newfound import fitting
from newfound.atomic import write_csv
from newfound.errors import UserError
from newfound.evaluate import Accuracy
from newfound.hidden_labels import Split
from newfound.methods import method_of, own_settings
from newfound.runs.journal import MemoryJournal
from newfound.screen import Screen, clock
from newfound.settings import DataFacts, Settings, Training
from newfound.settings.toml import as_table
from newfound.training.task import Pretrained

FILE = "trials.csv"
ELSEWHERE = ("weights", "bank_dir", "device", "compile")  # settings that say where, and not what


@dataclass(frozen=True)
class Trial:
    """A line of the file."""

    settings: str  # the name of the candidate
    split: int  # from 1
    all: float
    old: float
    new: float
    seconds: float
    key: str  # of the training: equal settings on equal images are found again, whatever they were called


@dataclass(frozen=True)
class Planned:
    """A trial that may be ahead."""

    name: str
    number: int  # of the split, from 0
    split: Split
    settings: Settings  # decided
    key: str

    @classmethod
    def of(cls, name: str, number: int, split: Split, settings: Settings, fingerprints: Sequence[str]) -> Planned:
        """With a seed of the split's own: what chance does in a training counts as well."""
        settings = replace(settings, seed=(settings.seed + number) % 2**32)
        return cls(name, number, split, settings, key_of(settings, split, fingerprints))

    def done(self, pretrained: Pretrained, screen: Screen) -> Trial:
        """Train and score."""
        started = time.perf_counter()
        found = accuracy_on(self.split, self.settings, pretrained, screen)
        seconds = round(time.perf_counter() - started, 1)
        return Trial(self.name, self.number + 1, found.all, found.old, found.new, seconds, self.key)

    def work(self) -> float:
        """How long it trains beside others: epochs, doubled by the sharpness penalty; 0 where nothing is trained."""
        trainings = method_of(self.settings).trainings(self.settings.method, facts_of(self.split, self.settings))
        return trainings * Training.of(self.settings).epochs * (2 if self.settings.rho else 1)


def accuracy_on(split: Split, settings: Settings, pretrained: Pretrained, screen: Screen) -> Accuracy:
    """Of one training with these settings, which are decided."""
    found = fitting.fit(settings, facts_of(split, settings), pretrained, split.labels, MemoryJournal(), screen)
    predicted = found.prediction.classes.numpy().copy()
    if found.none is not None:
        predicted[found.none] = -1
    return split.accuracy(predicted)


def facts_of(split: Split, settings: Settings) -> DataFacts:
    """What is left of the labels; the number of classes stays that of all."""
    known, labelled = int(split.labels.max()) + 1, int((split.labels >= 0).sum())
    return DataFacts(len(split.labels), known, labelled, known, settings.classes or max(known, 2))


def key_of(settings: Settings, split: Split, fingerprints: Sequence[str]) -> str:
    """The same for the same training on the same images: decided settings, labels that are left, fingerprints."""
    shared = as_table(replace(settings, **{name: getattr(Settings, name) for name in ELSEWHERE}, method="sdas"))
    own = {"method": method_of(settings).NAME, **as_table(own_settings(settings))}
    content = [shared, own, split.labels.tolist(), list(fingerprints)]
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]


def time_left(planned: Sequence[Planned], trials: Mapping[str, Trial], left: Sequence[Planned]) -> str:
    """An estimate from those that are done; what trains nothing takes no time beside the others."""
    done = [trial for trial in planned if trial.key in trials and trial.work()]
    if not done:
        return ""
    each = sum(trials[trial.key].seconds for trial in done) / sum(trial.work() for trial in done)
    return f"; about {clock(each * sum(trial.work() for trial in left))} left in all"


def read_trials(path: Path) -> dict[str, Trial]:
    """What has been tried, by key."""
    if not path.is_file():
        return {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            trials = [_trial(row) for row in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is malformed ({error!r}). Delete it to try everything again.") from error
    return {trial.key: trial for trial in trials}


def _trial(row: dict[str, Any]) -> Trial:
    numbers = {name: float(row[name]) for name in ("all", "old", "new", "seconds")}
    return Trial(settings=row["settings"], split=int(row["split"]), key=row["key"], **numbers)


def write_trials(path: Path, trials: dict[str, Trial]) -> None:
    """Whole or not at all."""
    header = [field.name for field in fields(Trial)]
    write_csv(path, header, (list(asdict(trial).values()) for trial in trials.values()))
