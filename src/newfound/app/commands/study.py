"""newfound study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from newfound.app.command_with_settings import WithSettings
from newfound.app.commands.bench import TEXTS, Dataset
from newfound.app.options import FILE, FOLDER, NUMBER_OF_SEEDS, SEEDS, paragraphs, seeds_of
from newfound.screen import Screen

StudyName = Literal["methods", "components", "strategy", "selection", "beta", "eta", "alpha", "k", "rho", "class-count",
                    "blocks", "backbone", "anchors", "hard-labels", "tsne", "hessian", "time"]  # fmt: skip


@paragraphs
@dataclass(frozen=True)
class Study(WithSettings):
    """Reproduce a table of the SDAS paper on a data set, next to the published numbers: Markdown, CSV and a figure.

    Studies with the same --out share their runs. A second call does only what is left to do.
    """

    defaults = {"backbone": "dino_vitb16"}  # noqa: RUF012 - a mapping nobody changes
    texts = TEXTS

    name: Annotated[StudyName, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """The table or figure. methods: every method there is. components: LSP and DAS. strategy, selection: when anchors
    are chosen, and which. beta, eta, alpha, k, rho: sweeps. class-count: with the estimated number of classes.
    blocks: frozen ViT blocks. backbone: DINOv2. anchors: how many are clean. hard-labels: with an oracle. tsne: the
    features in two dimensions. hessian: how flat the loss is, without and with LSP. time: of training and inference."""
    dataset: Annotated[Dataset, tyro.conf.arg(metavar="DATASET")]
    """The data set, as in newfound bench."""
    root: Annotated[Path, tyro.conf.arg(metavar="PATH")]
    """Where the data set is, as in newfound bench."""
    lists: Annotated[Path | None, FILE] = None
    """The data set's lists, as in newfound bench."""
    repeat: Annotated[int | None, NUMBER_OF_SEEDS] = None
    """How many times to run each row, with the seeds 0, 1, 2 and so on. A figure shows seed 0."""
    seeds: Annotated[tuple[int, ...] | None, SEEDS] = None
    """Instead of --repeat: exactly these seeds. A figure shows the first one."""
    out: Annotated[Path | None, FOLDER] = None
    """Where runs, tables and figures go. Default: newfound-study-DATASET, in the current folder."""

    def after_stop(self) -> str:
        return "Run the same command again to continue from the last checkpoint."

    def run(self, screen: Screen) -> None:
        from newfound.research.run_study import study
        from newfound.runs.inputs import check_settings

        seeds = seeds_of(self.repeat, self.seeds, self.settings.seed)
        out = self.out or Path(f"newfound-study-{self.dataset}")
        check_settings(self.settings)
        text = study(
            self.name, self.dataset, self.root, self.settings, lists=self.lists, seeds=seeds, out=out, screen=screen
        )
        screen.say(text)
        screen.say(f"written to {out}: {self.name}.md, its figure as PDF and PNG, and the runs")
