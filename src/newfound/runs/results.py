"""A finished run, read back from its folder."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from newfound.atomic import load_json
from newfound.errors import UserError, as_path
from newfound.methods import reading_note
from newfound.runs.assignments import NONE_OF_THESE, Assignment
from newfound.runs.config import Config, read_config
from newfound.runs.consensus_facts import FILE as CONSENSUS
from newfound.runs.consensus_facts import ConsensusFacts
from newfound.runs.folder import WHITENING, RunFolder
from newfound.runs.journal import RunJournal
from newfound.runs.places import resuming_words, seed_place
from newfound.runs.stability import FILE as STABILITY
from newfound.runs.stability import Stability
from newfound.runs.tensor_files import WRITE_AGAIN
from newfound.settings import Settings
from newfound.whitening_check import WhiteningCheck

if TYPE_CHECKING:
    from newfound.runs.final_labels import FinalLabel

WITHOUT = "Delete it to continue without it."
NO_RUN = "it is not a newfound run."
RESULT_FILES = ("config.toml", "assignments.csv", "classes.csv", "embeddings.npy")


@dataclass(frozen=True, eq=False)
class Results:
    """What a run found for its images, in the order of ``files``."""

    run: RunFolder
    files: tuple[str, ...]  # relative to root
    given: NDArray[np.int64]  # N: index into assignment.class_names, -1 = unlabelled
    assignment: Assignment
    oracle: bool  # the truth was used in training, for analysis

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def _config(self) -> Config:
        return read_config(self.run.path / "config.toml")

    @property
    def settings(self) -> Settings:
        """What the run was made with."""
        return self._config.settings

    @property
    def marks(self) -> list[str]:
        """Columns that say what these results are, where they are not to be taken as others are."""
        return ["oracle"] * self.oracle + ["reading"] * bool(reading_note(self.settings))

    @property
    def data(self) -> dict[str, Any]:
        """Of the images: folder, labels, fingerprint, counts."""
        data: dict[str, Any] = self._config.sections.get("data", {})
        return data

    @property
    def versions(self) -> dict[str, Any]:
        """Of Python and the packages."""
        versions: dict[str, Any] = self._config.sections.get("versions", {})
        return versions

    @property
    def root(self) -> Path:
        """Where the images lay when the run was made."""
        if not isinstance(folder := self.data.get("folder"), str):
            raise UserError(f"{self.run.path / 'config.toml'} does not say where the images are")
        return Path(folder)

    @cached_property
    def embeddings(self) -> NDArray[np.float32]:
        """N×d, length 1."""
        path = self.run.path / "embeddings.npy"
        try:
            found = self.run.read_array(path.name)
        except ValueError as error:
            raise UserError(f"{path} is damaged: {error}. {WRITE_AGAIN}") from error
        if found.ndim != 2 or not found.shape[1]:
            raise UserError(f"{path} has the shape {found.shape}, not a row of numbers for each image. {WRITE_AGAIN}")
        if len(found) != len(self):
            raise UserError(f"{path} has {len(found):,} rows, and there are {len(self):,} images. {WRITE_AGAIN}")
        if not np.isfinite(found).all():
            raise UserError(f"{path} has numbers that are not finite. {WRITE_AGAIN}")
        return np.asarray(found, dtype=np.float32)

    def final_labels(self) -> list[FinalLabel]:
        """The label of each image after the decisions of a review, and who decided it; read from disk each time."""
        from newfound.runs.final_labels import final_labels  # which is made of results

        return final_labels(self)

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The final label of each image, by the name it has since a review; None where it is in none."""
        return tuple(final.label for final in self.final_labels())

    @cached_property
    def consensus(self) -> ConsensusFacts | None:
        """Of which seeds these results are the consensus; None for those of a single one."""
        return read_consensus(self.run.path)

    @property
    def journal(self) -> RunJournal:
        """Of the training that the model comes from."""
        found = self.consensus
        return self.run.journal if found is None else RunJournal(seed_place(self.run.path, found.model_seed))

    @cached_property
    def stability(self) -> Stability | None:
        """Beside runs with several seeds, where there are any."""
        path = self.run.path / STABILITY
        content = read_json(path)
        if content is None or content.get("results") != digest_of(self.run.path):  # of other results
            return None
        try:
            return Stability.from_json(content, len(self))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is malformed ({error!r}). {WITHOUT}") from error

    @cached_property
    def whitening(self) -> WhiteningCheck | None:
        """Whether the features were whitened, how much, and why; None if the settings did not ask for it."""
        path = self.run.path / WHITENING
        content = read_json(path)
        try:
            return None if content is None else WhiteningCheck.from_json(content)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{path} is malformed ({error!r}). {WITHOUT}") from error


