"""Settings as tables of a TOML file, and back."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tomli_w

from newfound.errors import UserError
from newfound.settings import MethodSettings
from newfound.settings.value_types import fits, is_path

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
        raise UserError(f"{path} has {', '.join(odd)} outside of a section: it is malformed")
    return content


def from_table(cls: type[S], table: dict[str, Any], source: Path) -> S:
    """The dataclass that a table holds; raises if it has unknown names or values of another type."""
    hints = get_type_hints(cls)
    if unknown := sorted(set(table) - {field.name for field in fields(cls)}):
        raise UserError(f"{source} has settings this version does not know: {', '.join(unknown)}. Update newfound.")
    for name, value in table.items():
        if not fits(value, hints[name]):
            raise UserError(f"{source} has {name} = {value!r}, which is not a value of that setting")
    return cls(**{name: Path(value) if is_path(hints[name]) else value for name, value in table.items()})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: _writable(v) for k, v in values.items() if v is not None}


def _writable(value: Any) -> Any:
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return _utf8(str(value)) if isinstance(value, (str, Path)) else value


def _utf8(text: str) -> str:
    """TOML is UTF-8; a path need not be."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
