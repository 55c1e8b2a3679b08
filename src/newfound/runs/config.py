"""config.toml: every setting that played a part, and where the run comes from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from newfound.errors import UserError
from newfound.methods import METHODS, draws_half_labelled, load, method_of
from newfound.settings import OF_TRAINING, MethodSettings, Settings, filled, is_vit
from newfound.settings.toml import as_table, from_table, read_tables, to_toml

RENAMED = {"kmeans": {"student_temperature": "temperature"}, "gcd": {"student_temperature": "temperature"}}


@dataclass(frozen=True)
class Config:
    """What config.toml holds."""

    settings: Settings  # with the method's own in it
    sections: dict[str, dict[str, Any]]  # of data, backbone, versions and so on
    earlier_version: bool = False  # written before methods had settings of their own


def config_text(settings: Settings, sections: dict[str, dict[str, Any]]) -> str:
    """The text of the file, of settings that are decided."""
    own = cast(MethodSettings, settings.method)
    shared = {**as_table(settings), "method": method_of(settings).NAME}
    return to_toml({"settings": _absolute(shared), "method": _absolute(as_table(own)), **sections})


def _absolute(table: dict[str, Any]) -> dict[str, Any]:
    """A run may be resumed from another folder than it was started in."""
    return {name: value.absolute() if isinstance(value, Path) else value for name, value in table.items()}


def read_config(path: Path) -> Config:
    """Read it back, in one sentence for the user if that cannot be."""
    content = read_tables(path)
    table = content.pop("settings", {})
    name = table.pop("method", "sdas")
    if name not in METHODS:
        raise UserError(f"{path} has the method {name!r}, which this version does not know. Update newfound.")
    method = load(name)
    if "classes" not in table and not method.NEEDS.own_count:
        raise UserError(f"{path} has no [settings] with a number of classes: it is not from a newfound run")
    earlier_version = "method" not in content
    if earlier_version:
        own = _own_of_earlier(method.NAME, method.Settings, table)
        table = _without_idle(table, trains=method.NEEDS.training)
    else:
        own = content.pop("method")
    settings = from_table(Settings, {**table, "method": method.NAME}, path)
    settings = replace(settings, method=from_table(method.Settings, own, path))
    settings = filled(settings, {"whitening": "none", "frozen_views": "one"})  # begun before there were these
    if settings.label_balance is None and draws_half_labelled(settings):
        settings = replace(settings, label_balance=0.0)  # or this one
    return Config(settings, content, earlier_version)


def _without_idle(table: dict[str, Any], *, trains: bool) -> dict[str, Any]:
    """Shared settings that played a part: earlier versions wrote the others as well."""
    idle: tuple[str, ...] = () if trains else OF_TRAINING
    if not is_vit(str(table.get("backbone", Settings.backbone))):
        idle += ("grad_from_block",)
    if table.get("views") == "fresh":
        idle += ("bank_views",)
    return {name: value for name, value in table.items() if name not in idle}


def _own_of_earlier(name: str, cls: type[Any], table: dict[str, Any]) -> dict[str, Any]:
    """The method's own settings out of a table that held those of all methods; the rest of them is dropped."""
    shared = {field.name for field in fields(Settings)}
    renamed = RENAMED.get(name, {})
    rest = {renamed.get(key, key): table.pop(key) for key in list(table) if key not in shared}
    known = {field.name for field in fields(cls)}
    every = {field.name for field in fields(load("sdas").Settings)} | set(renamed.values())
    return {key: value for key, value in rest.items() if key in known or key not in every}
