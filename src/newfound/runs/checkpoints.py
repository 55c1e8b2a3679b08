"""Checkpoints: each training of a run as it was a few epochs or seconds ago, to resume from."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from newfound.runs.tensor_files import damaged, load_metadata, load_tensors, save_tensors
from newfound.training.task import Checkpoint

PAUSE = 4.0  # no other checkpoint for this many times as long as the last one took to write,
LONGEST_PAUSE = 30.0  # seconds at most
LEARNER, OPTIMISER = "model.", "optimiser."  # prefixes of tensor names


class Checkpoints:
    """The files of a run, one per stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pause_ends = 0.0  # by the monotonic clock

    def path(self, stage: int) -> Path:
        return self._folder / f"stage{stage}.safetensors"

    def exists(self, stage: int) -> bool:
        return self.path(stage).exists()

    def last_stage(self) -> int:
        """The number of the last training that has one; 0 without any."""
        stages = (int(path.stem[len("stage") :]) for path in self._folder.glob("stage*.safetensors"))
        return max(stages, default=0)

    def save(self, stage: int, learner: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
        """Replace the stage's checkpoint, unless the last one is too fresh: short epochs share one, so that small
        folders do not wait for the disk. The end of a training is always saved."""
        began = monotonic()
        if began < self._pause_ends and checkpoint.epoch < checkpoint.epochs:
            return
        tensors = {LEARNER + name: t for name, t in learner.state_dict().items()}
        for name, parameter in learner.named_parameters():
            for key, value in optimiser.state.get(parameter, {}).items():
                if isinstance(value, Tensor):  # momentum is None before the first step
                    tensors[f"{OPTIMISER}{key}.{name}"] = value
        tensors["labels"] = torch.from_numpy(checkpoint.labels)
        state = {name: value for name, value in vars(checkpoint).items() if name != "labels"}
        save_tensors(self.path(stage), tensors, {"state": json.dumps(state)})
        ended = monotonic()
        self._pause_ends = ended + min(PAUSE * (ended - began), LONGEST_PAUSE)

    def load(self, stage: int) -> tuple[Checkpoint, dict[str, Tensor]]:
        """Where the stage stands, and its tensors."""
        path = self.path(stage)
        tensors, metadata = load_tensors(path)
        if "labels" not in tensors:
            raise damaged(path, "it has no labels")
        return Checkpoint(labels=tensors["labels"].numpy(), **_state(path, metadata)), tensors

    def state(self, stage: int) -> dict[str, Any]:
        """The same without the tensors."""
        return _state(self.path(stage), load_metadata(self.path(stage)))

    def load_learner(self, stage: int, learner: nn.Module, tensors: dict[str, Tensor]) -> None:
        """Give a learner the state it had."""
        weights = {name[len(LEARNER) :]: t for name, t in tensors.items() if name.startswith(LEARNER)}
        try:
            learner.load_state_dict(weights)
        except RuntimeError as error:
            raise damaged(self.path(stage), "its tensors are not those of this model") from error

    def take(self, stage: int, other: Checkpoints) -> None:
        """Copy a finished training of another run."""
        tensors, metadata = load_tensors(other.path(stage))
        kept = {name: t for name, t in tensors.items() if name.startswith(LEARNER) or name == "labels"}
        save_tensors(self.path(stage), kept, metadata)


def load_optimiser(learner: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimiser the state it had."""
    for name, parameter in learner.named_parameters():
        suffix = f".{name}"
        for key, tensor in tensors.items():
            if key.startswith(OPTIMISER) and key.endswith(suffix) and "." not in key[len(OPTIMISER) : -len(suffix)]:
                optimiser.state[parameter][key[len(OPTIMISER) : -len(suffix)]] = tensor.to(parameter.device)


def _state(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """All of a checkpoint but its labels."""
    try:
        state: dict[str, Any] = json.loads(metadata["state"])
        Checkpoint(labels=np.empty(0, np.int64), **state)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged(path, "it does not say where the training stands") from error
    return state
