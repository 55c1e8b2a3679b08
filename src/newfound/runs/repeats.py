"""The same run with several seeds, each in a folder of its own below the run's; the run itself is their consensus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from newfound.atomic import write_atomically
from newfound.distributed import done_by_first, from_first
from newfound.errors import SettingError
from newfound.methods import first_training_from, method_of
from newfound.runs.consensus_answer import write_consensus
from newfound.runs.consensus_facts import FILE as CONSENSUS
from newfound.runs.folder import RESULTS, RunFolder
from newfound.runs.journal import EPOCHS, PSEUDO_LABELS
from newfound.runs.places import CONFIG, is_begun, seed_place
from newfound.runs.prepared import Prepared
from newfound.screen import Screen
from newfound.settings import Settings

LOGS = (EPOCHS, PSEUDO_LABELS)


def check_repeats(settings: Settings, repeats: int) -> None:
    """Raise if the run cannot be made so many times."""
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise SettingError("repeat", repeats, "must be 1 or more")
    if repeats > 1 and settings.seed + repeats > 2**32:
        raise SettingError("repeat", repeats, f"goes beyond the largest seed, 4294967295, from seed {settings.seed} on")
    if repeats > 1 and first_training_from(settings) is not None:
        name = method_of(settings).NEEDS.first_training_from
        raise SettingError("repeat", repeats, f"cannot be combined with {name}: all would share one first training")


def run_several(
    ready: Prepared, run: RunFolder, repeats: int, run_seed: Callable[[int, RunFolder], None], screen: Screen
) -> dict[str, Any] | None:
    """Run every seed, or resume those that are not done, then write their consensus; its score, if there is one."""
    seeds = range(ready.settings.seed, ready.settings.seed + repeats)
    folders = [RunFolder(seed_place(run.path, seed)) for seed in seeds]
    _ = ready.opened.pretrained  # a bank that cannot be built leaves no run behind
    with ready.begun(run, screen):
        _move_single(run, folders[0])
        for number, (seed, folder) in enumerate(zip(seeds, folders, strict=True)):
            screen.say(f"seed {seed}, {number + 1} of {repeats}{_time_left(folders, number)}")
            folder.check_place(resume=True)
            run_seed(seed, folder)
        return from_first(lambda: write_consensus(ready, run, dict(zip(seeds, folders, strict=True)), screen))


def _time_left(folders: list[RunFolder], number: int) -> str:
    each = folders[0].journal.training_seconds() if number else 0.0
    left = from_first(lambda: each * sum(not (folder.path / "assignments.csv").exists() for folder in folders[number:]))
    return f"; about {timedelta(seconds=round(left))} of training left" if left else ""


@done_by_first
def _move_single(run: RunFolder, first: RunFolder) -> None:
    """A run of one seed becomes the first of several, its training and results as they are.

    Its config.toml comes first, so a move that was interrupted is completed by the next command.
    """
    if (run.path / CONSENSUS).exists():
        return
    files = [name for name in (*LOGS, *RESULTS) if (run.path / name).is_file()]
    files += [f"checkpoint/{path.name}" for path in sorted((run.path / "checkpoint").glob("*.safetensors"))]
    if not files:
        return
    (first.path / "checkpoint").mkdir(parents=True, exist_ok=True)
    if not is_begun(first.path):
        with write_atomically(first.path / CONFIG) as file:
            file.write((run.path / CONFIG).read_text("utf-8"))
    for name in files:
        (run.path / name).replace(first.path / name)
