"""One file per method: what is learnt from a batch, what happens between epochs, how it predicts.

A method is a module. `Method` says what is in it; `simgcd.py` is the shortest that trains.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from newfound.errors import SettingError, UserError, option
from newfound.settings import (
    AS_PUBLISHED,
    OF_TRAINING,
    DataFacts,
    MethodSettings,
    Settings,
    Training,
    decided_shared,
    method_name,
)
from newfound.settings import METHODS as METHODS
from newfound.settings.device import resolve_device
from newfound.settings.presets import KINDS, preset_for
from newfound.text import did_you_mean

if TYPE_CHECKING:
    from newfound.training.loop import Trained
    from newfound.training.task import Task


@dataclass(frozen=True)
class Needs:
    """What a method asks of the rest."""

    training: bool = True  # False: it works on the frozen features
    strong_view: bool = False  # the first of the two views is strongly augmented
    first_training: str | None = None  # the method that its first training is one of
    first_training_from: str | None = None  # its setting that names a run to take that from
    oracle: str | None = None  # its setting with which the loop drops wrong pseudo-labels, for analysis
    pixels: bool = False
    most_images: int | None = None  # more than these it cannot handle
    own_count: bool = False  # it finds the number of classes itself, and takes none
    prompts: bool = False  # in the trunk


class Method(Protocol):
    """What a module in this folder holds."""

    NAME: str
    ABOUT: str  # one line
    SOURCE: str  # paper, repository and its licence, what differs here
    Settings: type[Any]  # frozen dataclass; the docstrings of its fields are the help texts
    DEFAULTS: Mapping[str, object]  # shared settings where its own differ from SimGCD's
    PRESETS: Mapping[str, Mapping[str, object]]  # by kind of data or data set: own and shared settings
    NEEDS: Needs
    # READING = True where no code is public: everything that shows its results says so, see `reading_note`

    @staticmethod
    def decided(s: Any, facts: DataFacts, t: Training) -> Any:
        """Its settings with nothing left open; raises if they make no sense."""

    @staticmethod
    def trainings(s: Any, facts: DataFacts) -> int:
        """How many follow each other, at most: a method may end earlier (`task.progress.end_after`)."""

    @staticmethod
    def fit(task: Task, s: Any) -> Trained:
        """All of it."""


def load(name: str) -> Method:
    """A method by its name."""
    if name not in METHODS:
        raise UserError(f"there is no method {name!r}; there are: {', '.join(METHODS)}")
    return cast(Method, import_module(f"newfound.methods.{name}"))


def method_of(settings: Settings) -> Method:
    """The module of the method that was chosen, by name or by its own settings."""
    if isinstance(settings.method, str):
        return load(settings.method)
    return cast(Method, sys.modules[type(settings.method).__module__])


def own_settings(settings: Settings) -> Any:
    """The method's own settings, at their defaults where only its name was given."""
    return method_of(settings).Settings() if isinstance(settings.method, str) else settings.method


def decide(settings: Settings, facts: DataFacts) -> Settings:
    """Settings of a run with nothing left open: the user's, else the preset's, else the method's, else the rule's."""
    method, device = method_of(settings), resolve_device(settings.device)
    idle = without_effect(settings)
    if "label_balance" in idle and method.NEEDS.training:  # 0 says what it does anyway: equal chances
        settings = replace(settings, label_balance=settings.label_balance or None)
    for name, why in idle.items():
        if getattr(settings, name) != getattr(Settings, name):
            raise SettingError(name, getattr(settings, name), why)
    classes = None if "classes" in idle else facts.classes
    facts = replace(facts, preset=settings.preset or preset_for(facts.images, facts.classes))
    published = {} if facts.preset in KINDS else AS_PUBLISHED
    values = {**method.DEFAULTS, **published, **method.PRESETS.get(facts.preset, {}), **dict.fromkeys(idle)}
    settings = decided_shared(
        replace(settings, classes=classes), facts, trains=method.NEEDS.training, values=values, device=device
    )
    own = method.decided(own_settings(settings), facts, Training.of(settings))
    return replace(settings, method=cast(MethodSettings, own))


def check_size(settings: Settings, facts: DataFacts) -> None:
    """Raise if there are more images than the method can handle."""
    method = method_of(settings)
    if method.NEEDS.most_images is not None and facts.images > method.NEEDS.most_images:
        why = f"handles at most {method.NEEDS.most_images:,} {facts.noun}, and there are {facts.images:,}"
        raise SettingError("method", method.NAME, f"{why}: choose another method")


