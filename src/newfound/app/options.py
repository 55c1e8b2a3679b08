"""Options as --help shows them: what values are called, paragraphs, and boxes of options made of plain dataclasses."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import partial, reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser
import tyro
from tyro.constructors import PrimitiveConstructorSpec

from newfound.errors import SettingError, UserError
from newfound.text import did_you_mean

T = TypeVar("T")

# What values are called. A file or folder has no default to show: where it matters, the help text says what happens
NUMBER = tyro.conf.arg(metavar="N")
NAME = tyro.conf.arg(metavar="NAME")
FILE = tyro.conf.arg(metavar="FILE", help_behavior_hint="")
FOLDER = tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]

USUAL_REPEAT = 3
NUMBER_OF_SEEDS = tyro.conf.arg(metavar="N", help_behavior_hint=f"(default: {USUAL_REPEAT})")
SEEDS = tyro.conf.arg(metavar="N [N ...]", help_behavior_hint="")


def paragraphs(cls: type[T]) -> type[T]:
    """Let --help show each field's docstring as one paragraph: tyro would break lines where the source does."""
    hints, plain = get_type_hints(cls, include_extras=True), get_type_hints(cls)
    for name, text in help_texts(cls).items():
        cls.__annotations__[name] = Annotated[(hints[name], tyro.conf.arg(help=text), *_readers(name, plain[name]))]
    return cls


