"""Another round on the same images: what a person decided on a run are the labels of the next one.

round.json of a run that continues another one: how classes of the folder are called since (``renamed``), and which
files have a label there that a person took away (``cleared``). So a photo that comes into the folder "cat" goes to the
class that "cat" has become, in whichever round that was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from newfound.atomic import load_json
from newfound.errors import UserError
from newfound.images import ImageTable
from newfound.runs.places import ROUND as FILE
from newfound.runs.results import Results
from newfound.runs.resuming import SECTION as COMMAND
from newfound.runs.review_state import Reviewed
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.text import counted


@dataclass(frozen=True)
class Origin:
    """Where the labels of a run come from."""

    labels: Path | None = None  # a file of labels
    after: Path | None = None  # an earlier run
    history: dict[str, Any] | None = None  # for round.json
    command: dict[str, Any] | None = None  # what else newfound discover was told, for config.toml

    def places(self) -> dict[str, str | None]:
        """As config.toml has it."""
        return {"labels": _place(self.labels), "continues": _place(self.after)}

    def sections(self) -> dict[str, dict[str, Any]]:
        """Of config.toml, in addition: what resuming the run needs."""
        return {} if self.command is None else {COMMAND: self.command}


def _place(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def labels_then(results: Results) -> Path | None:
    """The labels file of an earlier run."""
    if (path := results.data.get("labels")) is None:
        return None
    if not isinstance(path, str) or not Path(path).is_file():
        raise UserError(
            f"the labels of {results.run.path} were in {path}, which no longer exists. Give them with --labels."
        )
    return Path(path)


def next_round(
    table: ImageTable, settings: Settings, earlier: Reviewed, screen: Screen
) -> tuple[ImageTable, Settings, dict[str, Any]]:
    """The images with what was decided on an earlier run as labels, as many classes as there are now, and the history.

    Files that the earlier run did not have keep the label of their folder, by the name that it has now.
    """
    run = earlier.results.run.path
    if earlier.results.oracle:
        raise UserError(
            f"{run} was made with the truth (--oracle-clean-anchors): a round after it would not be a result either"
        )
    if not set(earlier.results.files) & set(table.files):
        raise UserError(f"{table.root} has none of the images of {run}: there is nothing to continue")
    before = _read(run)
    decided = earlier.next_labels()
    taken_away = {file for file, name in decided.items() if name is None}
    cleared = set(before["cleared"]) - decided.keys() | taken_away
    renamed = _renamed(earlier, before["renamed"])

    def label_of(file: str) -> str | None:
        if file in decided or file in cleared:
            return decided.get(file)
        there = table.label_of(file)
        return None if there is None else renamed.get(there, there)

    table = table.relabelled({file: label_of(file) for file in table.files})
    classes = max(len(earlier.live_names() | set(table.seen_classes()[1])), table.n_known)
    screen.say(f"after {run}: {table.n_labelled:,} labelled in {counted(table.n_known, 'class')}, {classes} in all")
    history = {"renamed": renamed, "cleared": sorted(cleared)}
    return table, replace(settings, classes=classes if settings.classes is None else settings.classes), history


def _renamed(earlier: Reviewed, before: dict[str, str]) -> dict[str, str]:
    """Folder label to class name, over all rounds, where they differ."""
    a = earlier.results.assignment
    since = dict(zip(a.class_names[: a.n_known], earlier.model_names(), strict=False))
    names = {name: name for name in since} | before
    now = {label: since.get(name) or name for label, name in names.items()}
    return {label: name for label, name in now.items() if label != name}


def _read(run: Path) -> dict[str, Any]:
    path = run / FILE
    if not path.is_file():
        return {"renamed": {}, "cleared": []}
    try:
        content: dict[str, Any] = load_json(path)
        renamed, cleared = dict(content["renamed"]), list(content["cleared"])
        if not all(isinstance(name, str) for name in [*renamed.values(), *cleared]):
            raise TypeError("what is not text")
        return {"renamed": renamed, "cleared": cleared}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not as newfound writes it ({error!r})") from error
