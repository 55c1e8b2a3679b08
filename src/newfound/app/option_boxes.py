"""Boxes of options, made of plain dataclasses: the settings of a run as --help shows them, in named groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType, NoneType, SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_origin, get_type_hints

import tyro

from newfound.app.options import description, help_texts, parts_of_union, readers, words_of

T = TypeVar("T")

TYPED = (int, float, str, bool, Path, NoneType)  # and Literal: other parts of a union cannot be typed
NOTHING: Mapping[str, object] = MappingProxyType({})


class Box(NamedTuple):
    """A plain dataclass to show as a box of options: "``title`` options" and what they are ``about``, or, without a
    title, together with the command's own options. ``texts`` replace help texts. Paths are files, but those called
    *_dir and in ``folders`` are folders. The rest is as in `option_box`."""

    settings: type
    title: str = ""
    about: str = ""
    defaults: Mapping[str, object] = NOTHING
    hidden: Collection[str] = ()
    texts: Mapping[str, str] = MappingProxyType({})
    folders: Collection[str | None] = ()


Part = tuple[str, Any, Any]  # of a dataclass: the name, type and default of a field


def parsed_with_boxes(
    command: type,
    words: Sequence[str],
    *,
    prog: str,
    boxes: Mapping[str, Box],
    groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
    examples: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The values of a command's fields, by name, with those of ``boxes`` in place of its own or in addition.

    The options of boxes have no prefix: ``--beta``, not ``--settings.beta``. ``groups`` are titles with the names of
    fields, of the command and of boxes without a title: so they are shown. What is in none of them comes first, then
    the group without a title.
    """
    hints = get_type_hints(command, include_extras=True)
    own = [(own.name, hints[own.name], _default(own)) for own in fields(command) if own.name not in boxes]
    loose = [part for box in boxes.values() if not box.title for part in _parts_of(box)]
    kind = make_dataclass(command.__name__, _arranged([*own, *loose], groups, boxes), kw_only=True)
    parsed = vars(tyro.cli(kind, prog=prog, description=description(command, examples), args=words))
    flat = reduce(or_, (vars(parsed[title]) for title in groups if title in parsed), parsed)
    filled = {name: parsed[name] if box.title else _of(box, flat) for name, box in boxes.items()}
    of_boxes: dict[str, Any] = {name: from_box(box.settings, filled[name]) for name, box in boxes.items()}
    return {**{name: flat[name] for name, _, _ in own}, **of_boxes}


def _arranged(parts: Sequence[Part], groups: Mapping[str, Sequence[str]], boxes: Mapping[str, Box]) -> list[Part]:
    """What tyro is to show, in this order: loose options, a dataclass per group, one per box."""
    by_name = {part[0]: part for part in parts}
    grouped = {title: [by_name[name] for name in names if name in by_name] for title, names in groups.items()}
    listed = {name for names in groups.values() for name in names}
    first = [*(part for part in parts if part[0] not in listed), *grouped.pop("", [])]
    kinds = [
        (title, _boxed(make_dataclass(title, own, kw_only=True), title), field())
        for title, own in grouped.items()
        if own
    ]
    kinds += [
        (name, _boxed(_dataclass_of(box), box.title, box.about), field()) for name, box in boxes.items() if box.title
    ]
    return [*first, *kinds]


def _boxed(kind: type, title: str, about: str = "") -> Any:
    return Annotated[kind, tyro.conf.arg(name=title, help=about), tyro.conf.OmitArgPrefixes]


def _of(box: Box, values: Mapping[str, Any]) -> object:
    return SimpleNamespace(**{own.name: values[own.name] for own in fields(box.settings) if own.name in values})


def option_box(cls: type, *, defaults: Mapping[str, object] = NOTHING, hidden: Collection[str] = ()) -> type:
    """A dataclass for tyro with the fields of a plain one, whose field docstrings are the help texts.

    For what is None in ``cls``, a value in ``defaults`` is shown but not filled in: None means that nobody has chosen.
    What is not None in ``cls`` has its default replaced. What is ``hidden`` is no option.
    """
    return _dataclass_of(Box(cls, defaults=defaults, hidden=hidden))


def _dataclass_of(box: Box) -> type:
    cls = box.settings
    return make_dataclass(cls.__name__, _parts_of(box), frozen=True, kw_only=True, namespace={"__doc__": cls.__doc__})


def _parts_of(box: Box) -> list[Part]:
    cls, defaults = box.settings, box.defaults
    hints, texts = get_type_hints(cls), {**help_texts(cls), **box.texts}
    parts: list[Part] = []
    for own in fields(cls):
        if own.name in box.hidden:
            continue
        name, value, text = own.name, defaults.get(own.name), texts.get(own.name)
        left_open = own.default is None
        shown = None if not left_open or name == "classes" else _default_shown(value, text)
        argument = tyro.conf.arg(help=text, metavar=_metavar(name, hints[name], box.folders), help_behavior_hint=shown)
        kind: Any = Annotated[(_typed(hints[name]), argument, *readers(name, hints[name]))]
        parts.append((name, kind, _default(own) if left_open or value is None else field(default=value)))
    return parts


def _default_shown(value: object, text: str | None) -> str:
    """Nothing where the help text states the default itself.

    >>> _default_shown(0.5, "A share."), _default_shown(0.5, "A share. Default: a half."), _default_shown(None, "It.")
    ('(default: 0.5)', '', '')
    """
    return "" if value is None or "Default: " in (text or "") else f"(default: {value})"


def from_box(cls: type[T], parsed: object) -> T:
    """What was parsed as an `option_box` of ``cls``; hidden fields are as by default."""
    return cls(**vars(parsed))


def _metavar(name: str, hint: Any, folders: Collection[str | None] = ()) -> str | None:
    """What an option's value is called; None: as tyro calls it.

    >>> _metavar("bank_dir", Path | None), _metavar("rho", float | None), _metavar("views", Literal["bank", "fresh"])
    ('FOLDER', 'N', '{bank,fresh}')
    >>> _metavar("whitening", Literal["auto", "none"] | float | None)
    '{auto,none,N}'
    """
    if name == "classes":
        return "{N,auto}"
    if words := words_of(hint):
        return "{" + ",".join([*words, *["N"] * (float in parts_of_union(hint))]) + "}"
    for part in parts_of_union(hint):
        if part is Path:
            return "FOLDER" if name.endswith("_dir") or name in folders else "FILE"
        if part in (int, float):
            return "N"
        if part is str:
            return "NAME"
    return None


def _typed(hint: Any) -> Any:
    """Of a union, what can be typed."""
    kept = [part for part in parts_of_union(hint) if part in TYPED or get_origin(part) is Literal]
    return reduce(or_, kept) if kept else hint


def _default(own: Field[Any]) -> Any:
    """The default of a field, for another one."""
    if own.default_factory is not MISSING:
        return field(default_factory=own.default_factory)
    return field(default=own.default)
