"""newfound bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from newfound.app.command_with_settings import WithSettings
from newfound.app.options import FILE, FOLDER, NUMBER_OF_SEEDS, SEEDS, paragraphs, seeds_of
from newfound.app.tables import show_report
from newfound.screen import Screen

Dataset = Literal["cifar10", "cifar100", "imagenet100", "cub", "cars", "aircraft", "herbarium", "flowers", "folder"]

TEXTS = {  # of newfound study, too
    "classes": "Total number of classes, known and new. auto: the true number; hdbscan finds its own.",
    "preset": "The method's values for a kind of data, or the published ones for a data set. Default: those of "
    "DATASET, or for flowers and folder as in newfound discover.",
    "seed": "For a single run, and refused here: use --repeat or --seeds.",
}


@paragraphs
@dataclass(frozen=True)
class Bench(WithSettings):
    """Run the published protocol on a data set of the literature: its split, its preset, several seeds, one report.

    Images and lists are read as their owners distribute them, and refused if the resulting split is not the published
    one. Nothing is downloaded except the weights of a backbone. A second call does only what is left to do.
    """

    defaults = {"backbone": "dino_vitb16"}  # noqa: RUF012 - a mapping nobody changes
    texts = TEXTS

    dataset: Annotated[Dataset, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """The data set: cifar10, cifar100, imagenet100, cub, cars, aircraft or herbarium; flowers, which has no published
    split (its first 51 classes are known); folder: any folder of class folders, with --lists naming the known and new
    classes."""
    root: Annotated[Path, tyro.conf.arg(metavar="PATH")]
    """Where the data set is: the folder as unpacked, or a zip archive of class folders."""
    lists: Annotated[Path | None, FILE] = None
    """Lists of the data set. cub: the folder of its official lists, if they are not next to the images. folder: a JSON
    file {"known": [...], "new": [...]} of class names."""
    repeat: Annotated[int | None, NUMBER_OF_SEEDS] = None
    """How many seeds to run: 0, 1, 2 and so on. The report has the mean of all, and their consensus."""
    seeds: Annotated[tuple[int, ...] | None, SEEDS] = None
    """Instead of --repeat: exactly these seeds, one run each."""
    out: Annotated[Path | None, FOLDER] = None
    """Where the runs and the report go. Default: newfound-bench-DATASET, in the current folder."""

    def after_stop(self) -> str:
        return "Run the same command again to continue from the last checkpoint."

    def run(self, screen: Screen) -> None:
        from newfound.research.run_bench import bench
        from newfound.runs.inputs import check_settings

        seeds = seeds_of(self.repeat, self.seeds, self.settings.seed)
        out = self.out or Path(f"newfound-bench-{self.dataset}")
        check_settings(self.settings)
        report = bench(self.dataset, self.root, self.settings, lists=self.lists, seeds=seeds, out=out, screen=screen)
        show_report(report, screen)
        screen.say(f"written to {out}: report.md, report.json, and a run folder per seed")
