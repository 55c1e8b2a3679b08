"""The run folder: every file a run writes, each written whole or not at all.

config.toml         every setting, versions, fingerprint of the data
skipped.csv         files that were not used, and why
class_count.json    how many classes there seem to be, where it was not given
whitening.json      whether features were whitened, how much, and why, where the settings ask for it
log.jsonl           a line per epoch
anchors.jsonl       a line per epoch that had anchors
checkpoint/         each training as it was a few epochs or seconds ago, to resume from; k-means of the frozen features,
                    whitening
assignments.csv     class and confidence of every image
classes.csv         name, size, nearest class (by mean features) of every class
embeddings.npy      features, a row per line of assignments.csv, float16, length 1
model.safetensors   tail, classifier, references; model.json says how to use them
metrics.json        only where a truth was given
map.npy             two coordinates of every image, for the report
report.html         the page to look through
decisions.json      what a person decided on it
round.json          only of another round: what became of the folder's labels
consensus.json      only with several seeds: of which ones the results are the consensus, and how far they agree
stability.json      only with several seeds: which classes come out again
seeds/              the runs with each of the seeds, each a run folder; there, and not beside it, are the trainings
probabilities.npy   only of one of several seeds: of every class, for every image, for the consensus

Where several processes train together, the first one reads and writes it; the others are told what it read.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor

from newfound.atomic import write_atomically, write_csv
from newfound.distributed import asked_of_first, done_by_first, is_first
from newfound.errors import UserError, option
from newfound.methods import first_training_from, method_of
from newfound.runs.config import config_text, read_config
from newfound.runs.journal import RunJournal
from newfound.runs.places import is_finished, resuming_words, reviewing_words
from newfound.runs.resuming import SECTION, of_earlier_version
from newfound.runs.tensor_files import save_tensors
from newfound.settings import Settings, method_name
from newfound.settings.toml import read_tables, to_toml

NOT_THE_RUN = ("weights", "bank_dir", "compile", "device")  # places, and means
WHITENING = "whitening.json"
WRITTEN = (  # with a half of it beside it, for a while
    "config.toml", "skipped.csv", "class_count.json", WHITENING, "round.json", "log.jsonl", "anchors.jsonl",
    "assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors", "model.json", "metrics.json", "map.npy",
    "probabilities.npy", "consensus.json", "stability.json", "report.html", "decisions.json",
)  # fmt: skip
RESULTS = (  # those without which there is none come first
    "assignments.csv", "model.json", "classes.csv", "embeddings.npy", "model.safetensors", "metrics.json", "map.npy",
    "report.html",
)  # fmt: skip
FINGERPRINTED = {  # sections of config.toml
    "data": "the images or labels",
    "backbone": "the backbone's weights",
    "oracle": "the true labels, which an oracle run learns from,",
}


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = RunJournal(path)

    # Beginning

    @asked_of_first
    def check_place(self, *, resume: bool) -> None:
        """Raise unless a run can begin here, or be resumed."""
        if self._has_config():
            if not resume:
                raise UserError(f"{self._what_is_there()} {_otherwise()}")
        elif self.path.exists() and (not self.path.is_dir() or self._holds_something_else()):
            raise UserError(
                f"{self.path} already exists and is not a newfound run. Choose another place with {option('out')}."
            )
        else:
            there = next(place for place in [self.path, *self.path.absolute().parents] if os.path.lexists(place))
            if not there.is_dir():
                raise UserError(f"the run folder {self.path} cannot be used: {there} is not a folder")

    def _what_is_there(self) -> str:
        if is_finished(self.path):
            return f"{self.path} holds a finished run. Look through it: {reviewing_words(self.path)}."
        return f"{self.path} holds a run that was stopped. Resume it: {resuming_words(self.path)}."

    def _has_config(self) -> bool:
        try:
            return self._config.exists()
        except OSError as error:  # such as a name that is too long
            raise UserError(f"the run folder {self.path} cannot be used: {error.strerror}") from error

    @contextmanager
    def begun(self, settings: Settings, sections: dict[str, dict[str, Any]]) -> Iterator[None]:
        """Make the folder if need be, and keep other runs out of it."""
        with self.held():
            self._write_config(settings, sections)
            yield

    @done_by_first
    def _write_config(self, settings: Settings, sections: dict[str, dict[str, Any]]) -> None:
        if not self._config.exists():
            with write_atomically(self._config) as file:
                file.write(config_text(settings, sections))
        elif SECTION in sections:
            self._note_command(sections[SECTION])

    def _note_command(self, command: dict[str, Any]) -> None:
        """It may have been resumed with another truth, or with more seeds."""
        tables = read_tables(self._config)
        if tables.get(SECTION) != command:
            with write_atomically(self._config) as file:
                file.write(to_toml({**tables, SECTION: command}))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs and reviews out of the folder; the system frees the lock when its holder dies."""
        if not is_first():
            yield
            return
        try:
            (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
            held = FileLock(self.path / "checkpoint" / "lock").acquire(timeout=0)
        except OSError as error:  # Timeout is one, too
            busy = "another run or review is at work in it"
            why = busy if isinstance(error, Timeout) else str(error.strerror)
            raise UserError(f"the run folder {self.path} cannot be used: {why}") from error
        with held:
            halves = [*(self.path / "checkpoint").glob("*.tmp"), *(self.path / f"{name}.tmp" for name in WRITTEN)]
            for half in halves:
                if half.is_file():
                    half.unlink()  # of a run or review that was killed
            yield

    def _holds_something_else(self) -> bool:
        """Anything but what a run killed before its first file leaves behind."""
        return any(item.name not in ("checkpoint", "config.toml.tmp") for item in self.path.iterdir())

    @asked_of_first
    def check_same_run(self, settings: Settings, fingerprints: dict[str, str]) -> None:
        """Raise if a run is here that was begun with other settings, or of which something else has changed."""
        if not self._config.exists():
            return
        config = read_config(self._config)
        if config.earlier_version:
            raise UserError(of_earlier_version(self.path))
        if changed := _changed(config.settings, settings) + self._changed_first_training(config.settings, settings):
            raise UserError(
                f"{self.path} was begun with other settings: {'; '.join(changed)}. Use those, or "
                f"another {option('out')}."
            )
        for section, found in fingerprints.items():
            if config.sections.get(section, {}).get("fingerprint") != found:
                raise UserError(
                    f"{FINGERPRINTED[section]} have changed since {self.path} was begun. Start a new run with another "
                    f"{option('out')}; the bank keeps what has not changed."
                )

    def _changed_first_training(self, earlier: Settings, now: Settings) -> list[str]:
        """Taken from elsewhere or not; once it is here, it does not matter where it came from."""
        before, wanted = first_training_from(earlier), first_training_from(now)
        if (before is None) == (wanted is None) or (before and self.journal.has_first_training()):
            return []
        return [f"{method_of(now).NEEDS.first_training_from} was {before}, is {wanted}"]

    @property
    def _config(self) -> Path:
        return self.path / "config.toml"

    @asked_of_first
    def has_config(self) -> bool:
        """Has a run begun here?"""
        return self._config.exists()

    @asked_of_first
    def settings(self) -> Settings:
        """What the run was begun with."""
        return read_config(self._config).settings

    @asked_of_first
    def classes(self) -> int | None:
        """How many classes the run was begun with; None if none has begun here."""
        return read_config(self._config).settings.classes if self._config.exists() else None

    # Results

    @done_by_first
    def write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        write_csv(self.path / name, header, rows)

    @done_by_first
    def write_json(self, name: str, content: dict[str, Any]) -> None:
        with write_atomically(self.path / name) as file:
            json.dump(content, file, indent=2)
            file.write("\n")

    @done_by_first
    def write_array(self, name: str, array: NDArray[Any]) -> None:
        with write_atomically(self.path / name, "wb") as file:
            np.save(file, array)

    @done_by_first
    def remove_results(self) -> None:
        """Before others are written: killed in between, there are none instead of some of each."""
        for name in RESULTS:
            (self.path / name).unlink(missing_ok=True)

    def read_array(self, name: str) -> NDArray[Any]:
        """The same, read into memory."""
        return np.array(self.array_on_disk(name))

    def array_on_disk(self, name: str) -> NDArray[Any]:
        """An array of numbers; a ValueError if it is none. Nothing in the file is run, no size it claims believed."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of headers that only an old Python would write
                found = np.lib.format.open_memmap(self.path / name, mode="r")
        except (SyntaxError, TokenError, OverflowError, TypeError) as error:  # what NumPy raises for an odd header
            raise ValueError(f"its header cannot be read: {error}") from error
        if found.dtype.kind != "f":
            raise ValueError(f"it holds {found.dtype} instead of numbers")
        return found

    @done_by_first
    def write_tensors(self, name: str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        save_tensors(self.path / name, tensors, metadata)


def _changed(earlier: Settings, now: Settings) -> list[str]:
    """Shared and own settings that differ, in words."""
    if type(earlier.method) is not type(now.method):
        return [f"method was {method_name(earlier)}, is {method_name(now)}"]
    pairs = [(earlier, now), (earlier.method, now.method)]
    unlike = ("method", *NOT_THE_RUN, method_of(now).NEEDS.first_training_from)
    return [
        f"{field.name} was {getattr(old, field.name)}, is {getattr(new, field.name)}"
        for old, new in pairs
        for field in fields(old)  # type: ignore[arg-type]
        if field.name not in unlike and getattr(old, field.name) != getattr(new, field.name)
    ]


def _otherwise() -> str:
    out, overwrite = option("out"), option("overwrite", True)
    return f"For another run choose another folder with {out}, or replace this one with {out} and {overwrite}."
