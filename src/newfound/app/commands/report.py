"""newfound report."""

from __future__ import annotations

from dataclasses import dataclass

from newfound.app.command import Command
from newfound.app.options import RunPath, paragraphs
from newfound.screen import Screen


@paragraphs
@dataclass(frozen=True)
class Report(Command):
    """Write report.html of a finished run again, with the decisions of a review if there are any."""

    run_folder: RunPath
    """The run folder."""

    def run(self, screen: Screen) -> None:
        from newfound.report import write_report_again
        from newfound.runs.results import read_results

        screen.say(f"written: {write_report_again(read_results(self.run_folder), screen)}")
