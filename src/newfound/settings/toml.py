"""Settings as tables of a TOML file, and back."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tomli_w

from newfound.errors import UserError
from newfound.settings import MethodSettings

S = TypeVar("S", bound=MethodSettings)


def to_toml(tables: dict[str, dict[str, Any]]) -> str:
    """The text of a file with these tables; what is None is left out."""
    return tomli_w.dumps({name: _plain(table) for name, table in tables.items()})


def as_table(settings: MethodSettings) -> dict[str, Any]:
    """A dataclass as a table."""
    return asdict(settings)


def read_tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file; one sentence for the user if it has none."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, or a number or nesting beyond Python's limits
        raise UserError(f"{path} is not readable as TOML: {error}") from error
    if odd := sorted(name for name, table in content.items() if not isinstance(table, dict)):
        raise UserError(f"{path} has {', '.join(odd)} outside of a section: it is not as a run writes it")
    return content


def from_table(cls: type[S], table: dict[str, Any], source: Path) -> S:
    """The dataclass that a table holds; raises if it has unknown names or values of another type."""
    hints = get_type_hints(cls)
    if unknown := sorted(set(table) - {field.name for field in fields(cls)}):
        raise UserError(f"{source} has settings this version does not know: {', '.join(unknown)}. Update newfound.")
    for name, value in table.items():
        if not fits(value, hints[name]):
            raise UserError(f"{source} has {name} = {value!r}, which is not a value of that setting")
    return cls(**{name: Path(value) if _is_path(hints[name]) else value for name, value in table.items()})


def fits(value: object, hint: Any) -> bool:
    """Is it what TOML has for this type? A whole number may stand for a float, a string is a path."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
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


def _is_path(hint: Any) -> bool:
    return hint is Path or Path in get_args(hint)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: _writable(v) for k, v in values.items() if v is not None}


def _writable(value: Any) -> Any:
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return _utf8(str(value)) if isinstance(value, (str, Path)) else value


def _utf8(text: str) -> str:
    """TOML is UTF-8; a path need not be."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
