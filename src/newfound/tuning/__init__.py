"""Compare settings without a truth: each is trained with some labels hidden, and scored on these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newfound import fitting
from newfound.errors import require
from newfound.hidden_labels import hide
from newfound.images import ImageTable
from newfound.images.class_folders import FolderMeaning
from newfound.images.scan import check_folder
from newfound.methods import check_size, decide, method_of, with_method
from newfound.runs.before_training import check_something_to_sort
from newfound.runs.inputs import check_settings, read_table
from newfound.screen import Screen
from newfound.settings import OF_FEATURES, OF_TRAINING, DataFacts, Settings
from newfound.sources.bank import default_bank_folder
from newfound.text import counted
from newfound.training.opened_images import OpenedImages
from newfound.tuning.candidates import Candidate, changed, first_candidate, usual_changes
from newfound.tuning.choice import Differences, chosen, differences
from newfound.tuning.trials import FILE, Planned, Trial, read_trials, time_left, write_trials

EPOCHS = 20
SPLITS = 2
NOT_OF_VIEWS = ("classes", "method", "preset", "seed", *OF_FEATURES, *(set(OF_TRAINING) - {"precision"}))


@dataclass(frozen=True)
class Tuned:
    """How each candidate did on each split; the first candidate is what the others are compared with."""

    candidates: tuple[Candidate, ...]
    trials: tuple[tuple[Trial, ...], ...]  # candidates×splits

    def accuracy(self, group: str = "all") -> NDArray[np.float64]:
        """Candidates×splits, of all scored images, or those of "old" or "new" classes."""
        return np.array([[getattr(trial, group) for trial in trials] for trials in self.trials])

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Of a training of each candidate, on average."""
        return np.array([np.mean([trial.seconds for trial in trials]) for trials in self.trials])

    @property
    def differences(self) -> Differences:
        return differences(self.accuracy())

    @property
    def chosen(self) -> int:
        """The number of the candidate to take."""
        return chosen(self.differences, self.seconds)


def tune(
    folder: Path,
    settings: Settings,
    changes: Sequence[Mapping[str, Any]] = (),
    *,
    labels: Path | None = None,
    folders: FolderMeaning = FolderMeaning(),  # noqa: B008 - it cannot change
    out: Path,
    splits: int = SPLITS,
    epochs: int = EPOCHS,
    screen: Screen,
) -> Tuned:
    """Try settings, and the same with each of the ``changes``, on splits of the labels; resume what is in ``out``.

    Without changes, a few usual ones are tried. ``epochs`` are those of each training, unless they are compared.
    """
    require("splits", splits, splits >= 2, "at least 2: a single one says nothing about chance")
    require("epochs", epochs, epochs >= 1, "at least 1")
    candidates = [first_candidate(settings), *(changed(settings, change) for change in changes)]
    for candidate in candidates:
        check_settings(candidate.settings)
    check_folder(folder)
    table = read_table(folder, labels, [out, settings.bank_dir or default_bank_folder()], screen, folders)
    check_something_to_sort(table, labels, None)
    known = table.seen_classes()[0]
    hidden = [hide(known, number, seed=settings.seed) for number in range(splits)]
    opened = Opened(table, screen)
    facts = _facts_of(table, settings, opened, screen)
    candidates += [] if changes else [changed(settings, change) for change in usual_changes(settings, facts)]
    different = _distinct(candidates, facts, epochs)
    rows = [
        [Planned.of(candidate.name, i, split, decided, opened.fingerprints(decided)) for i, split in enumerate(hidden)]
        for decided, candidate in different.items()
    ]
    trials = _all_trials([trial for of_split in zip(*rows, strict=True) for trial in of_split], out, opened, screen)
    return Tuned(tuple(different.values()), tuple(tuple(trials[trial.key] for trial in row) for row in rows))


class Opened:
    """Images as the candidates see them; those that see the same share it."""

    def __init__(self, table: ImageTable, screen: Screen) -> None:
        self._table, self._screen = table, screen
        self._opened: dict[tuple[Settings, bool], OpenedImages] = {}

    def of(self, settings: Settings) -> OpenedImages:
        """The images for these settings."""
        strong = method_of(settings).NEEDS.strong_view
        views = replace(settings, **{name: getattr(Settings, name) for name in NOT_OF_VIEWS})
        if (views, strong) not in self._opened:
            self._opened[views, strong] = OpenedImages(self._table, views, self._screen, strong=strong)
        return self._opened[views, strong]

    def fingerprints(self, settings: Settings) -> list[str]:
        """Of the images, and of the backbone."""
        return [self._table.fingerprint, self.of(settings).backbone.fingerprint]


def _facts_of(table: ImageTable, settings: Settings, opened: Opened, screen: Screen) -> DataFacts:
    """With the number of classes that was given, or an estimate: by all labels, as newfound discover makes it."""
    labels, names = table.seen_classes()
    facts = DataFacts(len(table), table.n_known, table.n_labelled, len(names), classes=0)
    clustering = with_method(settings, "kmeans")  # which needs a number, and nothing else
    decided = decide(clustering, replace(facts, classes=settings.classes or max(facts.known, 2)))
    return fitting.with_count(clustering, facts, lambda: opened.of(decided).pretrained, labels, screen)[1]


def _distinct(candidates: Sequence[Candidate], facts: DataFacts, epochs: int) -> dict[Settings, Candidate]:
    """Candidates by what is decided for them; of those that are the same, the first."""
    found: dict[Settings, Candidate] = {}
    for candidate in candidates:
        check_size(candidate.settings, facts)
        found.setdefault(candidate.decided(facts, epochs), candidate)
    return found


def _all_trials(planned: Sequence[Planned], out: Path, opened: Opened, screen: Screen) -> dict[str, Trial]:
    """By key: those in the file, and then those that are not."""
    out.mkdir(parents=True, exist_ok=True)
    trials = read_trials(out / FILE)
    left = [trial for trial in planned if trial.key not in trials]
    before = f", {len(planned) - len(left)} done before" if len(left) < len(planned) else ""
    screen.say(f"{counted(len(left), 'training')} to do{before}")
    for i, trial in enumerate(left):
        where = f"{i + 1} of {len(left)}: {trial.name}, split {trial.number + 1}"
        screen.say(where + time_left(planned, trials, left[i:]))
        trials[trial.key] = trial.done(opened.of(trial.settings).pretrained, screen)
        write_trials(out / FILE, trials)
    return trials
