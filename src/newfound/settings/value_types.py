"""Of which type the values of settings are, in files and in Python."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from newfound.errors import MUST, SettingError
from newfound.text import did_you_mean

T = TypeVar("T", bound=type[Any])


def checks_names(cls: T) -> T:
    """A dataclass of settings that answers a keyword it does not have with a UserError instead of a TypeError."""
    assign = cls.__init__

    @wraps(assign)
    def checked(self: object, *values: object, **named: object) -> None:
        for name, value in named.items():
            if name not in cls.__dataclass_fields__:
                raise SettingError(name, value, f"is not a setting of {_public_name(cls)}{_advice(cls, name)}")
        assign(self, *values, **named)

    cls.__init__ = checked
    return cls


def _advice(cls: Any, name: str) -> str:
    shared = "method" in cls.__dataclass_fields__
    elsewhere = "; a method's own settings belong in newfound.methods.NAME.Settings" if shared else ""
    return did_you_mean(name, cls.__dataclass_fields__) or elsewhere


def _public_name(cls: type) -> str:
    return f"{cls.__module__.replace('newfound.settings', 'newfound')}.{cls.__qualname__}"


def fits(value: object, hint: Any) -> bool:
    """Is it what TOML has for this type? A whole number may stand for a float, a string is a path."""
    if get_origin(hint) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return False
    return isinstance(value, str if hint is Path else hint)


def described(hint: Any) -> str:
    """The type of a setting in words.

    >>> described(int | None), described(Literal["bank", "fresh"])
    ('int or None', "one of 'bank', 'fresh'")
    """
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if parts := get_args(hint):
        return " or ".join(map(described, parts))
    return "None" if hint is type(None) else str(hint.__name__)


def is_path(hint: Any) -> bool:
    """May it be a path?"""
    return hint is Path or Path in get_args(hint)


def as_meant(settings: Any, *, besides: str = "") -> dict[str, Any]:
    """The values of a dataclass, of the types that its fields have; raises where one is of another type.

    A path may be a string, a number one of NumPy's. The field ``besides`` is not looked at.
    """
    cls: type = type(settings)
    hints = _hints(cls)
    names = [field.name for field in fields(settings) if field.name != besides]
    return {name: _of_type(name, getattr(settings, name), hints[name]) for name in names}


def _of_type(name: str, value: Any, hint: Any) -> Any:
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, str | os.PathLike) and is_path(hint):
        return Path(value)
    if not fits(value, hint):
        raise SettingError(name, value, described(hint), MUST)
    return value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)
