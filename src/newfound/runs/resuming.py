"""How a run was started, as its config.toml has it: all that is needed to resume it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from newfound.errors import UserError, option
from newfound.runs.config import read_config
from newfound.runs.places import CONFIG, is_begun, no_run, typed
from newfound.settings import Settings
from newfound.settings.value_types import fits

SECTION = "discover"  # of config.toml


@dataclass(frozen=True)
class Started:
    """The options of newfound discover."""

    folder: Path
    settings: Settings
    labels: Path | None
    after: Path | None
    truth: Path | None
    repeat: int
    report: bool


def command_table(*, truth: Path | None, repeat: int, report: bool) -> dict[str, Any]:
    """For config.toml: its options beside the images, their labels and the settings."""
    return {**({} if truth is None else {"truth": str(truth.resolve())}), "repeat": repeat, "report": report}


def how_started(run: Path) -> Started:
    """Read it back; raises where there is no run, or one that does not say."""
    _check_is_whole_run(run)
    config = read_config(run / CONFIG)
    if config.earlier_version:
        raise UserError(of_earlier_version(run))
    if SECTION not in config.sections:
        raise UserError(
            f"{run / CONFIG} does not say how the run was started: it is from an earlier version of newfound, or from "
            "newfound bench or study. Use the command that started it once more (newfound discover: with "
            f"--out {run} --resume)."
        )
    table = {**config.sections.get("data", {}), **config.sections[SECTION]}
    if odd := [name for name, kind in KINDS.items() if not fits(table.get(name), kind)]:
        raise UserError(f"{run / CONFIG} is malformed: it has {odd[0]} = {table.get(odd[0])!r}")
    return Started(
        folder=Path(table["folder"]),
        settings=config.settings,
        labels=_path(table.get("labels")),
        after=_path(table.get("continues")),
        truth=_path(table.get("truth")),
        repeat=table["repeat"],
        report=table["report"],
    )


KINDS: dict[str, Any] = {
    "folder": str, "labels": str | None, "continues": str | None, "truth": str | None, "repeat": int, "report": bool,
}  # fmt: skip


def of_earlier_version(run: Path) -> str:
    """The message for a run whose checkpoints this version cannot read."""
    return (
        f"{run} was begun by an earlier version of newfound: its results can be used, but it cannot be resumed. "
        f"Start a new run with another {option('out')}."
    )


def _check_is_whole_run(run: Path) -> None:
    if not is_begun(run):
        raise no_run(run, "Start one: newfound discover FOLDER.")
    whole = run.resolve().parent.parent
    if run.resolve().parent.name == "seeds" and is_begun(whole):
        raise UserError(f"{run} is the run of one seed of {whole}. Resume all of it: {typed('resume', whole)}")


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
