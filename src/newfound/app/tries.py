"""What to try, as it is typed: NAME=VALUE,VALUE ..."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, get_type_hints

from newfound.app.options import readers
from newfound.errors import UserError
from newfound.methods import load
from newfound.settings import Settings, method_name

SWITCH = {"true": True, "false": False}


def changes_of(words: Sequence[str], base: Settings) -> list[dict[str, Any]]:
    """The changes of settings that one --try asks for: every combination of the values in it.

    >>> changes_of(["method=simgcd", "start=random,clusters"], Settings())
    [{'method': 'simgcd', 'start': 'random'}, {'method': 'simgcd', 'start': 'clusters'}]
    >>> changes_of(["rho=0,0.05"], Settings())
    [{'rho': 0.0}, {'rho': 0.05}]
    """
    pairs = dict(_pair(word) for part in words for word in part.split())
    combinations = product(*([(name, value) for value in values] for name, values in pairs.items()))
    return [_read(dict(combination), base) for combination in combinations]


def _pair(word: str) -> tuple[str, list[str]]:
    name, sign, values = word.partition("=")
    if not (name and sign and all(values.split(","))):
        raise UserError(f"--try {word} must be NAME=VALUE, or NAME=VALUE,VALUE for several: a setting and what to try")
    return name.removeprefix("--").replace("-", "_"), values.split(",")


def _read(texts: dict[str, str], base: Settings) -> dict[str, Any]:
    """Values of the types that the settings have; an unknown name is left to whoever knows what there is."""
    method = method_name(Settings(method=texts.get("method", method_name(base))))
    hints = {**get_type_hints(Settings), **get_type_hints(load(method).Settings)}
    return {name: _value(name, text, hints[name]) if name in hints else text for name, text in texts.items()}


def _value(name: str, text: str, hint: Any) -> Any:
    if hint is bool:
        return SWITCH.get(text.lower(), text)
    for reader in readers(name, hint):
        return reader.instance_from_str([text])
    return text