def is_oracle(settings: Settings) -> bool:
    """Does the run use the truth, for analysis?"""
    return oracle_setting(settings) is not None


def oracle_setting(settings: Settings) -> str | None:
    """The name of the setting with which the run uses the truth; None: it does not.

    >>> oracle_setting(with_own(Settings(), {"oracle_clean_anchors": True})), oracle_setting(Settings())
    ('oracle_clean_anchors', None)
    """
    name = method_of(settings).NEEDS.oracle
    return name if name is not None and getattr(own_settings(settings), name) else None


def first_training_from(settings: Settings) -> Path | None:
    """The run to take the first training from, if one was named."""
    name = method_of(settings).NEEDS.first_training_from
    place: Path | None = None if name is None else getattr(own_settings(settings), name)
    return place


def without_effect(settings: Settings) -> dict[str, str]:
    """Shared settings that have no effect with the method, and why. They are no options of it, and refused.

    >>> list(without_effect(Settings(method="orca")))
    ['label_balance']
    """
    needs, here, found = method_of(settings).NEEDS, f"has no effect with {method_name(settings)}", dict[str, str]()
    if needs.own_count:
        found["classes"] = f"{here}, which finds its own number of classes"
    if not needs.training:
        found |= dict.fromkeys(OF_TRAINING, f"{here}, which trains nothing")
    elif not draws_half_labelled(settings):
        unless = f"unless {option('batches', 'half-labelled')}"
        found["label_balance"] = f"{here}, which draws all images with equal chances {unless}"
    return found


def draws_half_labelled(settings: Settings) -> bool:
    """Is half of each batch labelled, so that `label_balance` has an effect?

    >>> [draws_half_labelled(Settings(method=name)) for name in ("simgcd", "orca", "kmeans")]
    [True, False, False]
    """
    drawn = getattr(own_settings(settings), "batches", "half-labelled")
    return method_of(settings).NEEDS.training and drawn == "half-labelled"


def reading_note(settings: Settings) -> str:
    """What to say beside results of a method that was written from its paper alone; empty for every other one.

    >>> reading_note(Settings(method="mugcd"))
    'mugcd is a reading of its paper, for which no code is public: its results are no reproduction'
    >>> reading_note(Settings(method="simgcd"))
    ''
    """
    if not getattr(method_of(settings), "READING", False):
        return ""
    reading = f"{method_name(settings)} is a reading of its paper, for which no code is public"
    return f"{reading}: its results are no reproduction"


def with_own(settings: Settings, values: Mapping[str, object]) -> Settings:
    """The same with other values of shared settings or of the method's own, by name."""
    values = dict(values)
    if "method" in values:
        settings = replace(settings, method=cast(Any, values.pop("method")))
    own = own_settings(settings)
    of_method = {name: value for name, value in values.items() if name in own.__dataclass_fields__}
    shared = {name: value for name, value in values.items() if name not in of_method}
    for name in shared:
        if name not in Settings.__dataclass_fields__:
            guess = did_you_mean(name, [*Settings.__dataclass_fields__, *own.__dataclass_fields__])
            raise SettingError(name, values[name], f"is not a setting of {method_name(settings)}{guess}")
    return replace(settings, method=replace(own, **of_method), **cast(Any, shared))


def with_method(settings: Settings, name: str) -> Settings:
    """The same with another method: what was set of the method's own settings holds where the other has it, too, and
    shared ones where they have an effect.

    >>> base = with_own(Settings(epochs=5, method="sdas"), {"entropy_weight": 3.0})
    >>> with_method(base, "simgcd").method.entropy_weight, with_method(base, "kmeans").epochs
    (3.0, None)
    """
    chosen, other = own_settings(settings), method_of(replace(settings, method=cast(Any, name)))
    names = {field.name for field in fields(other.Settings)}
    own = {
        field.name: getattr(chosen, field.name)
        for field in fields(chosen)
        if field.name in names and getattr(chosen, field.name) != field.default
    }
    settings = replace(settings, method=cast(MethodSettings, other.Settings(**own)))
    return replace(settings, **{name: getattr(Settings, name) for name in without_effect(settings)})
