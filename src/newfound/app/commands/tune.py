"""newfound tune."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from newfound.app.command_with_settings import WithSettings
from newfound.app.commands.discover import Discover
from newfound.app.known_classes import asked_about
from newfound.app.options import FILE, FOLDER, NAMES, NUMBER, paragraphs
from newfound.app.tables import show_tuned
from newfound.app.tries import changes_of
from newfound.screen import Screen

if TYPE_CHECKING:
    from newfound.images.class_folders import FolderMeaning
    from newfound.tuning import Tuned

TRIES = tyro.conf.arg(name="try", metavar="NAME=VALUE[,VALUE ...]", help_behavior_hint="(repeatable)")


@paragraphs
@dataclass(frozen=True)
class Tune(WithSettings):
    """Compare settings by known classes that play new ones: no truth is needed.

    The labels of some known classes are hidden, each of the settings is trained with what is left, and scored on the
    images whose labels were hidden. FOLDER is laid out as for newfound discover, and the bank is shared with it. Ends
    with a table and the command to type.
    """

    examples = {  # noqa: RUF012 - a mapping nobody changes
        "the usual methods": "newfound tune photos",
        "two methods with twelve classes": "newfound tune photos --classes 12 --try method=gcd",
        "two values of one setting": "newfound tune photos --try rho=0,0.1",
        "a combination": "newfound tune photos --try method=simgcd start=random",
    }
    hidden = ("epochs",)  # here they are those of a trial

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The folder with the images."""
    tries: Annotated[tuple[tuple[str, ...], ...], TRIES, tyro.conf.UseAppendAction] = ()
    """What to compare with the settings given by the other options: each of the values, shared settings or the
    method's. Several NAME=VALUE after one --try are changed together. Default: the methods kmeans, gcd, simgcd and
    sdas, and a few settings of simgcd."""
    splits: Annotated[int, NUMBER] = 2
    """How many times to hide other labels. Each is one more training of everything; more make the comparison surer."""
    epochs: Annotated[int, NUMBER] = 20
    """Passes over the images in each training of the comparison, unless --try compares epochs."""
    labels: Annotated[Path | None, FILE] = None
    """Labels of the images: a CSV with the columns file,label, or Hugging Face metadata, as for newfound discover."""
    unlabelled: Annotated[tuple[str, ...], NAMES] = ()
    """Folders in FOLDER that hold images to sort, in addition to one called unlabelled."""
    known: Annotated[tuple[str, ...], NAMES] = ()
    """Folders in FOLDER that are known classes although their names, such as other or misc, suggest otherwise."""
    out: Annotated[Path, FOLDER] = Path("newfound-tune")
    """Where to keep what has been tried. Default: newfound-tune, in the current folder."""

    @property
    def torchrun_device(self) -> None:
        return None

    def after_stop(self) -> str:
        return "Run the same command again to continue after the last training that was finished."

    def run(self, screen: Screen) -> None:
        from newfound.images.class_folders import folder_meaning
        from newfound.tuning import tune

        settings = replace(self.settings, epochs=None)
        changes = [change for words in self.tries for change in changes_of(words, settings)]
        folders = folder_meaning(self.folder, self.unlabelled, self.known, self.labels)
        if self.labels is None:
            folders = asked_about(self.folder, folders, screen)
        found = tune(
            self.folder, settings, changes, labels=self.labels, folders=folders, out=self.out, splits=self.splits,
            epochs=self.epochs, screen=screen,
        )  # fmt: skip
        show_tuned(found, screen)
        screen.say(f"  {shlex.join(self.discovering(found, folders).words())}")

    def discovering(self, found: Tuned, folders: FolderMeaning) -> Discover:
        """The command to type after the comparison."""
        settings = found.candidates[found.chosen].settings
        return Discover(
            self.folder, settings=settings, labels=self.labels, unlabelled=folders.unlabelled, known=folders.known
        )
