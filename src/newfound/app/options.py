"""Options as --help shows them: what values are called, paragraphs, numbers that are read with one sentence."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
NAMES = tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]

USUAL_REPEAT = 3
NUMBER_OF_SEEDS = tyro.conf.arg(metavar="N", help_behavior_hint=f"(default: {USUAL_REPEAT})")
SEEDS = tyro.conf.arg(metavar="N [N ...]", help_behavior_hint="")


def paragraphs(cls: type[T]) -> type[T]:
    """Let --help show each field's docstring as one paragraph: tyro would break lines where the source does."""
    hints, plain = get_type_hints(cls, include_extras=True), get_type_hints(cls)
    for name, text in help_texts(cls).items():
        cls.__annotations__[name] = Annotated[(hints[name], tyro.conf.arg(help=text), *readers(name, plain[name]))]
    return cls


def help_texts(cls: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and of its bases, each as one paragraph.

    >>> from newfound.settings import Settings
    >>> help_texts(Settings)["image_size"]
    'Side of the square that the backbone sees, in pixels.'
    """
    return {
        param.arg_name: " ".join((param.description or "").split())
        for base in reversed(cls.__mro__)
        if "__dataclass_fields__" in vars(base)
        for param in docstring_parser.parse_from_object(base).params
    }


def description(cls: type, examples: Mapping[str, str] | None = None) -> str:
    """A docstring as wide as the terminal, level with what is in the boxes: tyro would not break its lines.

    Each of the ``examples`` is what it is for, and what one types.
    """
    blocks = [_filled(block) for block in (cls.__doc__ or "").split("\n\n")]
    lines = [f"    # {aim}\n    {words}" for aim, words in (examples or {}).items()]
    return "\n".join([*blocks, *(["  Examples:", *lines] if lines else [])])


def _filled(text: str) -> str:
    width = shutil.get_terminal_size().columns - 2
    text = " ".join(text.split())
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def seeds_of(repeat: int | None, seeds: tuple[int, ...] | None, seed: int = 0) -> tuple[int, ...]:
    """The seeds that --repeat and --seeds mean; ``seed`` is the setting, which is for one run.

    >>> seeds_of(None, None), seeds_of(2, None), seeds_of(None, (7, 4))
    ((0, 1, 2), (0, 1), (7, 4))
    """
    if seed:
        raise UserError("--seed is for a single run; here use --repeat N for N seeds, or --seeds for exact ones")
    if repeat is not None and seeds is not None:
        raise UserError("--repeat N means N seeds, --seeds names them: give only one of the two")
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


def without_the_rest_of_help(words: Sequence[str]) -> list[str]:
    """Only --help, if it is asked for: the usage line would leave out what was given along with it.

    >>> without_the_rest_of_help(["photos", "--help"]), without_the_rest_of_help(["photos"])
    (['--help'], ['photos'])
    """
    return ["--help"] if {"-h", "--help"} & set(words) else list(words)


def chosen_method(words: Sequence[str], default: str, names: Collection[str]) -> str:
    """What --method says; the last one counts. Which other options there are depends on it, so it is read first.

    >>> chosen_method(["photos", "--method", "gcd", "--beta", "1"], "sdas", ["sdas", "gcd"])
    'gcd'
    """
    chosen = typed_value(words, "--method")
    chosen = default if chosen is None else chosen
    if chosen not in names:
        raise UserError(f"there is no --method {chosen}{did_you_mean(chosen, names)}; there are {', '.join(names)}")
    return chosen


def typed_value(words: Sequence[str], option: str) -> str | None:
    """What is typed as the value of an option; the last one counts.

    >>> typed_value(["photos", "--rho=0", "--rho", "0.1"], "--rho"), typed_value(["photos"], "--rho")
    ('0.1', None)
    """
    value = None
    for word, following in pairwise([*words, "--"]):
        if word.startswith(f"{option}="):
            value = word.removeprefix(f"{option}=")
        elif word == option and not following.startswith("--"):
            value = following
    return value


# Numbers

MUST = "{name} must be {what}; found {value}"


def readers(name: str, hint: Any) -> list[PrimitiveConstructorSpec[Any]]:
    """How a number is read, where it is one: what cannot be read is one sentence, as every mistake is."""
    kind = next((kind for kind in (int, float) if kind in parts_of_union(hint)), None)
    if kind is None:
        return []
    read = _class_count if name == "classes" else partial(_number, name, kind, words_of(hint))
    return [
        PrimitiveConstructorSpec(
            nargs=1,
            metavar="N",
            instance_from_str=lambda words: read(words[0]),
            is_instance=lambda value: value is None or isinstance(value, int | float) or value in words_of(hint),
            str_from_instance=lambda value: ["auto" if value is None else str(value)],
        )
    ]


def _number(name: str, kind: type[int] | type[float], words: Sequence[str], word: str) -> float | str:
    if word in words:
        return word
    try:
        return kind(word)
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        what = f"{', '.join(words)} or {number}" if words else number
        raise SettingError(name, word, what, MUST) from None


def _class_count(word: str) -> int | None:
    if word == "auto":
        return None
    if not word.isdecimal() or int(word) < 2:
        raise SettingError("classes", word, "a whole number, at least 2, or auto", MUST)
    return int(word)


def words_of(hint: Any) -> tuple[str, ...]:
    """What may be typed instead of a number.

    >>> words_of(Literal["auto", "none"] | float)
    ('auto', 'none')
    """
    return tuple(word for part in parts_of_union(hint) if get_origin(part) is Literal for word in get_args(part))


def parts_of_union(hint: Any) -> tuple[Any, ...]:
    """Of a union its parts, of another type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
