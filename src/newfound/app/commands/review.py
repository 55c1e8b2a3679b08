"""newfound review."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from newfound.app.command import Command
from newfound.app.options import NUMBER, RunPath, paragraphs
from newfound.screen import Screen


@paragraphs
@dataclass(frozen=True)
class Review(Command):
    """Look through a finished run in the browser and decide: rename, merge, split, move, accept, reject, undo.

    The page is served to this machine alone. Every decision is in RUN/decisions.json before the page says it is saved;
    newfound discover FOLDER --continue RUN takes the decisions as labels for another round.
    """

    examples = {"in your browser": "newfound review newfound-photos"}  # noqa: RUF012 - a mapping nobody changes

    run_folder: RunPath
    """The run folder."""
    port: Annotated[int, NUMBER] = 0
    """Port of the page's address; 0: any that is free."""
    browser: bool = True
    """Open the page in the browser."""

    def run(self, screen: Screen) -> None:
        import webbrowser

        from newfound.review import review

        review(self.run_folder, port=self.port, open_browser=webbrowser.open if self.browser else None, screen=screen)
