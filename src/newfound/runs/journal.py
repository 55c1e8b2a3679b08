"""What trainings leave behind: logs and checkpoints of a run on disk, or lists in memory.

Where several processes train together, the first one reads and writes; the others are told what it read.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from newfound.atomic import write_atomically
from newfound.distributed import asked_of_first, done_by_first
from newfound.errors import UserError
from newfound.runs.checkpoints import Checkpoints, load_optimiser
from newfound.runs.tensor_files import load_tensors, save_tensors
from newfound.training.task import Checkpoint

EPOCHS, PSEUDO_LABELS = "log.jsonl", "anchors.jsonl"


class RunJournal:
    """Of a run folder: log.jsonl, anchors.jsonl, checkpoint/."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.checkpoints = Checkpoints(path / "checkpoint")

    def restore(self, stage: int, learner: nn.Module, optimiser: torch.optim.Optimizer) -> Checkpoint | None:
        """Load the stage's last checkpoint, if there is one, and forget what was logged after it."""
        found = self._last_checkpoint(stage)
        if found is None:
            return None
        checkpoint, tensors = found
        self.checkpoints.load_learner(stage, learner, tensors)
        load_optimiser(learner, optimiser, tensors)
        return checkpoint

    @asked_of_first
    def _last_checkpoint(self, stage: int) -> tuple[Checkpoint, dict[str, Tensor]] | None:
        if not self.checkpoints.exists(stage):
            self._forget(stage, 0)
            return None
        checkpoint, tensors = self.checkpoints.load(stage)
        self._forget(stage, checkpoint.epoch)
        return checkpoint, tensors

    @done_by_first
    def save_epoch(
        self, learner: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint, entry: dict[str, Any]
    ) -> None:
        """Append ``entry`` to the log, then replace the checkpoint: killed in between, ``restore`` drops the line."""
        self._append(EPOCHS, entry)
        self.checkpoints.save(entry["stage"], learner, optimiser, checkpoint)

    @done_by_first
    def save_pseudo_labels(self, entry: dict[str, Any]) -> None:
        """Append a line to anchors.jsonl; ``restore`` drops it again if its epoch does not come to an end."""
        self._append(PSEUDO_LABELS, entry)

    @asked_of_first
    def epochs_done(self, stage: int) -> int:
        """How far the stage has come."""
        return int(self.checkpoints.state(stage)["epoch"]) if self.checkpoints.exists(stage) else 0

    @asked_of_first
    def kept(self, name: str) -> dict[str, Tensor] | None:
        """Tensors that were made once for the whole run, if they have been."""
        path = self._kept(name)
        return load_tensors(path)[0] if path.exists() else None

    @done_by_first
    def keep(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Make it so."""
        save_tensors(self._kept(name), tensors, {})

    def _kept(self, name: str) -> Path:
        return self._path / "checkpoint" / f"kept-{name}.safetensors"

    @asked_of_first
    def has_first_training(self) -> bool:
        return self.checkpoints.exists(1)

    @done_by_first
    def take_first_training(self, other: RunJournal) -> None:
        """Copy it from another run: from then on this one does not need the other."""
        self._forget(1, 0)
        for entry in other.log():
            if entry["stage"] == 1:
                self._append(EPOCHS, entry)
        self.checkpoints.take(1, other.checkpoints)

    @asked_of_first
    def log(self) -> list[dict[str, Any]]:
        """The epochs so far."""
        return self._lines(EPOCHS)

    @asked_of_first
    def pseudo_labels(self) -> list[dict[str, Any]]:
        """The lines about them so far."""
        return self._lines(PSEUDO_LABELS)

    @asked_of_first
    def training_seconds(self) -> float:
        """The median epoch of each stage counts, so that a pause or other work on the machine does not."""
        seconds: dict[int, list[float]] = {}
        for line in self.log():
            seconds.setdefault(line["stage"], []).append(line.get("seconds", 0.0))
        return float(sum(len(stage) * statistics.median(stage) for stage in seconds.values()))

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self._path / name
        if not path.exists():
            return []
        lines = path.read_text("utf-8", errors="replace").split("\n")
        return [_entry(path, number, line) for number, line in enumerate(lines, start=1) if line.endswith("}")]

    def _append(self, name: str, entry: dict[str, Any]) -> None:
        with open(self._path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())  # on disk before the checkpoint that counts on it

    def _forget(self, stage: int, epoch: int) -> None:
        """Drop what was logged of this stage after ``epoch``."""
        for name in (EPOCHS, PSEUDO_LABELS):
            if (self._path / name).exists():
                kept = [line for line in self._lines(name) if line["stage"] != stage or line["epoch"] <= epoch]
                with write_atomically(self._path / name) as file:
                    file.writelines(json.dumps(line) + "\n" for line in kept)


class MemoryJournal:
    """Leaves nothing behind: the log is a list, and there is nothing to resume from."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.pseudo_label_entries: list[dict[str, Any]] = []
        self._kept: dict[str, dict[str, Tensor]] = {}

    def restore(self, stage: int, learner: nn.Module, optimiser: torch.optim.Optimizer) -> Checkpoint | None:
        return None

    def save_epoch(
        self, learner: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint, entry: dict[str, Any]
    ) -> None:
        self.entries.append(entry)

    def save_pseudo_labels(self, entry: dict[str, Any]) -> None:
        self.pseudo_label_entries.append(entry)

    def epochs_done(self, stage: int) -> int:
        return 0

    def kept(self, name: str) -> dict[str, Tensor] | None:
        return self._kept.get(name)

    def keep(self, name: str, tensors: dict[str, Tensor]) -> None:
        self._kept[name] = tensors


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    """A line of a log."""
    try:
        entry: dict[str, Any] = json.loads(line)
        seconds = entry.get("seconds", 0.0)  # of an epoch; pseudo-labels have none
        if isinstance(entry["stage"], int) and isinstance(entry["epoch"], int) and isinstance(seconds, int | float):
            return entry
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UserError(f"{path}: line {number} is malformed. Remove that line.")
