"""The run folder: every file a run writes, each written whole or not at all.

config.toml         every setting, versions, fingerprint of the data
skipped.csv         files that were not used, and why
class_count.json    how many classes there seem to be, where that was not told
log.jsonl           a line per epoch
anchors.jsonl       a line per epoch that had anchors
checkpoint/         each training as it was a few epochs or seconds ago, to go on from
assignments.csv     class and confidence of every image
classes.csv         name, size, nearest class of every class
embeddings.npy      features, a row per line of assignments.csv, float16, length 1
model.safetensors   tail, classifier, references; model.json says how to use them
metrics.json        only where a truth was given
map.npy             two coordinates of every image, for the report
report.html         the page to look through
decisions.json      what a person decided on it
round.json          only of another round: what became of the folder's labels
stability.json      only with several seeds: which classes come out again
seeds/              the runs with the other seeds, each a run folder

Where several processes train together, the first one reads and writes it; the others are told what it read.
"""

from __future__ import annotations

import json
import os
import statistics
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from tokenize import TokenError
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from newfound.atomic import write_atomically, write_csv
from newfound.distributed import asked_of_first, done_by_first, is_first
from newfound.errors import UserError
from newfound.settings import Settings, read_toml, to_toml

NOT_THE_RUN = ("weights", "bank_dir", "stage1", "compile")  # places, and a means
WRITTEN = (  # with a half of it beside it, for a while
    "config.toml", "skipped.csv", "class_count.json", "round.json", "log.jsonl", "anchors.jsonl",
    "checkpoint/stage1.safetensors", "checkpoint/stage2.safetensors", "assignments.csv", "classes.csv",
    "embeddings.npy", "model.safetensors", "model.json", "metrics.json", "map.npy", "stability.json", "report.html",
    "decisions.json",
)  # fmt: skip
FINGERPRINTED = {  # sections of config.toml
    "data": "the images or labels",
    "backbone": "the backbone's weights",
    "oracle": "the true labels, which an oracle run learns from,",
}


CHECKPOINT_PAUSE = 4.0  # no other checkpoint for this many times as long as the last one took to write,
LONGEST_PAUSE = 30.0  # seconds at most
ANEW = "newfound discover --resume writes it anew."


