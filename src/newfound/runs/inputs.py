"""What a run begins with: its folder, the images looked through, labels, and a first training from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from newfound.errors import UserError, option
from newfound.images import ImageTable, read_folder
from newfound.images.class_folders import FolderMeaning
from newfound.runs.before_training import check_something_to_sort, meaning_then, show_known_classes
from newfound.runs.decisions import reviewed_of
from newfound.runs.first_training import check_serves, classes_there, wanted_from
from newfound.runs.folder import RunFolder
from newfound.runs.results import read_results
from newfound.runs.rounds import Origin, labels_then, next_out, next_round
from newfound.runs.scoring import Truth, read_truth
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings
from newfound.sources.bank import default_bank_folder
from newfound.text import counted


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
    screen: Screen,
) -> Inputs:
    """Look through the folder; nothing is written yet."""
    if truth is not None and not truth.is_file():
        raise UserError(f"{option('truth', truth)}: there is no such file")  # before the images are looked through
    earlier = None if after is None else reviewed_of(read_results(after))
    run = RunFolder(out or (default_out(folder) if after is None else next_out(after)))
    run.check_place(resume=resume)
    labels = labels or (None if earlier is None else labels_then(earlier.results))
    folders = folders.over(meaning_then(run.path, earlier))
    table = read_table(folder, labels, [run.path, settings.bank_dir or default_bank_folder()], screen, folders)
    origin = Origin(labels, after, folders=folders)
    if earlier is not None:
        table, settings, history = next_round(table, settings, earlier, screen)
        origin = replace(origin, history=history)
    check_something_to_sort(table, labels, after)
    show_known_classes(table, screen)
    return Inputs(run, table, settings, origin, None if truth is None else read_truth(truth, table))


def default_out(folder: Path) -> Path:
    """Beside where the command is run, named after the images."""
    return Path(f"newfound-{folder.resolve().name}")


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


def write_skipped(run: RunFolder, table: ImageTable, screen: Screen) -> None:
    """skipped.csv: files that are not used, and why."""
    run.write_csv("skipped.csv", ["file", "reason"], ([item.file, item.reason] for item in table.skipped))
    if table.skipped:
        screen.warn(f"{counted(len(table.skipped), 'file')} skipped: the reasons are in {run.path / 'skipped.csv'}")


def known_classes(run: RunFolder, settings: Settings) -> int | None:
    """How many classes the run was begun with, or the run that its first training comes from; None without either."""
    place = wanted_from(settings)
    return run.classes() or (None if place is None else classes_there(place))


def first_training(
    run: RunFolder, settings: Settings, facts: DataFacts, fingerprints: dict[str, str], screen: Screen
) -> tuple[RunFolder | None, dict[str, Any]]:
    """The run to take it from, if it is not here yet, and how it was trained otherwise than this run would."""
    place = wanted_from(settings)
    if place is None or run.journal.has_first_training():
        return None, {}
    earlier = RunFolder(place)
    other = check_serves(earlier, settings, facts, fingerprints)
    differences = ", ".join(f"{name} {value}" for name, value in other.items())
    screen.say(f"the first training is that of {place}" + (f", which had {differences}" if differences else ""))
    return earlier, {"run": str(place), **other}
