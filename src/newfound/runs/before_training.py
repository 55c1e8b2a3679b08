"""Before training: what the folders mean, which classes are known, and what is to be sorted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from newfound.errors import UserError, option
from newfound.images import ImageTable
from newfound.images.class_folders import FolderMeaning, means_unsorted
from newfound.runs.config import read_config
from newfound.runs.places import is_begun, seed_place, typed
from newfound.runs.results import read_consensus
from newfound.runs.review_state import Reviewed
from newfound.screen import Screen, shown
from newfound.settings import Settings
from newfound.text import counted

ENOUGH_LABELS = 3  # of a class: with fewer it is hardly learnt
ENDS = 6  # of a long list: so many of the largest classes, and of the smallest


def meaning_then(run: Path, earlier: Reviewed | None) -> FolderMeaning:
    """What folders meant when the run was begun, or the one that it continues.

    What was a known class then still is.
    """
    path = (run if earlier is None else earlier.results.run.path) / "config.toml"
    data = read_config(path).sections.get("data", {}) if path.is_file() else {}
    meaning = FolderMeaning(_names(data.get("unlabelled_folders")), _names(data.get("known_folders")))
    if earlier is None:
        return meaning
    a = earlier.results.assignment
    return meaning.over(
        FolderMeaning(known=tuple(name for name in (*a.class_names[: a.n_known], *a.unseen) if means_unsorted(name)))
    )


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def show_known_classes(table: ImageTable, screen: Screen) -> None:
    """The known classes with their labelled images, largest first, and how many images are to be sorted."""
    if not table.n_known:
        return
    sizes = np.bincount(table.labels[table.labels >= 0], minlength=table.n_known)
    order = sorted(range(table.n_known), key=lambda k: (-sizes[k], table.class_names[k]))
    left_out = order[ENDS:-ENDS] if len(order) > 2 * ENDS + 1 else []
    grid = Table(header_style="bold")
    grid.add_column("known class")
    grid.add_column("labelled", justify="right")
    for k in order:
        if k not in left_out:
            grid.add_row(Text(shown(table.class_names[k]).replace("\n", "\\n")), f"{sizes[k]:,}")
        elif k == left_out[0]:
            grid.add_row(f"… {len(left_out):,} more", f"{sizes[left_out].sum():,}", style="dim")
    grid.add_section()
    grid.add_row("to sort", f"{len(table) - table.n_labelled:,}")
    screen.table(grid)
    _warn_of_few_labels([table.class_names[k] for k in order if 0 < sizes[k] < ENOUGH_LABELS], screen)


def _warn_of_few_labels(classes: Sequence[str], screen: Screen) -> None:
    """Some can hardly be learnt. Measured: docs/results.md, "Classes with few labels"."""
    if not classes:
        return
    which = ", ".join(shown(name) for name in classes[:ENDS]) + (", …" if len(classes) > ENDS else "")
    have = "has" if len(classes) == 1 else "have"
    screen.warn(
        f"{counted(len(classes), 'known class')} {have} fewer than {ENOUGH_LABELS} labelled images ({which}): a "
        "fifth to two fifths of what is sorted there may belong elsewhere, and about half of their own images may be "
        "sorted elsewhere. Label more of them, or review them first."
    )


def check_something_to_sort(table: ImageTable, labels: Path | None, after: Path | None) -> None:
    """Raise if every image is labelled."""
    if table.n_labelled < len(table):
        return
    if after is not None:
        todo = f"The decisions on {after} have labelled them all; newfound export {after} --csv FILE writes them."
    elif labels is not None:
        todo = f"Leave the label of those to sort blank in {labels}, or leave them out."
    else:
        folder = option("unlabelled", "NAME")
        todo = f"Put those to sort into a folder unlabelled there, or say which folder holds them: {folder}."
    raise UserError(
        f"{table.root}: there is nothing to sort, as all {counted(len(table), 'image')} are labelled. {todo}"
    )


def check_repeatable(run: Path, settings: Settings, repeats: int) -> None:
    """Raise if what is in the run folder cannot become a run of so many seeds, or must not."""
    if repeats == 1 and is_begun(seed_place(run, settings.seed)):
        raise UserError(
            f"{run} is a run of several seeds, and cannot become one of a single seed: give {option('repeat', 2)} or "
            f"more. {typed('resume', run)} resumes it as it was."
        )
    decisions, seeds = run / "decisions.json", list(range(settings.seed, settings.seed + repeats))
    if repeats == 1 or not decisions.is_file():
        return
    before = read_consensus(run)
    if before is None or before.seeds != seeds:
        raise UserError(
            f"{decisions} has what was decided in a review, and the consensus of {repeats} seeds would replace the "
            f"results that it is about. Choose another {option('out')}, or move that file away."
        )
