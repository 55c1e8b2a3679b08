"""newfound resume."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from newfound.app.command import Command
from newfound.app.commands.discover import how_to_resume, show_discovery
from newfound.app.options import RunPath, paragraphs
from newfound.screen import Screen


@paragraphs
@dataclass(frozen=True)
class Resume(Command):
    """Resume a run of newfound discover that was stopped, from its last checkpoint.

    RUN/config.toml has the places of images and labels and all settings, so nothing else is needed. The result is
    byte-identical to that of an uninterrupted run. A finished run is not trained again; its results are written again.
    """

    examples = {"after Ctrl-C or a crash": "newfound resume newfound-photos"}  # noqa: RUF012 - a mapping nobody changes

    run_folder: RunPath
    """The run folder."""
    device: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: as before)")] = None
    """Where to compute from now on: cpu, cuda, cuda:1, mps, or auto, which takes a GPU if there is one."""

    @property
    def torchrun_device(self) -> str:
        from newfound.runs.resuming import how_started

        return self.device or how_started(self.run_folder).settings.device

    def after_stop(self) -> str:
        return how_to_resume(self.run_folder)

    def run(self, screen: Screen) -> None:
        from newfound.discovery import discover
        from newfound.distributed import from_first
        from newfound.runs.resuming import how_started

        was = from_first(lambda: how_started(self.run_folder))
        found = discover(
            was.folder, replace(was.settings, device=self.device or was.settings.device), labels=was.labels,
            after=was.after, truth=was.truth, out=self.run_folder, resume=True, repeat=was.repeat, report=was.report,
            screen=screen,
        )  # fmt: skip
        from_first(lambda: show_discovery(found, screen))
