"""Words for a person: numbers with their nouns, sentences, settings as options."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from newfound.errors import as_option


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun.

    >>> counted(1, "file"), counted(1234, "image"), counted(0, "new class")
    ('1 file', '1,234 images', '0 new classes')
    >>> counted(2, "category", "categories")
    '2 categories'
    """
    if number != 1:
        noun = plural or noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
    return f"{number:,} {noun}"


def sentence(text: str) -> str:
    """In one paragraph, from a capital letter to a full stop.

    >>> sentence("one training of\\nthe features")
    'One training of the features.'
    """
    text = " ".join(text.split()).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def did_you_mean(word: str, names: Collection[str]) -> str:
    """In brackets, the name that somebody may have meant.

    >>> did_you_mean("discver", ["discover", "count"]), did_you_mean("x", ["discover"])
    (' (did you mean discover?)', '')
    """
    close = difflib.get_close_matches(word, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def as_options(values: Mapping[str, object]) -> list[str]:
    """Settings as words of a command line; what is None is left out, of a tuple every value is a word.

    >>> as_options({"image_size": 32, "compile": True, "report": False, "weights": None})
    ['--image-size', '32', '--compile', '--no-report']
    """
    words: list[str] = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(as_option(name if value else f"no_{name}"))
        elif isinstance(value, tuple):
            words += [as_option(name), *map(str, value)]
        elif value is not None:
            words += [as_option(name), str(value)]
    return words