def read_consensus(run: Path) -> ConsensusFacts | None:
    """Of a run with several seeds; None for every other one, and for those of earlier versions."""
    path = run / CONSENSUS
    content = read_json(path)
    try:
        return None if content is None else ConsensusFacts.from_json(content)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is malformed ({error!r}). {WRITE_AGAIN}") from error


def digest_of(run: Path) -> str:
    """Of the results that decisions, and comparisons with other seeds, are about."""
    return hashlib.sha256((run / "assignments.csv").read_bytes()).hexdigest()


def read_results(path: Path | str) -> Results:
    """The results of a run that has come to its end; raises if there is none."""
    run = RunFolder(as_path("run", path))
    if missing := [name for name in RESULT_FILES if not (run.path / name).is_file()]:
        begun = (run.path / "config.toml").is_file()
        raise UserError(
            f"{path} has no {missing[0]}: "
            + (f"the run is not finished. Resume it: {resuming_words(run.path)}" if begun else NO_RUN)
        )
    try:
        return _results(run, _rows(run.path / "classes.csv"), _rows(run.path / "assignments.csv"))
    except (KeyError, TypeError, ValueError, IndexError, csv.Error) as error:
        raise UserError(f"{path}: assignments.csv and classes.csv are malformed ({error!r}). {WRITE_AGAIN}") from error


def _results(run: RunFolder, classes: list[dict[str, str]], images: list[dict[str, str]]) -> Results:
    own = [row for row in classes if row["id"]]
    names = tuple(row["name"] for row in own)
    index = {name: k for k, name in enumerate(names)}
    assignment = Assignment(
        class_names=names,
        unseen=tuple(row["name"] for row in classes if not row["id"]),
        n_known=sum(row["kind"] == "known" for row in own),
        classes=_array(images, "class", {**index, NONE_OF_THESE: -1}.__getitem__, np.int64),
        confidence=_array(images, "confidence", lambda text: float(text or 0), np.float64),
        runner_up=_array(images, "runner_up", index.__getitem__, np.int64),
        runner_up_confidence=_array(images, "runner_up_confidence", float, np.float64),
        is_anchor=_array(images, "is_anchor", "true".__eq__, np.bool_),
    )
    given = _array(images, "given_label", lambda name: index[name] if name else -1, np.int64)
    files = tuple(row["file"] for row in images)
    if strange := [file for file in files if file.startswith("/") or ".." in file.split("/")]:
        raise ValueError(f"{strange[0]} is not below the images")
    if len(set(files)) < len(files) or len(index) < len(names):
        raise ValueError("a file or a class is named twice")
    return Results(run, files, given, assignment, "oracle" in images[0])


def _array(rows: list[dict[str, str]], column: str, convert: Any, kind: Any) -> NDArray[Any]:
    return np.array([convert(row[column]) for row in rows], dtype=kind)


def read_json(path: Path, *numbers: str, remedy: str = WITHOUT) -> dict[str, Any] | None:
    """A file of the run with at least these numbers in it, None where there is none; ``remedy``: if it is damaged."""
    if not path.is_file():
        return None
    try:
        content = load_json(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. {remedy}") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(name), int | float) for name in numbers):
        raise UserError(f"{path} is malformed. {remedy}")
    return content


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))
