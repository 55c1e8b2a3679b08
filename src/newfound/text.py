"""Words for a person: numbers with their nouns, sentences, settings as options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

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


def closest(word: str, words: Iterable[str]) -> str:
    """The one that may have been meant, as the end of a sentence's part; empty if none is close.

    >>> closest("epoch", ["epochs", "classes"]), closest("dbscan", ["sdas", "gcd"])
    (' (did you mean epochs?)', '')
    """
    found = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


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
