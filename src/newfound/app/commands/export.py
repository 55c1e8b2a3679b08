"""newfound export."""

from __future__ import annotations

from collections.abc import Callable
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
    """Export the results of a run, or its model, to other programs. Decisions made in a review are applied."""

    examples = {  # noqa: RUF012 - a mapping nobody changes
        "a table of the final labels": "newfound export newfound-photos --csv labels.csv",
        "a folder per class": "newfound export newfound-photos --folders sorted",
        "the model, for another program": "newfound export newfound-photos --onnx model.onnx",
    }

    run_folder: RunPath
    """The run folder."""
    onnx: Annotated[Path | None, FILE] = None
    """The model, from pixels to probabilities, for onnxruntime; its output is compared with newfound's before it is
    written."""
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
    """One table with everything, embeddings included."""
    label_studio: Annotated[Path | None, FILE] = None
    """Tasks for Label Studio, as JSON with scores; the labelling configuration is written next to it."""
    weights: Annotated[Path | None, FILE] = None
    """With --onnx: a local file with the backbone's weights, if the run used one."""

    overwrite: bool = False
    """Replace an earlier export in the same place. Anything else there is left alone."""

    def run(self, screen: Screen) -> None:
        from newfound.export.replacing import replaced

        self._check()
        with replaced(self._earlier() if self.overwrite else {}):
            self._export(screen)

    def _earlier(self) -> dict[Path, Callable[[Path], str]]:
        """Where earlier exports may be, and how they are recognised."""
        from newfound.export import replacing
        from newfound.export.label_studio import config_beside

        setup = None if self.label_studio is None else config_beside(self.label_studio)
        places = {
            self.csv: replacing.is_label_table,
            self.xlsx: replacing.is_workbook,
            self.onnx: replacing.is_onnx,
            self.folders: replacing.is_class_folders,
            self.parquet: replacing.is_parquet,
            self.label_studio: replacing.is_tasks,
            setup: replacing.is_labelling_setup,
        }
        return {path: check for path, check in places.items() if path is not None}

    def _check(self) -> None:
        if not any((self.csv, self.xlsx, self.onnx, self.folders, self.parquet, self.label_studio)):
            raise UserError(
                "choose what to export: --csv FILE, --xlsx FILE, --folders FOLDER, --parquet FILE, --onnx FILE or "
                "--label-studio FILE"
            )
        if self.link and not self.folders:
            raise UserError("--link needs --folders")

    def _export(self, screen: Screen) -> None:
        from newfound import export

        if self.csv:
            export.export_csv(self.run_folder, self.csv, screen=screen)
        if self.xlsx:
            export.export_xlsx(self.run_folder, self.xlsx, screen=screen)
        if self.onnx:
            export.export_onnx(self.run_folder, self.onnx, weights=self.weights, screen=screen)
        if self.folders:
            export.export_folders(self.run_folder, self.folders, link=self.link, screen=screen)
        if self.parquet:
            export.export_parquet(self.run_folder, self.parquet, screen=screen)
        if self.label_studio:
            export.export_label_studio(self.run_folder, self.label_studio, screen=screen)
