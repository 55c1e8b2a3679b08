"""Settings to compare: those of the command, and the same with something changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from newfound.errors import SettingError
from newfound.methods import decide, first_training_from, method_of, oracle_setting, simgcd, with_method, with_own
from newfound.settings import DataFacts, Settings, method_name

USUAL_METHODS = ("kmeans", "gcd", "simgcd", "sdas")


@dataclass(frozen=True)
class Candidate:
    """One of the settings to compare."""

    name: str
    settings: Settings  # as newfound discover would be given them: what is None is decided later

    def decided(self, facts: DataFacts, epochs: int) -> Settings:
        """With nothing left open, and so many epochs where they are not among what is compared."""
        needs, settings = method_of(self.settings).NEEDS, self.settings
        if needs.training and settings.epochs is None:
            settings = replace(settings, epochs=epochs)
        classes = max(facts.known, 2) if needs.own_count else settings.classes or facts.classes
        return decide(settings, replace(facts, classes=classes))


def first_candidate(base: Settings) -> Candidate:
    """The settings as they are, with which all others are compared."""
    _check(base)
    return Candidate(f"default ({method_name(base)})", base)


def changed(base: Settings, changes: Mapping[str, Any]) -> Candidate:
    """With some settings changed, by name; raises if that is no setting, or cannot be compared.

    >>> changed(Settings(), {"method": "simgcd", "start": "random"}).name
    'method=simgcd start=random'
    """
    if "seed" in changes:
        raise SettingError("seed", changes["seed"], "is no setting to compare: a seed that does well does so by chance")
    others = {name: value for name, value in changes.items() if name != "method"}
    settings = with_method(base, changes["method"]) if "method" in changes else base
    settings = with_own(settings, others)
    _check(settings)
    return Candidate(" ".join(f"{name}={value}" for name, value in changes.items()), settings)


def _check(settings: Settings) -> None:
    """Raise if a training would know what is hidden."""
    if (name := oracle_setting(settings)) is not None:
        raise SettingError(name, True, "cannot be used here: no truth is known")
    name = method_of(settings).NEEDS.first_training_from
    if name is not None and (place := first_training_from(settings)) is not None:
        raise SettingError(name, place, "cannot be used here: that training knows the labels that are hidden")


def usual_changes(base: Settings, facts: DataFacts) -> list[dict[str, Any]]:
    """What to compare by default: a few methods, and what matters most to SimGCD."""
    weight = cast(simgcd.Settings, decide(with_method(base, simgcd.NAME), facts).method).entropy_weight
    assert weight is not None  # decided settings have it
    changes: list[dict[str, Any]] = [{"entropy_weight": float(f"{factor * weight:.3g}")} for factor in (0.5, 2)]
    changes += [{"start": start} for start in ("clusters", "random")]
    return [{"method": name} for name in USUAL_METHODS] + [{"method": simgcd.NAME, **change} for change in changes]
