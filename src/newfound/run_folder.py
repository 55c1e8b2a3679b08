"""The run folder: every file a run writes, each written whole or not at all.

config.toml         every setting, versions, fingerprint of the data
skipped.csv         files that were not used, and why
log.jsonl           a line per epoch
checkpoint/         the last epoch, to go on from
assignments.csv     class and confidence of every image
classes.csv         name, size, nearest class of every class
embeddings.npy      features, a row per line of assignments.csv, float16, length 1
model.safetensors   tail and classifier; model.json says how to use them
metrics.json        only where a truth was given
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from newfound.atomic import write_atomically
from newfound.config import Settings, from_toml, to_toml
from newfound.errors import UserError


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    # Beginning

    def check_place(self, *, resume: bool) -> None:
        """Raise unless a run can begin here, or go on."""
        if self._config.exists():
            if not resume:
                raise UserError(
                    f"{self.path} holds a run already. Go on with it by --resume, or choose another folder with --out."
                )
        elif self.path.exists() and (not self.path.is_dir() or self._holds_something_else()):
            raise UserError(f"{self.path} is there already and is not a newfound run. Choose another place with --out.")

    @contextmanager
    def begun(self, settings: Settings, sections: dict[str, dict[str, Any]]) -> Iterator[None]:
        """Make the folder if need be, and keep other runs out of it."""
        try:
            (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
            held = FileLock(self.path / "checkpoint" / "lock").acquire(timeout=0)
        except OSError as error:  # Timeout is one, too
            why = "another run is at work in it" if isinstance(error, Timeout) else str(error.strerror)
            raise UserError(f"the run folder {self.path} cannot be used: {why}") from error
        with held:
            if not self._config.exists():
                with write_atomically(self._config) as file:
                    file.write(to_toml(settings, **sections))
            yield

    def _holds_something_else(self) -> bool:
        """Anything but what a run killed before its first file leaves behind."""
        return any(item.name not in ("checkpoint", "config.toml.tmp") for item in self.path.iterdir())

    def check_same_run(self, settings: Settings, data: str, backbone: str) -> None:
        """Raise if a run is here that was begun with other settings, data or backbone (both by fingerprint)."""
        if not self._config.exists():
            return
        earlier, sections = from_toml(self._config.read_text("utf-8"), self._config)
        changed = [
            f"{name} was {value}, is {getattr(settings, name)}"
            for name, value in vars(earlier).items()
            if value != getattr(settings, name) and name not in ("weights", "bank_dir")  # places: their content counts
        ]
        if changed:
            raise UserError(
                f"{self.path} was begun with other settings: {'; '.join(changed)}. Use those, or another --out."
            )
        for what, section, found in (("images or labels", "data", data), ("backbone's weights", "backbone", backbone)):
            if sections.get(section, {}).get("fingerprint") != found:
                raise UserError(
                    f"the {what} have changed since {self.path} was begun. Start a new run with another --out; "
                    "the bank keeps what has not changed."
                )

    @property
    def _config(self) -> Path:
        return self.path / "config.toml"

    # Training

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> int:
        """Load the last checkpoint, if there is one; the number of epochs that are done."""
        path = self._checkpoint
        if not path.exists():
            self._keep_log(0)
            return 0
        try:
            with safe_open(path, framework="pt") as file:
                epoch = int(file.metadata()["epoch"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except SafetensorError as error:
            raise UserError(
                f"the checkpoint {path} is damaged ({error}). Delete it to train from the start."
            ) from error
        model.load_state_dict({name[len("model.") :]: t for name, t in tensors.items() if name.startswith("model.")})
        for name, parameter in model.named_parameters():
            if f"momentum.{name}" in tensors:
                momentum = tensors[f"momentum.{name}"].to(parameter.device)
                optimiser.state[parameter]["momentum_buffer"] = momentum
        self._keep_log(epoch)
        return epoch

    def save_epoch(self, model: nn.Module, optimiser: torch.optim.Optimizer, entry: dict[str, Any]) -> None:
        """The log line first: if we are killed between the two, ``restore`` drops it again."""
        with open(self._log, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            momentum = optimiser.state[parameter].get("momentum_buffer") if parameter in optimiser.state else None
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        _save_tensors(self._checkpoint, tensors, {"epoch": str(entry["epoch"])})

    def log(self) -> list[dict[str, Any]]:
        """The epochs so far."""
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text("utf-8").splitlines() if line.endswith("}")]

    def _keep_log(self, epochs: int) -> None:
        kept = [entry for entry in self.log() if entry["epoch"] <= epochs]
        with write_atomically(self._log) as file:
            file.writelines(json.dumps(entry) + "\n" for entry in kept)

    @property
    def _log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint" / "last.safetensors"

    # Results

    def write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        with write_atomically(self.path / name) as file:
            writer = csv.writer(file)  # lines end in CR LF, as RFC 4180 has it: then both are quoted inside a name
            writer.writerow(header)
            writer.writerows(rows)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        with write_atomically(self.path / name) as file:
            json.dump(content, file, indent=2)
            file.write("\n")

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        with write_atomically(self.path / name, "wb") as file:
            np.save(file, array)

    def write_model(self, tensors: dict[str, torch.Tensor], description: dict[str, Any]) -> None:
        _save_tensors(self.path / "model.safetensors", tensors, {"format": "newfound model"})
        self.write_json("model.json", description)


def _save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata)
    with write_atomically(path, "wb") as file:
        file.write(content)
