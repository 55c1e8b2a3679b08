"""newfound count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from newfound.app.command import Command
from newfound.app.known_classes import asked_about
from newfound.app.options import FILE, FOLDER, NAME, NAMES, NUMBER, paragraphs
from newfound.app.tables import show_count, warn_of_skipped
from newfound.screen import Screen
from newfound.settings import Settings


@paragraphs
@dataclass(frozen=True)
class Count(Command):
    """Estimate how many classes a folder of images has, known and new, without training.

    FOLDER is laid out as for newfound discover, which makes the same estimate if --classes is not given, and reuses
    the bank. With --by hdbscan, the number is that of the dense groups that newfound discover --method hdbscan finds.
    """

    examples = {  # noqa: RUF012 - a mapping nobody changes
        "a curve, and the number": "newfound count photos",
        "a second opinion": "newfound count photos --by hdbscan",
    }

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The folder with the images."""
    labels: Annotated[Path | None, FILE] = None
    """Labels of the images: a CSV with the columns file,label, or Hugging Face metadata, as for newfound discover."""
    unlabelled: Annotated[tuple[str, ...], NAMES] = ()
    """Folders in FOLDER that hold images to sort, in addition to one called unlabelled."""
    known: Annotated[tuple[str, ...], NAMES] = ()
    """Folders in FOLDER that are known classes although their names, such as other or misc, suggest otherwise."""
    by: Literal["kmeans", "hdbscan"] = "kmeans"
    """How to count. kmeans: the number of clusters that serves the labelled images best, with a plausible range.
    hdbscan: the dense groups there are."""
    backbone: Annotated[str, NAME] = Settings.backbone
    """The network that turns images into features; newfound discover --help lists the choices."""
    weights: Annotated[Path | None, FILE] = None
    """A local file with the backbone's weights."""
    image_size: Annotated[int, NUMBER] = Settings.image_size
    """Side of the square the backbone sees, in pixels."""
    bank_dir: Annotated[Path | None, FOLDER] = None
    """Where banks are kept. Default: newfound/banks in your cache folder."""
    device: Annotated[str, NAME] = Settings.device
    """Where to compute: cpu, cuda, cuda:1, mps; auto takes a GPU if there is one."""

    def after_stop(self) -> str:
        return "Run the same command again to continue."

    def run(self, screen: Screen) -> None:
        from newfound import fitting
        from newfound.images.class_folders import folder_meaning
        from newfound.images.scan import check_folder
        from newfound.runs.inputs import check_settings, read_table
        from newfound.sources.bank import default_bank_folder
        from newfound.training.opened_images import OpenedImages

        settings = Settings(
            method=self.by, backbone=self.backbone, weights=self.weights, image_size=self.image_size,
            bank_dir=self.bank_dir, device=self.device,
        )  # fmt: skip
        check_folder(self.folder)
        check_settings(settings)
        folders = folder_meaning(self.folder, self.unlabelled, self.known, self.labels)
        if self.labels is None:
            folders = asked_about(self.folder, folders, screen)
        table = read_table(self.folder, self.labels, [self.bank_dir or default_bank_folder()], screen, folders)
        warn_of_skipped(table.skipped, "newfound discover lists them in skipped.csv", screen)
        opened = OpenedImages(table, settings, screen)
        labels = table.seen_classes()[0]
        if self.by == "kmeans":
            show_count(fitting.count(opened.pretrained, labels, screen), screen)
        else:
            screen.say(f"{fitting.dense_count(opened.pretrained, labels)}.")
