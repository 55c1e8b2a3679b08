"""newfound export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from newfound.app.command import Command
from newfound.app.options import FILE, FOLDER, RunPath, paragraphs
from newfound.errors import UserError
from newfound.screen import Screen


@paragraphs
@dataclass(frozen=True)
class Export(Command):
    """Write the results of a run, or its model, for other programs. Decisions made in a review are applied."""

    run_folder: RunPath
    """The run folder."""
    onnx: Annotated[Path | None, FILE] = None
    """The model, from pixels to probabilities, for onnxruntime; compared with ours before it is written."""
    csv: Annotated[Path | None, FILE] = None
    """A table of the final labels: for each image the label, who decided it (given, person or model) and in which
    round, and the model's confidence."""
    xlsx: Annotated[Path | None, FILE] = None
    """The same table as an Excel workbook."""
    folders: Annotated[Path | None, FOLDER] = None
    """A folder per class with copies of the images. The originals stay where they are."""
    link: bool = False
    """With --folders: links instead of copies."""
    parquet: Annotated[Path | None, FILE] = None
    """One table with everything in it, embeddings too."""
    label_studio: Annotated[Path | None, FILE] = None
    """Tasks for Label Studio, as JSON with scores; its labelling setup is written beside it."""
    weights: Annotated[Path | None, FILE] = None
    """With --onnx: a local file with the backbone's weights, if the run had one."""

    def run(self, screen: Screen) -> None:
        from newfound.export import (
            export_csv,
            export_folders,
            export_label_studio,
            export_onnx,
            export_parquet,
            export_xlsx,
        )

        if not any((self.csv, self.xlsx, self.onnx, self.folders, self.parquet, self.label_studio)):
            raise UserError(
                "say what to export: --csv FILE, --xlsx FILE, --folders FOLDER, --parquet FILE, --onnx FILE or "
                "--label-studio FILE"
            )
        if self.link and not self.folders:
            raise UserError("--link goes with --folders")
        if self.csv:
            export_csv(self.run_folder, self.csv, screen=screen)
        if self.xlsx:
            export_xlsx(self.run_folder, self.xlsx, screen=screen)
        if self.onnx:
            export_onnx(self.run_folder, self.onnx, weights=self.weights, screen=screen)
        if self.folders:
            export_folders(self.run_folder, self.folders, link=self.link, screen=screen)
        if self.parquet:
            export_parquet(self.run_folder, self.parquet, screen=screen)
        if self.label_studio:
            export_label_studio(self.run_folder, self.label_studio, screen=screen)
