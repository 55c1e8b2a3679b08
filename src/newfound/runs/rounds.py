"""Another round on the same images: what a person decided on a run are the labels of the next one.

round.json of a run that continues another one: which round it is (``round``), how classes of the folder are called
since (``renamed``), which files have a label there that a person took away (``cleared``), and of labels that come from
earlier rounds who decided them and when (``decided``). So a photo that comes into the folder "cat" goes to the class
that "cat" has become, in whichever round that was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from newfound.atomic import load_json
from newfound.errors import UserError, option
from newfound.images import ImageTable
from newfound.images.class_folders import FolderMeaning
from newfound.methods import method_of
from newfound.runs.places import ROUND as FILE
from newfound.runs.results import Results
from newfound.runs.resuming import SECTION as COMMAND
from newfound.runs.review_state import Decider, Reviewed
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.text import counted


@dataclass(frozen=True)
class History:
    """What happened before a run, as in round.json."""

    round: int = 1
    renamed: dict[str, str] = field(default_factory=dict)  # label in the folder: name of the class now
    cleared: list[str] = field(default_factory=list)  # files whose label in the folder counts no more
    decided: dict[str, tuple[Decider, int]] = field(default_factory=dict)  # file: who decided its label, and when


@dataclass(frozen=True)
class Origin:
    """Where the labels of a run come from."""

    labels: Path | None = None  # a file of labels
    after: Path | None = None  # an earlier run
    history: dict[str, Any] | None = None  # for round.json
    folders: FolderMeaning = field(default_factory=FolderMeaning)
    command: dict[str, Any] | None = None  # other options of newfound discover, for config.toml

    def places(self) -> dict[str, str | list[str] | None]:
        """As config.toml has it."""
        return {
            "labels": _place(self.labels),
            "continues": _place(self.after),
            "unlabelled_folders": list(self.folders.unlabelled) or None,
            "known_folders": list(self.folders.known) or None,
        }

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
            f"the labels of {results.run.path} were in {path}, which no longer exists. Give them with "
            f"{option('labels')}."
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
        raise UserError(f"{run} was made with the truth: a round after it would not be a result either")
    if not set(earlier.results.files) & set(table.files):
        raise UserError(f"{table.root} has none of the images of {run}: there is nothing to continue")
    before = read_history(run)
    decided = earlier.next_labels()
    taken_away = {file for file, name in decided.items() if name is None}
    cleared = set(before.cleared) - decided.keys() | taken_away
    renamed = _renamed(earlier, before.renamed)

    def label_of(file: str) -> str | None:
        if file in decided or file in cleared:
            return decided.get(file)
        there = table.label_of(file)
        return None if there is None else renamed.get(there, there)

    table = table.relabelled({file: label_of(file) for file in table.files})
    classes = max(len(earlier.live_names() | set(table.seen_classes()[1])), table.n_known)
    labelled = f"{table.n_labelled:,} labelled in {counted(table.n_known, 'class')}"
    screen.say(f"with the decisions on {run}: {labelled}, {counted(classes, 'class')} in total")
    history = History(before.round + 1, renamed, sorted(cleared), _deciders(earlier, decided, before))
    if settings.classes is None and not method_of(settings).NEEDS.own_count:
        settings = replace(settings, classes=classes)
    return table, settings, asdict(history)


def _deciders(earlier: Reviewed, labels: dict[str, str | None], before: History) -> dict[str, tuple[Decider, int]]:
    """Of labels that were not given: who decided them, and in which round."""
    found: dict[str, tuple[Decider, int]] = {}
    for i, file in enumerate(earlier.results.files):
        who = earlier.decided_by(i)
        if labels.get(file) is None:
            continue
        if who != "given":  # the model: an example of a class that a person has named
            found[file] = who, before.round
        elif file in before.decided:
            found[file] = before.decided[file]
    return found


def _renamed(earlier: Reviewed, before: dict[str, str]) -> dict[str, str]:
    """Folder label to class name, over all rounds, where they differ."""
    a = earlier.results.assignment
    since = dict(zip(a.class_names[: a.n_known], earlier.model_names(), strict=False))
    names = {name: name for name in since} | before
    now = {label: since.get(name) or name for label, name in names.items()}
    return {label: name for label, name in now.items() if label != name}


def read_history(run: Path) -> History:
    """What happened before a run; earlier versions did not write down the round, nor who decided."""
    path = run / FILE
    if not path.is_file():
        return History()
    try:
        content: dict[str, Any] = load_json(path)
        renamed, cleared = dict(content["renamed"]), list(content["cleared"])
        number = content.get("round", 2)
        if not all(isinstance(name, str) for name in [*renamed.values(), *cleared]) or not isinstance(number, int):
            raise TypeError("names that are not text, or a round that is not a number")
        decided = {file: _decided(*entry) for file, entry in dict(content.get("decided", {})).items()}
        return History(number, renamed, cleared, decided)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is malformed ({error!r})") from error


def _decided(who: Decider, number: int) -> tuple[Decider, int]:
    if who not in get_args(Decider) or not isinstance(number, int):
        raise ValueError(f"{who!r}, {number!r}")
    return who, number
