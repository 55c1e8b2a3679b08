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
    """Review a finished run in the browser: rename, merge and split classes; move, accept and reject images; undo.

    The page is served to this machine only. Each decision is in RUN/decisions.json before the page reports it as saved.
    newfound discover FOLDER --continue RUN starts another round, with the decisions as labels.
    """

    examples = {"in your browser": "newfound review newfound-photos"}  # noqa: RUF012 - a mapping nobody changes

    run_folder: RunPath
    """The run folder."""
    port: Annotated[int, NUMBER] = 0
    """Port to serve the page on; 0: any free port."""
    browser: bool = True
    """Open the page in the browser."""

    def run(self, screen: Screen) -> None:
        import webbrowser

        from newfound.review import review

        review(self.run_folder, port=self.port, open_browser=webbrowser.open if self.browser else None, screen=screen)