def help_texts(cls: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and of its bases, each as one paragraph.

    >>> from newfound.settings import Settings
    >>> help_texts(Settings)["image_size"]
    'Side of the square the backbone sees, in pixels.'
    """
    return {
        param.arg_name: " ".join((param.description or "").split())
        for base in reversed(cls.__mro__)
        if "__dataclass_fields__" in vars(base)
        for param in docstring_parser.parse_from_object(base).params
    }


def description(cls: type) -> str:
    """A docstring as wide as the terminal, level with what is in the boxes: tyro would not break its lines."""
    width = shutil.get_terminal_size().columns - 2
    blocks = (" ".join(block.split()) for block in (cls.__doc__ or "").split("\n\n"))
    return "\n".join(
        textwrap.fill(block, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        for block in blocks
    )


def seeds_of(repeat: int | None, seeds: tuple[int, ...] | None, seed: int = 0) -> tuple[int, ...]:
    """The seeds that --repeat and --seeds mean; ``seed`` is the setting, which is for one run.

    >>> seeds_of(None, None), seeds_of(2, None), seeds_of(None, (7, 4))
    ((0, 1, 2), (0, 1), (7, 4))
    """
    if seed:
        raise UserError("--seed is for one run; here --repeat says how many seeds, or --seeds says which")
    if repeat is not None and seeds is not None:
        raise UserError("--repeat says how many seeds, --seeds says which: give one of them")
    if repeat is not None and repeat < 1:
        raise UserError(f"--repeat must be at least 1; found {repeat}")
    return tuple(range(USUAL_REPEAT if repeat is None else repeat)) if seeds is None else seeds


def with_present_names(words: Sequence[str], former: Mapping[str, str]) -> list[str]:
    """The same words, with options that had another name under their present one.

    >>> with_present_names(["photos", "--seeds", "5", "--seeds=5"], {"--seeds": "--repeat"})
    ['photos', '--repeat', '5', '--repeat=5']
    """
    parts = (word.partition("=") for word in words)
    return [former.get(option, option) + sign + value for option, sign, value in parts]


def chosen_method(words: Sequence[str], default: str, names: Collection[str]) -> str:
    """What --method says; the last one counts. Which other options there are depends on it, so it is read first.

    >>> chosen_method(["photos", "--method", "gcd", "--beta", "1"], "sdas", ["sdas", "gcd"])
    'gcd'
    """
    chosen = default
    for word, following in pairwise([*words, "--"]):
        if word.startswith("--method="):
            chosen = word.removeprefix("--method=")
        elif word == "--method" and not following.startswith("--"):
            chosen = following
    if chosen not in names:
        raise UserError(f"there is no --method {chosen}{did_you_mean(chosen, names)}; there are {', '.join(names)}")
    return chosen


# Boxes of options, made of plain dataclasses

TYPED = (int, float, str, bool, Path, NoneType)  # and Literal: other parts of a union cannot be typed
FOLDERS = ("stage1",)  # settings that are folders, beside those called *_dir; other paths are files
MUST = "{name} must be {what}; found {value}"
NOTHING: Mapping[str, object] = MappingProxyType({})


class Box(NamedTuple):
    """A plain dataclass to show as a box of options: "``title`` options" and what they are ``about``, or, without a
    title, together with the command's own options. The rest is as in `option_box`."""

    settings: type
    title: str = ""
    about: str = ""
    defaults: Mapping[str, object] = NOTHING
    hidden: Collection[str] = ()


def parsed_with_boxes(command: type, words: Sequence[str], *, prog: str, boxes: Mapping[str, Box]) -> dict[str, Any]:
    """The values of a command's fields, by name, with those of ``boxes`` in place of its own or in addition.

    The options of boxes have no prefix: ``--beta``, not ``--settings.beta``.
    """
    hints = get_type_hints(command, include_extras=True)
    parts = [(own.name, hints[own.name], _default(own)) for own in fields(command) if own.name not in boxes]
    kinds = [(name, _boxed(box), field()) for name, box in boxes.items()]
    kind = make_dataclass(command.__name__, [*parts, *kinds], kw_only=True)
    parsed = vars(tyro.cli(kind, prog=prog, description=description(command), args=words))
    return {**parsed, **{name: from_box(box.settings, parsed[name]) for name, box in boxes.items()}}


def _boxed(box: Box) -> Any:
    kind = option_box(box.settings, defaults=box.defaults, hidden=box.hidden)
    return Annotated[kind, tyro.conf.arg(name=box.title, help=box.about), tyro.conf.OmitArgPrefixes]


def option_box(cls: type, *, defaults: Mapping[str, object] = NOTHING, hidden: Collection[str] = ()) -> type:
    """A dataclass for tyro with the fields of a plain one, whose field docstrings are the help texts.

    For what is None in ``cls``, a value in ``defaults`` is shown but not filled in: None means that nobody has chosen.
    What is not None in ``cls`` has its default replaced. What is ``hidden`` is no option.
    """
    hints, texts = get_type_hints(cls), help_texts(cls)
    parts: list[tuple[str, Any, Any]] = []
    for own in fields(cls):
        if own.name in hidden:
            continue
        name, value = own.name, defaults.get(own.name)
        left_open = own.default is None
        shown = None if not left_open or name == "classes" else "" if value is None else f"(default: {value})"
        argument = tyro.conf.arg(help=texts.get(name), metavar=_metavar(name, hints[name]), help_behavior_hint=shown)
        kind: Any = Annotated[(_typed(hints[name]), argument, *_readers(name, hints[name]))]
        parts.append((name, kind, _default(own) if left_open or value is None else field(default=value)))
    return make_dataclass(cls.__name__, parts, frozen=True, kw_only=True, namespace={"__doc__": cls.__doc__})


def from_box(cls: type[T], parsed: object) -> T:
    """What was parsed as an `option_box` of ``cls``; hidden fields are as by default."""
    return cls(**vars(parsed))


def _metavar(name: str, hint: Any) -> str | None:
    """What an option's value is called; None: as tyro calls it.

    >>> _metavar("bank_dir", Path | None), _metavar("rho", float | None), _metavar("views", Literal["bank", "fresh"])
    ('FOLDER', 'N', '{bank,fresh}')
    """
    if name == "classes":
        return "{N,auto}"
    for part in _parts(hint):
        if get_origin(part) is Literal:
            return "{" + ",".join(get_args(part)) + "}"
        if part is Path:
            return "FOLDER" if name.endswith("_dir") or name in FOLDERS else "FILE"
        if part in (int, float):
            return "N"
        if part is str:
            return "NAME"
    return None


def _typed(hint: Any) -> Any:
    """Of a union, what can be typed."""
    kept = [part for part in _parts(hint) if part in TYPED or get_origin(part) is Literal]
    return reduce(or_, kept) if kept else hint


def _parts(hint: Any) -> tuple[Any, ...]:
    """Of a union its parts, of another type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _readers(name: str, hint: Any) -> list[PrimitiveConstructorSpec[Any]]:
    """How a number is read, where it is one: what cannot be read is one sentence, as every mistake is."""
    kind = next((kind for kind in (int, float) if kind in _parts(hint)), None)
    if kind is None:
        return []
    read = _class_count if name == "classes" else partial(_number, name, kind)
    return [
        PrimitiveConstructorSpec(
            nargs=1,
            metavar="N",
            instance_from_str=lambda words: read(words[0]),
            is_instance=lambda value: value is None or isinstance(value, int | float),
            str_from_instance=lambda value: ["auto" if value is None else str(value)],
        )
    ]


def _number(name: str, kind: type[int] | type[float], word: str) -> float:
    try:
        return kind(word)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise SettingError(name, word, what, MUST) from None


def _class_count(word: str) -> int | None:
    if word == "auto":
        return None
    if not word.isdecimal() or int(word) < 2:
        raise SettingError("classes", word, "a whole number, at least 2, or auto", MUST)
    return int(word)


def _default(own: Field[Any]) -> Any:
    """The default of a field, for another one."""
    if own.default_factory is not MISSING:
        return field(default_factory=own.default_factory)
    return field(default=own.default)
