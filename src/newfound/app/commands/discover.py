"""newfound discover."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from newfound.app.command_with_settings import WithSettings
from newfound.app.known_classes import asked_about
from newfound.app.options import FILE, FOLDER, NAMES, NUMBER, paragraphs
from newfound.app.tables import show_classes, show_score
from newfound.methods import reading_note
from newfound.runs.places import is_begun, run_place, typed
from newfound.screen import Screen
from newfound.settings import method_name
from newfound.text import as_options

if TYPE_CHECKING:
    from newfound.finished import Discovery

FILES = ("report.html", "assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors", "log.jsonl")


@paragraphs
@dataclass(frozen=True)
class Discover(WithSettings):
    """Sort the images of a folder into known classes and newly discovered ones.

    FOLDER holds one folder per known class; unlabelled images are loose files, or in a folder "unlabelled" (or in one
    named by --unlabelled). With --labels, any arrangement of files will do. Nothing in FOLDER is changed.
    """

    examples = {  # noqa: RUF012 - a mapping nobody changes
        "estimate how many classes there are": "newfound discover photos",
        "you expect twelve classes in total": "newfound discover photos --classes 12",
        "labels from a table instead of folders": "newfound discover photos --labels labels.csv",
        "the consensus of three seeds": "newfound discover photos --repeat 3",
        "another round, after newfound review": "newfound discover photos --continue newfound-photos",
    }
    former_names = {"--seeds": "--repeat"}  # noqa: RUF012 - a mapping nobody changes

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The folder with the images."""
    labels: Annotated[Path | None, FILE] = None
    """Labels of the images: a CSV with the columns file,label (blank: unlabelled), or a Hugging Face metadata.csv or
    metadata.jsonl."""
    unlabelled: Annotated[tuple[str, ...], NAMES] = ()
    """Folders in FOLDER that hold images to sort, in addition to one called unlabelled."""
    known: Annotated[tuple[str, ...], NAMES] = ()
    """Folders in FOLDER that are known classes although their names, such as other or misc, suggest otherwise."""
    out: Annotated[Path | None, FOLDER] = None
    """The run folder to write. Default: newfound-FOLDER, in the current folder."""
    truth: Annotated[Path | None, FILE] = None
    """The true classes, used for scoring only (and by --oracle-clean-anchors of --method sdas, for analysis): a CSV
    with the columns file,label."""
    resume: bool = False
    """Resume the run in --out with these options, such as more seeds; newfound resume RUN needs no options."""
    overwrite: bool = False
    """Replace the run in --out: what newfound wrote there is removed once the images and settings have been checked. A
    run with decisions from a review, or with other files in it, is left alone."""
    repeat: Annotated[int, NUMBER] = 1
    """How many seeds to run, starting at --seed. With more than one, the results are their consensus, image by image,
    and a class that only one of them finds is marked unstable; each seed is a run of its own in seeds/."""
    report: bool = True
    """Write report.html, a page to look through the results."""
    after: Annotated[Path | None, tyro.conf.arg(name="continue", metavar="RUN", help_behavior_hint="")] = None
    """Start another round after newfound review RUN: its decisions become labels. --classes then defaults to the number
    of classes in RUN, and --out to RUN-2."""

    def words(self) -> list[str]:
        """What to type for this very command."""
        settings = self.settings
        options = _chosen(replace(settings, method=method_name(settings)))
        options |= {} if isinstance(settings.method, str) else _chosen(settings.method)
        options |= {"continue" if name == "after" else name: value for name, value in _chosen(self).items()}
        return ["newfound", "discover", str(self.folder), *as_options(options)]

    def after_stop(self) -> str:
        return how_to_resume(run_place(self.folder, self.after, self.out))

    def run(self, screen: Screen) -> None:
        from newfound.discovery import discover
        from newfound.distributed import from_first
        from newfound.images.class_folders import FolderMeaning

        folders = FolderMeaning(self.unlabelled, self.known)
        refused = is_begun(run_place(self.folder, self.after, self.out)) and not self.overwrite
        if self.labels is None and self.after is None and not self.resume and not refused:
            folders = asked_about(self.folder, folders, screen)
        found = discover(
            self.folder, self.settings, labels=self.labels, unlabelled=folders.unlabelled, known=folders.known,
            after=self.after, truth=self.truth, out=self.out, resume=self.resume, overwrite=self.overwrite,
            repeat=self.repeat, report=self.report, screen=screen,
        )  # fmt: skip
        from_first(lambda: show_discovery(found, screen))


def _chosen(options: Any) -> dict[str, object]:
    """Of a dataclass, what is not as by default; fields without a default are left out."""
    values = {field: getattr(options, field.name) for field in fields(options) if field.default is not MISSING}
    return {field.name: value for field, value in values.items() if value != field.default}


def how_to_resume(run: Path) -> str:
    """A sentence for whoever stopped a run."""
    if not is_begun(run):
        return "Nothing was trained yet: the same command starts again."
    return f"{typed('resume', run)} continues from the last checkpoint."


def show_discovery(found: Discovery, screen: Screen) -> None:
    """What was found, where it is, and what to do next."""
    show_classes(found, screen)
    if found.metrics is not None:
        show_score(found.metrics, screen)
    if note := reading_note(found.results.settings):
        screen.say(note)
    screen.say(f"written to {found.run}: {', '.join(file for file in FILES if (found.run / file).exists())}")
    screen.say(f"To review the results and name the new classes: {typed('review', found.run)}")
