"""An Excel workbook with one sheet of text, numbers and truth values, and nothing else in it (ECMA-376)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from xml.sax.saxutils import escape

from newfound.errors import UserError

Cell = str | float | bool | None
MOST_ROWS = 1_048_576  # of a sheet
_TYPES = "application/vnd.openxmlformats-"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
SHEET = "xl/worksheets/sheet1.xml"
_START = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
    f'<Default Extension="rels" ContentType="{_TYPES}package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPES}officedocument.spreadsheetml.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPES}officedocument.spreadsheetml.worksheet+xml"/>'
    f'<Override PartName="/xl/styles.xml" ContentType="{_TYPES}officedocument.spreadsheetml.styles+xml"/>'
    "</Types>",
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_LINKS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_LINKS}">'
    '<bookViews><workbookView/></bookViews><sheets><sheet name="labels" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_LINKS}/worksheet" Target="worksheets/sheet1.xml"/>'
    f'<Relationship Id="rId2" Type="{_LINKS}/styles" Target="styles.xml"/></Relationships>',
    "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><numFmts count="1"><numFmt numFmtId="164" formatCode="'
    '&quot;TRUE&quot;;&quot;TRUE&quot;;&quot;FALSE&quot;"/></numFmts><fonts count="1"><font/></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf/></cellStyleXfs>'
    '<cellXfs count="2"><xf/><xf numFmtId="164" applyNumberFormat="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>',
}
_HEADER_STAYS = (
    '<sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>'
)
TRUTH_VALUE = 1  # of the styles: without it, LibreOffice shows 1 and 0
_WIDEST = 60  # of a column, in characters
# What XML cannot hold is spelt _x001B_, and so is what only looks like such a spelling
_SPELT = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


def check_rows(path: Path, count: int) -> None:
    """Raise if a sheet cannot hold so many below a header."""
    if count >= MOST_ROWS:
        raise UserError(
            f"{path}: a sheet holds {MOST_ROWS - 1:,} images at most, and there are {count:,}. Write a CSV instead."
        )


def write_workbook(file: IO[bytes], rows: Sequence[Sequence[Cell]]) -> None:
    """One sheet of at most 26 columns, the first row its header; the same rows give the same bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in _PARTS.items():
            archive.writestr(_entry(name), _START + text)
        with archive.open(_entry(SHEET), "w", force_zip64=True) as sheet:
            sheet.write(f'{_START}<worksheet xmlns="{_MAIN}">{_HEADER_STAYS}{_columns(rows)}<sheetData>'.encode())
            for number, row in enumerate(rows, start=1):
                cells = "".join(_cell(f"{chr(65 + i)}{number}", value) for i, value in enumerate(row))
                sheet.write(f'<row r="{number}">{cells}</row>'.encode())
            everything = f"A1:{chr(64 + len(rows[0]))}{len(rows)}"
            sheet.write(f'</sheetData><autoFilter ref="{everything}"/></worksheet>'.encode())


def wrote_workbook(path: Path) -> bool:
    """Is it one of these, with no other part in it?"""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist()) == {*_PARTS, SHEET}


def _columns(rows: Sequence[Sequence[Cell]]) -> str:
    """As wide as what is in them, with room for the button of the filter."""
    longest = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    widths = "".join(
        f'<col min="{i}" max="{i}" width="{min(length, _WIDEST) + 4}" customWidth="1"/>'
        for i, length in enumerate(longest, start=1)
    )
    return f"<cols>{widths}</cols>"


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # of 1980, not of today
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _cell(place: str, value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{place}" s="{TRUTH_VALUE}" t="b"><v>{value:d}</v></c>'
    if isinstance(value, str):
        text = escape(_SPELT.sub(lambda found: f"_x{ord(found[0]):04X}_", value))
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
    return f'<c r="{place}"><v>{value!r}</v></c>'
