"""Reports in Markdown: tables whose cells cannot break them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table, with a line break at its end.

    >>> print(table(["class", "accuracy"], [["a|b", "25.0"]]), end="")
    | class | accuracy |
    |---|---|
    | a\|b | 25.0 |
    """
    lines = [_line(header), "|" + "---|" * len(header), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {text} " if (text := escaped(cell)) else " " for cell in cells) + "|"


def escaped(text: str) -> str:
    r"""A text as one cell: on one line, and without what would end the cell.

    >>> escaped("either|or\nboth \\")
    'either\\|or both \\\\'
    """
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
