"""How a finished run shows itself: as text, and in a notebook as a table of its classes with pictures."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from markupsafe import Markup

from newfound.errors import UserError
from newfound.finished.classes import FoundClass, found_classes
from newfound.methods import reading_note
from newfound.report.thumbnails import MEDIA_TYPE, thumbnail
from newfound.runs.decisions import reviewed_of
from newfound.runs.results import Results
from newfound.screen import shown
from newfound.text import counted

NAMED = 12  # classes of a kind that the text names
ROWS, PICTURES = 40, 6  # classes in a notebook, and images of each
STEP = 6  # of the ladder of thumbnails: 80 pixels
MODEL_ALONE = "no results here; predict() needs the model alone"
SCORES = {"all": "all", "old": "known", "new": "new"}
TABLE = Markup("<div><p><b>{run}</b>: {head}</p><table>{rows}</table>{more}</div>")
ROW = Markup(
    '<tr><td style="text-align:left"><b>{name}</b><br>{kind}, {size}</td>'
    '<td style="text-align:left">{pictures}</td></tr>'
)
PICTURE = Markup('<img src="{source}" alt="{file}" title="{file}" style="display:inline-block;margin:2px">')


def as_text(run: Path, results: Results | None, metrics: dict[str, Any] | None) -> str:
    """Images, classes with their sizes and, where there was a truth, the score."""
    if results is None:
        return f"Discovery({str(run)!r}): {MODEL_ALONE}"
    classes = found_classes(reviewed_of(results))
    lines = [f"Discovery({str(run)!r}): {_head(results, metrics)}"]
    for kind, wanted in (("known", False), ("new", True)):
        chosen = [found for found in classes if found.is_new == wanted]
        if chosen:
            lines.append(f"  {counted(len(chosen), f'{kind} class')}: {_sizes(chosen)}")
    return "\n".join(lines)


def _sizes(classes: Sequence[FoundClass]) -> str:
    named = [f"{_one_line(found.name)} ({found.size:,})" for found in classes[:NAMED]]
    rest = len(classes) - NAMED
    return ", ".join([*named, *([f"and {rest:,} more"] if rest > 0 else [])])


def _head(results: Results, metrics: dict[str, Any] | None) -> str:
    parts = [counted(len(results), "image"), f"{int((results.given >= 0).sum()):,} labelled"]
    if none := results.assignment.none():
        parts.append(f"{none:,} none of these")
    scores = {word: (metrics or {}).get(name) for name, word in SCORES.items()}
    if found := [f"{word} {100 * score:.1f} %" for word, score in scores.items() if isinstance(score, int | float)]:
        parts.append(f"accuracy {' / '.join(found)}")
    if results.oracle:
        parts.append("oracle: the truth was used in training, so this is not a result")
    if note := reading_note(results.settings):
        parts.append(note)
    return ", ".join(parts)


def as_html(run: Path, results: Results | None, metrics: dict[str, Any] | None) -> str:
    """A row per class. Names are text, whatever they hold; pictures are in it, and nothing is fetched from anywhere."""
    if results is None:
        return str(TABLE.format(run=_one_line(str(run)), head=MODEL_ALONE, rows="", more=""))
    classes = found_classes(reviewed_of(results))
    rows = Markup("").join(_row(found, results) for found in classes[:ROWS])
    rest = len(classes) - ROWS
    more = Markup("<p>and {}: see report()</p>").format(counted(rest, "more class")) if rest > 0 else ""
    return str(TABLE.format(run=_one_line(str(run)), head=_head(results, metrics), rows=rows, more=more))


def _row(found: FoundClass, results: Results) -> Markup:
    pictures = Markup("").join(
        PICTURE.format(source=f"data:{MEDIA_TYPE};base64,{base64.b64encode(data).decode()}", file=_one_line(file))
        for file, data in islice(_pictures(found, results), PICTURES)
    )
    kind = "new" if found.is_new else "known"
    return ROW.format(name=_one_line(found.name), kind=kind, size=counted(found.size, "image"), pictures=pictures)


def _pictures(found: FoundClass, results: Results) -> Iterator[tuple[str, bytes]]:
    """The most certain ones first; images that are gone are passed over."""
    try:
        root = results.root
    except UserError:  # the run does not say where its images are
        return
    for file in found.files[: 2 * PICTURES]:
        data = thumbnail(root / file, STEP)
        if data is not None:
            yield file, data


def _one_line(text: str) -> str:
    return shown(text).replace("\n", "\\n")
