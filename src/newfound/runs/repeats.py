"""The same run again with the seeds that follow, and which of its classes come out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from newfound.distributed import from_first
from newfound.errors import SettingError
from newfound.runs.assignments import ORACLE
from newfound.runs.first_training import wanted_from
from newfound.runs.folder import RunFolder
from newfound.runs.results import digest_of, read_results
from newfound.runs.stability import FILE, compare
from newfound.screen import Screen
from newfound.settings import Settings


def check_repeats(settings: Settings, repeats: int) -> None:
    """Raise if the run cannot be made so many times."""
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise SettingError("repeat", repeats, "must be 1 or more")
    if repeats > 1 and settings.seed + repeats > 2**32:
        raise SettingError("repeat", repeats, f"goes beyond the largest seed, 4294967295, from seed {settings.seed} on")
    if repeats > 1 and wanted_from(settings) is not None:
        raise SettingError("repeat", repeats, "cannot be combined with stage1: all would share one first training")


def make_repeats(
    run: RunFolder, settings: Settings, repeats: int, again: Callable[[Settings, RunFolder], object], screen: Screen
) -> None:
    """Make the same run with the seeds that follow, below the run's folder, and write stability.json."""
    seeds = range(settings.seed, settings.seed + repeats)
    folders = [run, *(RunFolder(run.path / "seeds" / str(seed)) for seed in seeds[1:])]
    each = run.journal.training_seconds()
    for number in range(1, repeats):
        left = each * sum(not (folder.path / "assignments.csv").exists() for folder in folders[number:])
        about = f"; about {timedelta(seconds=round(left))} of training left" if left else ""
        screen.say(f"seed {seeds[number]}, {number + 1} of {repeats}{about}")
        folders[number].check_place(resume=True)
        again(replace(settings, seed=seeds[number], classes=run.classes()), folders[number])
    from_first(lambda: _write_stability(folders, seeds))


def _write_stability(folders: Sequence[RunFolder], seeds: Sequence[int]) -> None:
    results = [read_results(folder.path) for folder in folders]
    found = compare([result.assignment for result in results], seeds)
    content = {"results": digest_of(folders[0].path), **found.as_json()}
    folders[0].write_json(FILE, {"oracle": ORACLE, **content} if results[0].oracle else content)