@dataclass(frozen=True)
class Checkpoint:
    """Where a stage stands, beside the weights."""

    epoch: int  # done so far
    epochs: int  # in all
    labels: NDArray[np.int64]  # N: what the last epoch was trained with, -1 for unlabelled
    skipped_steps: int = 0
    scaler: dict[str, Any] | None = None  # of a gradient scaler, where there is one


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._pause_ends = 0.0  # by the monotonic clock

    # Beginning

    @asked_of_first
    def check_place(self, *, resume: bool) -> None:
        """Raise unless a run can begin here, or go on."""
        if self._has_config():
            if not resume:
                raise UserError(
                    f"{self.path} holds a run already. Go on with it by --resume, or choose another folder with --out."
                )
        elif self.path.exists() and (not self.path.is_dir() or self._holds_something_else()):
            raise UserError(f"{self.path} is there already and is not a newfound run. Choose another place with --out.")
        else:
            there = next(place for place in [self.path, *self.path.absolute().parents] if os.path.lexists(place))
            if not there.is_dir():
                raise UserError(f"the run folder {self.path} cannot be used: {there} is not a folder")

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
                file.write(to_toml(settings, **sections))

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
            for half in (self.path / f"{name}.tmp" for name in WRITTEN):
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
        earlier, sections = read_toml(self._config)
        if earlier.preset is None:  # every run of this version has decided on one
            raise UserError(f"{self.path} was begun by an earlier version of newfound. Begin anew with another --out.")
        changed = [
            f"{name} was {value}, is {getattr(settings, name)}"
            for name, value in vars(earlier).items()
            if value != getattr(settings, name) and name not in NOT_THE_RUN
        ]
        if (earlier.stage1 is None) != (settings.stage1 is None) and not (earlier.stage1 and self.has_stage1()):
            changed.append(f"stage1 was {earlier.stage1}, is {settings.stage1}")
        if changed:
            raise UserError(
                f"{self.path} was begun with other settings: {'; '.join(changed)}. Use those, or another --out."
            )
        for section, found in fingerprints.items():
            if sections.get(section, {}).get("fingerprint") != found:
                raise UserError(
                    f"{FINGERPRINTED[section]} have changed since {self.path} was begun. Start a new run with another "
                    "--out; the bank keeps what has not changed."
                )

    @property
    def _config(self) -> Path:
        return self.path / "config.toml"

    # Training. A stage is one training from its beginning to its end; a run has one or two.

    def restore(self, stage: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> Checkpoint | None:
        """Load the stage's last checkpoint, if there is one, and forget what was logged after it."""
        found = self._last_checkpoint(stage)
        if found is None:
            return None
        checkpoint, tensors = found
        _load_weights(model, tensors, self._checkpoint(stage))
        for name, parameter in model.named_parameters():
            if f"momentum.{name}" in tensors:
                momentum = tensors[f"momentum.{name}"].to(parameter.device)
                optimiser.state[parameter]["momentum_buffer"] = momentum
        return checkpoint

    @asked_of_first
    def _last_checkpoint(self, stage: int) -> tuple[Checkpoint, dict[str, torch.Tensor]] | None:
        path = self._checkpoint(stage)
        if not path.exists():
            self._forget(stage, 0)
            return None
        tensors, metadata = load_tensors(path)
        if "labels" not in tensors:
            raise _damaged(path, "it has no labels")
        checkpoint = Checkpoint(labels=tensors["labels"].numpy(), **_state_in(path, metadata))
        self._forget(stage, checkpoint.epoch)
        return checkpoint, tensors

    def load_model(self, model: nn.Module) -> None:
        """The weights of the last stage, as far as it has come."""
        stage = 2 if self._checkpoint(2).exists() else 1
        path = self._checkpoint(stage)
        _load_weights(model, load_tensors(path)[0], path)

    @asked_of_first
    def epochs_done(self, stage: int) -> int:
        """How far the stage has come."""
        return int(self._state(stage)["epoch"]) if self._checkpoint(stage).exists() else 0

    @asked_of_first
    def settings(self) -> Settings:
        """What the run was begun with."""
        return read_toml(self._config)[0]

    @asked_of_first
    def classes_of(self, stage1: Path | None) -> int:
        """How many classes this run was begun with, or the one its first training comes from; 0 without either."""
        if self._config.exists():
            return self.settings().classes
        if stage1 is None:
            return 0
        earlier = RunFolder(stage1)
        earlier.check_has_stage1()
        return earlier.settings().classes

    def _state(self, stage: int) -> dict[str, Any]:
        path = self._checkpoint(stage)
        return _state_in(path, _load_metadata(path))

    @done_by_first
    def save_epoch(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint, entry: dict[str, Any]
    ) -> None:
        """Append ``entry`` to the log, then replace the checkpoint: killed in between, ``restore`` drops the line.

        Short epochs share a checkpoint, so that small folders do not wait for the disk.
        """
        self._append("log.jsonl", entry)
        began = monotonic()
        if began < self._pause_ends and checkpoint.epoch < checkpoint.epochs:
            return
        tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            momentum = optimiser.state[parameter].get("momentum_buffer") if parameter in optimiser.state else None
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        tensors["labels"] = torch.from_numpy(checkpoint.labels)
        state = {name: value for name, value in vars(checkpoint).items() if name != "labels"}
        _save_tensors(self._checkpoint(entry["stage"]), tensors, {"state": json.dumps(state)})
        ended = monotonic()
        self._pause_ends = ended + min(CHECKPOINT_PAUSE * (ended - began), LONGEST_PAUSE)

    @asked_of_first
    def has_stage1(self) -> bool:
        return self._checkpoint(1).exists()

    @asked_of_first
    def check_has_stage1(self) -> None:
        """Raise unless another run could look for a first training here."""
        if not self._config.exists() or not self.has_stage1():
            raise UserError(f"--stage1 {self.path}: there is no run of this version with a first training in it")

    @asked_of_first
    def check_serves(self, settings: Settings, fingerprints: dict[str, str]) -> Settings:
        """The settings of this run, if its first training has ended and can serve a run of ``settings``; else raise."""
        self.check_has_stage1()
        earlier, sections = read_toml(self._config)
        differ = [
            f"{name} {getattr(earlier, name)} there, {getattr(settings, name)} here"
            for name in ("classes", "backbone", "grad_from_block", "image_size")
            if getattr(earlier, name) != getattr(settings, name)
        ]
        for section in ("data", "backbone"):
            if sections.get(section, {}).get("fingerprint") != fingerprints[section]:
                differ.append(f"{FINGERPRINTED[section]} differ")
        if earlier.method == "gcd":
            differ.append("its method is gcd")
        if earlier.method == "sdas" and earlier.stages == 1:
            differ.append("its only training had anchors")
        if differ:
            raise UserError(f"--stage1 {self.path} does not fit: {'; '.join(differ)}")
        state = self._state(1)
        if state["epoch"] < state["epochs"]:
            raise UserError(
                f"--stage1 {self.path}: its first training has done {state['epoch']} of {state['epochs']} epochs. "
                "Let it end, with --resume."
            )
        return earlier

    @done_by_first
    def take_stage1(self, other: RunFolder) -> None:
        """Copy the first training of another run: from then on this one does not need the other."""
        self._forget(1, 0)
        for entry in other.log():
            if entry["stage"] == 1:
                self._append("log.jsonl", entry)
        tensors, metadata = load_tensors(other._checkpoint(1))
        kept = {name: t for name, t in tensors.items() if not name.startswith("momentum.")}
        _save_tensors(self._checkpoint(1), kept, metadata)

    @done_by_first
    def save_anchors(self, entry: dict[str, Any]) -> None:
        """Append a line to anchors.jsonl; ``restore`` drops it again if its epoch does not come to an end."""
        self._append("anchors.jsonl", entry)

    @asked_of_first
    def log(self) -> list[dict[str, Any]]:
        """The epochs so far."""
        return self._lines("log.jsonl")

    @asked_of_first
    def anchors(self) -> list[dict[str, Any]]:
        """The anchors so far."""
        return self._lines("anchors.jsonl")

    @asked_of_first
    def training_seconds(self) -> float:
        """The median epoch of each stage counts, so that a pause or other work on the machine does not."""
        stages = [[line.get("seconds", 0.0) for line in self.log() if line["stage"] == stage] for stage in (1, 2)]
        return float(sum(len(seconds) * statistics.median(seconds) for seconds in stages if seconds))

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return []
        lines = path.read_text("utf-8", errors="replace").split("\n")
        return [_entry(path, number, line) for number, line in enumerate(lines, start=1) if line.endswith("}")]

    def _append(self, name: str, entry: dict[str, Any]) -> None:
        with open(self.path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())  # on disk before the checkpoint that counts on it

    def _forget(self, stage: int, epoch: int) -> None:
        """Drop what was logged of this stage after ``epoch``."""
        for name in ("log.jsonl", "anchors.jsonl"):
            if (self.path / name).exists():
                kept = [line for line in self._lines(name) if line["stage"] != stage or line["epoch"] <= epoch]
                with write_atomically(self.path / name) as file:
                    file.writelines(json.dumps(line) + "\n" for line in kept)

    def _checkpoint(self, stage: int) -> Path:
        return self.path / "checkpoint" / f"stage{stage}.safetensors"

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

    def read_array(self, name: str) -> NDArray[Any]:
        """An array of numbers; a ValueError if it is none. Nothing in the file is run, no size it claims believed."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of headers that only an old Python would write
                found = np.lib.format.open_memmap(self.path / name, mode="r")
        except (SyntaxError, TokenError, OverflowError, TypeError) as error:  # what NumPy raises for an odd header
            raise ValueError(f"its header cannot be read: {error}") from error
        if found.dtype.kind != "f":
            raise ValueError(f"it holds {found.dtype} instead of numbers")
        return np.array(found)

    @done_by_first
    def write_tensors(self, name: str, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
        _save_tensors(self.path / name, tensors, metadata)


def _save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata)
    with write_atomically(path, "wb") as file:
        file.write(content)


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors and the metadata of a file; no code in it is run."""
    metadata = _load_metadata(path)
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 - not a dict


def _load_weights(model: nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        model.load_state_dict({name[len("model.") :]: t for name, t in tensors.items() if name.startswith("model.")})
    except RuntimeError as error:
        raise _damaged(path, "its tensors are not those of this model") from error


def _state_in(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """All of a checkpoint but its labels."""
    try:
        state: dict[str, Any] = json.loads(metadata["state"])
        Checkpoint(labels=np.empty(0, np.int64), **state)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, "it does not say where the training stands") from error
    return state


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    """A line of a log."""
    try:
        entry: dict[str, Any] = json.loads(line)
        seconds = entry.get("seconds", 0.0)  # of an epoch; anchors have none
        if isinstance(entry["stage"], int) and isinstance(entry["epoch"], int) and isinstance(seconds, int | float):
            return entry
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UserError(f"{path}: line {number} is not as a run writes it. Remove that line.")


def _load_metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> UserError:
    what = "Delete it to train from the start." if path.parent.name == "checkpoint" else ANEW
    return UserError(f"{path} is damaged ({why}). {what}")
