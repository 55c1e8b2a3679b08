"""newfound demo."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from newfound.app.command import Command
from newfound.app.commands.discover import Discover
from newfound.app.options import FOLDER, NUMBER, paragraphs
from newfound.app.wardrobe import CLASSES, unpack_wardrobe
from newfound.runs.places import is_begun
from newfound.screen import Screen
from newfound.settings import Settings


@paragraphs
@dataclass(frozen=True)
class Demo(Command):
    """Unpack a sample (2,000 small photos of clothes, five classes half labelled, five unlabelled) and sort it."""

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("newfound-demo")
    """Where to unpack the sample and write the run."""
    seed: Annotated[int, NUMBER] = 0
    """Same seed, same result."""
    epochs: Annotated[int, NUMBER] = 15
    """Passes over the images, in each of the two trainings."""
    image_size: Annotated[int, NUMBER] = 128
    """The photos are 28 by 28 pixels; enlarging them further takes more time."""
    bank_dir: Annotated[Path | None, FOLDER] = None
    """Where the bank is kept. Default: newfound/banks in your cache folder."""
    report: bool = True
    """Write report.html, a page to look through the results."""

    def after_stop(self) -> str:
        return "Run the same command again to continue from the last checkpoint."

    def run(self, screen: Screen) -> None:
        images, truth = unpack_wardrobe(self.out)
        command = self.command(images, truth)
        screen.say(f"the sample is in {images}; this is the command that you would run on a folder of your own:")
        screen.say(f"  {shlex.join(command.words())}\n")
        command.run(screen)

    def command(self, images: Path, truth: Path) -> Discover:
        """What is run. A second `newfound demo` resumes: it shows what the first one found, or continues it."""
        run = self.out / "run"
        settings = Settings(
            CLASSES, seed=self.seed, epochs=self.epochs, image_size=self.image_size, bank_dir=self.bank_dir
        )
        return Discover(images, settings=settings, out=run, truth=truth, resume=is_begun(run), report=self.report)
