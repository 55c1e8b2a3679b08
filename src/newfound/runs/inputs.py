"""What a run begins with: its folder, the images looked through, labels, and a first training from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from newfound.backbones import check_backbone
from newfound.distributed import done_by_first, is_restarted
from newfound.errors import UserError, option
from newfound.images import ImageTable, read_folder
from newfound.images.class_folders import FolderMeaning
from newfound.images.scan import check_folder
from newfound.methods import decide, first_training_from
from newfound.runs.before_training import check_repeatable, check_something_to_sort, meaning_then, show_known_classes
from newfound.runs.decisions import reviewed_of
from newfound.runs.first_training import check_serves, classes_there
from newfound.runs.folder import RunFolder
from newfound.runs.places import is_begun, no_run, run_place
from newfound.runs.removing import check_replaceable, remove_run
from newfound.runs.results import read_results
from newfound.runs.resuming import command_table
from newfound.runs.rounds import Origin, labels_then, next_round
from newfound.runs.scoring import Truth, read_truth
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings
from newfound.sources.bank import default_bank_folder
from newfound.text import counted

PLENTY = DataFacts(images=10**12, known=2, labelled=10**9, labelled_classes=2, classes=100)  # nothing is short of it


@dataclass(frozen=True)
class Inputs:
    run: RunFolder
    table: ImageTable
    settings: Settings
    origin: Origin
    referee: Truth | None


def gather(
    folder: Path,
    settings: Settings,
    *,
    labels: Path | None,
    folders: FolderMeaning,
    after: Path | None,
    truth: Path | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    repeat: int,
    report: bool,
    screen: Screen,
) -> Inputs:
    """Look through the folder; nothing is written yet, and nothing removed before all else is in order."""
    check_folder(folder)
    check_settings(settings)
    if truth is not None and not truth.is_file():
        raise UserError(f"{option('truth', truth)}: there is no such file")  # before the images are looked through
    earlier = None if after is None else reviewed_of(read_results(after))
    run = RunFolder(run_place(folder, after, out))
    if resume and not is_begun(run.path):
        raise no_run(run.path, f"Without {option('resume', True)} a new run is started.")
    if overwrite and resume:
        words = option("resume", True), option("overwrite", True)
        raise UserError(f"{words[0]} continues a run, {words[1]} removes it: give only one of the two")
    if overwrite:
        check_replaceable(out, after, first_training_from(settings))
    run.check_place(resume=resume or overwrite or is_restarted())
    if not overwrite:
        check_repeatable(run.path, settings, repeat)
    labels = labels or (None if earlier is None else labels_then(earlier.results))
    folders = folders if overwrite else folders.over(meaning_then(run.path, earlier))
    table = read_table(folder, labels, [run.path, settings.bank_dir or default_bank_folder()], screen, folders)
    command = command_table(truth=truth, repeat=repeat, report=report)
    origin = Origin(labels, after, folders=folders, command=command)
    if earlier is not None:
        table, settings, history = next_round(table, settings, earlier, screen)
        origin = replace(origin, history=history)
    check_something_to_sort(table, labels, after)
    show_known_classes(table, screen)
    referee = None if truth is None else read_truth(truth, table)
    if overwrite and not is_restarted():
        decide(settings, _facts_of(table, settings.classes))
        remove_run(run)
    return Inputs(run, table, settings, origin, referee)


def check_settings(settings: Settings) -> None:
    """Raise at once if something is wrong whatever the images are: reading them may take long."""
    classes = PLENTY.classes if settings.classes is None else settings.classes
    decide(settings, replace(PLENTY, classes=classes, known=min(PLENTY.known, classes)))
    check_backbone(settings.backbone, settings.weights)


def _facts_of(table: ImageTable, classes: int | None) -> DataFacts:
    labelled_classes = len(table.seen_classes()[1])
    return DataFacts(len(table), table.n_known, table.n_labelled, labelled_classes, classes or max(table.n_known, 2))


def read_table(
    folder: Path, labels: Path | None, exclude: list[Path], screen: Screen, folders: FolderMeaning
) -> ImageTable:
    """Look through a folder, and say what is there."""
    with screen.track("reading images", 1) as progress:

        def on_progress(done: int, total: int) -> None:
            progress.update(done, total=total)

        table = read_folder(folder, labels=labels, folders=folders, exclude=exclude, on_progress=on_progress)
    for warning in table.warnings:
        screen.warn(warning)
    screen.say(
        f"{counted(len(table), 'image')}: {table.n_labelled:,} labelled in "
        f"{counted(table.n_known, 'known class', 'known classes')}, {len(table) - table.n_labelled:,} to sort"
    )
    return table


@done_by_first
def write_skipped(run: RunFolder, table: ImageTable, screen: Screen) -> None:
    """skipped.csv: files that are not used, and why. A resumed run that skips the same files does not repeat it."""
    path = run.path / "skipped.csv"
    before = path.read_bytes() if path.is_file() else b""
    run.write_csv("skipped.csv", ["file", "reason"], ([item.file, item.reason] for item in table.skipped))
    if table.skipped and before != path.read_bytes():
        files = counted(len(table.skipped), "file")
        screen.warn_once(f"{files} skipped: skipped.csv in the run folder lists the reasons")


def known_classes(run: RunFolder, settings: Settings) -> int | None:
    """How many classes the run was begun with, or the run that its first training comes from; None without either."""
    place = first_training_from(settings)
    return run.classes() or (None if place is None else classes_there(place, settings))


def first_training(
    run: RunFolder, settings: Settings, facts: DataFacts, fingerprints: dict[str, str], screen: Screen
) -> tuple[RunFolder | None, dict[str, Any]]:
    """The run to take it from, if it is not here yet, and how it was trained otherwise than this run would."""
    place = first_training_from(settings)
    if place is None or run.journal.has_first_training():
        return None, {}
    earlier = RunFolder(place)
    other = check_serves(earlier, settings, facts, fingerprints)
    differences = ", ".join(f"{name} {value}" for name, value in other.items())
    screen.say(f"the first training is taken from {place}" + (f", which had {differences}" if differences else ""))
    return earlier, {"run": str(place), **other}
