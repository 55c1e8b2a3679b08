"""A first training that is taken from another run, instead of being trained again."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from newfound.distributed import asked_of_first
from newfound.errors import UserError, option
from newfound.methods import load, method_of
from newfound.runs.config import Config, read_config
from newfound.runs.folder import FINGERPRINTED, RunFolder
from newfound.runs.places import resuming_words
from newfound.settings import DataFacts, Settings

SAME = ("classes", "backbone", "grad_from_block", "image_size", "whitening")
NOT_OF_IT = ("method", "preset", "weights", "bank_dir", "device", "compile")


@asked_of_first
def classes_there(place: Path, settings: Settings) -> int | None:
    """How many classes the run was begun with that ``settings`` name."""
    return _config(RunFolder(place), settings).settings.classes


@asked_of_first
def check_serves(
    earlier: RunFolder, settings: Settings, facts: DataFacts, fingerprints: dict[str, str]
) -> dict[str, Any]:
    """How it was trained otherwise than ``settings`` would; raises if it has not ended or cannot serve."""
    config = _config(earlier, settings)
    if differ := _differences(config, settings, facts, fingerprints):
        raise UserError(f"{_named(earlier, settings)} does not fit: {'; '.join(differ)}")
    state = earlier.journal.checkpoints.state(1)
    if state["epoch"] < state["epochs"]:
        raise UserError(
            f"{_named(earlier, settings)}: its first training has done {state['epoch']} of {state['epochs']} "
            f"epochs. Finish it: {resuming_words(earlier.path)}"
        )
    return _trained_otherwise(config.settings, settings)


def _named(earlier: RunFolder, settings: Settings) -> str:
    """The run, as the settings name it."""
    return option(str(method_of(settings).NEEDS.first_training_from), earlier.path)


def _config(earlier: RunFolder, settings: Settings) -> Config:
    if not earlier.has_config() or not earlier.journal.has_first_training():
        raise UserError(
            f"{_named(earlier, settings)}: there is no run of this version with a first training in it"
            f"{_of_seeds(earlier.path)}"
        )
    return read_config(earlier.path / "config.toml")


def _of_seeds(run: Path) -> str:
    """A hint for whoever names a run with several seeds."""
    first = next(iter(sorted(run.glob("seeds/*/checkpoint/stage1.safetensors"))), None)
    return "" if first is None else f". Its seeds have one each: {first.parent.parent}"


def _differences(config: Config, settings: Settings, facts: DataFacts, fingerprints: dict[str, str]) -> list[str]:
    theirs = config.settings
    differ = [
        f"{name} {getattr(theirs, name)} there, {getattr(settings, name)} here"
        for name in SAME
        if getattr(theirs, name) != getattr(settings, name)
    ]
    for section in ("data", "backbone"):
        if config.sections.get(section, {}).get("fingerprint") != fingerprints[section]:
            differ.append(f"{FINGERPRINTED[section]} differ")
    method, ours = method_of(theirs), method_of(settings)
    needed = ours.NEEDS.first_training
    fewer = method.trainings(theirs.method, facts) < ours.trainings(settings.method, facts)
    if needed != method.NAME and (method.NEEDS.first_training != needed or fewer):
        differ.append(f"its first training is not one of {needed}: its method is {method.NAME}")
    if config.earlier_version:
        differ.append("it was made by an earlier version of newfound")
    return differ


def _trained_otherwise(theirs: Settings, settings: Settings) -> dict[str, Any]:
    """Shared settings, and those of the first training's method, where they differ."""
    first = load(str(method_of(settings).NEEDS.first_training))
    compared = [(theirs, settings, Settings), (theirs.method, settings.method, first.Settings)]
    return {
        field.name: getattr(there, field.name)
        for there, here, kind in compared
        for field in fields(kind)
        if field.name not in NOT_OF_IT
        and hasattr(there, field.name)
        and hasattr(here, field.name)
        and getattr(there, field.name) != getattr(here, field.name)
    }
