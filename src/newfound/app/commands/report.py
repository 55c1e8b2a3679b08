"""newfound report."""

from __future__ import annotations

from dataclasses import dataclass

from newfound.app.command import Command
from newfound.app.options import RunPath, paragraphs
from newfound.errors import UserError
from newfound.screen import Screen


@paragraphs
@dataclass(frozen=True)
class Report(Command):
    """Write report.html of a finished run again, with the decisions of its review, if any."""

    run_folder: RunPath
    """The run folder."""
    overwrite: bool = True
    """Replace an existing report.html."""

    def run(self, screen: Screen) -> None:
        from newfound.report import NAME, write_report_again
        from newfound.runs.results import read_results

        results = read_results(self.run_folder)
        if not self.overwrite and (page := self.run_folder / NAME).exists():
            raise UserError(f"{page} already exists. Leave out --no-overwrite to replace it.")
        screen.say(f"written: {write_report_again(results, screen)}")
