"""The final label of every image as a table for people: CSV, or a workbook that spreadsheets open."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from newfound.errors import as_path
from newfound.export.outputs import check_free, new_file
from newfound.export.reviewed_run import plain
from newfound.export.workbook import Cell, check_rows, write_workbook
from newfound.runs.assignments import yes_or_no
from newfound.runs.results import Results, read_results
from newfound.screen import Screen

HEADER = ("file", "label", "is_new", "decided_by", "round", "model_class", "confidence", "given_label")


@dataclass(frozen=True)
class TableExport:
    """What was written."""

    file: Path
    rows: int


def export_csv(run: Path | str, out: Path | str, *, screen: Screen | None = None) -> TableExport:
    """Write a line per image: its label after a review, who decided it and when, and what the model says."""
    out = as_path("out", out)
    check_free(out)
    results = read_results(run)
    lines = [[_text(cell) for cell in row] for row in _rows(results)]
    with new_file(out) as file:
        csv.writer(file).writerows([_header(results), *lines])
    return _reported(out, lines, screen)


def export_xlsx(run: Path | str, out: Path | str, *, screen: Screen | None = None) -> TableExport:
    """The same as an Excel workbook. All text is text there: a name that begins with = is not a formula."""
    out = as_path("out", out)
    check_free(out)
    results = read_results(run)
    check_rows(out, len(results))
    rows = [[plain(cell) if isinstance(cell, str) else cell for cell in row] for row in _rows(results)]
    with new_file(out, "wb") as file:
        write_workbook(file, [_header(results), *rows])
    return _reported(out, rows, screen)


def _header(results: Results) -> list[Cell]:
    return [*HEADER, *results.marks]


def _rows(results: Results) -> Iterator[list[Cell]]:
    a = results.assignment
    for i, final in enumerate(results.final_labels()):
        given = int(results.given[i])
        yield [
            results.files[i], final.label, final.is_new, final.decided_by, final.round, a.name_of(a.classes[i]),
            round(float(a.confidence[i]), 6) if a.classes[i] >= 0 else None,
            a.class_names[given] if given >= 0 else None,
            *(True for _ in results.marks),
        ]  # fmt: skip


def _text(cell: Cell) -> str:
    """As assignments.csv has it."""
    if isinstance(cell, bool):
        return yes_or_no(cell)
    return "" if cell is None else f"{cell:.6f}" if isinstance(cell, float) else str(cell)


def _reported(out: Path, rows: list[list[str]] | list[list[Cell]], screen: Screen | None) -> TableExport:
    (screen or Screen(quiet=True)).say(f"{len(rows):,} rows: {out}")
    return TableExport(out, len(rows))
