"""newfound predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from newfound.app.command import Command
from newfound.app.options import FILE, NAME, NUMBER, RunPath, paragraphs
from newfound.app.tables import show_labelled, warn_of_skipped
from newfound.errors import UserError
from newfound.screen import Screen
from newfound.settings import Settings


@paragraphs
@dataclass(frozen=True)
class Predict(Command):
    """Label other images with the model of a finished run.

    Each image gets a known class, a discovered one, or "none of these" if it is unlike everything the run has seen.
    RUN needs only model.json and model.safetensors, and decisions.json for names given in a review.
    """

    examples = {  # noqa: RUF012 - a mapping nobody changes
        "a folder": "newfound predict newfound-photos new-photos",
        "some files, to a table of their own": "newfound predict newfound-photos new/*.jpg --out new.csv",
    }

    run_folder: RunPath
    """The run folder."""
    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES", help_behavior_hint="(required)")
    ]
    """Image files, folders, or patterns such as 'new/*.jpg'."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("predictions.csv")
    """The table to write, with the columns of assignments.csv and likeness."""
    refused: Annotated[float, NUMBER] = 0.01
    """Share of images like the labelled ones that may mistakenly be called "none of these"; 0: every image gets a
    class."""
    weights: Annotated[Path | None, FILE] = None
    """A local file with the backbone's weights, if the run used one."""
    overwrite: bool = False
    """Replace --out if newfound predict wrote it. Any other file is left alone."""
    device: Annotated[str, NAME] = Settings.device
    """Where to compute: cpu, cuda, cuda:1, mps; auto takes a GPU if there is one."""

    def run(self, screen: Screen) -> None:
        from newfound.export.replacing import is_predictions, is_skipped, replaced
        from newfound.runs.labelling import skipped_beside

        if not self.images:
            raise UserError("name at least one image file, folder or pattern")
        earlier = {self.out: is_predictions, skipped_beside(self.out): is_skipped} if self.overwrite else {}
        with replaced(earlier):
            self._predict(screen)

    def _predict(self, screen: Screen) -> None:
        from newfound.export.outputs import check_free
        from newfound.runs.labelling import predict, skipped_beside

        check_free(self.out, skipped_beside(self.out))
        labelled = predict(
            self.run_folder, self.images, refused=self.refused, weights=self.weights, device=self.device, screen=screen
        )
        labelled.write_csv(self.out)
        if labelled.oracle:
            screen.warn("ORACLE: the truth was used in training this model, for analysis")
        if labelled.reading:
            screen.say(labelled.reading)
        show_labelled(labelled, screen)
        warn_of_skipped(labelled.skipped, f"see {skipped_beside(self.out)}", screen)
        screen.say(f"written to {self.out}")
