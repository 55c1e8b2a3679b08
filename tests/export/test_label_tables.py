"""The final labels as CSV and as a workbook."""

import re
import zipfile
from xml.etree import ElementTree

import pytest

from helping.exporting import HOSTILE, rows
from newfound.app.main import parsed
from newfound.errors import UserError
from newfound.export import export_csv, export_xlsx, label_tables, workbook
from newfound.export.reviewed_run import plain
from newfound.export.workbook import write_workbook
from newfound.runs.results import read_results
from newfound.screen import Screen

SPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_workbook(path):
    """A list of rows by column letter; text as it was before it was spelt for XML."""

    def value(cell):
        if cell.get("t") == "inlineStr":
            text = cell.find(f"{SPACE}is/{SPACE}t").text or ""
            return re.sub("_x([0-9A-F]{4})_", lambda found: chr(int(found[1], 16)), text)
        number = float(cell.find(f"{SPACE}v").text)
        return bool(number) if cell.get("t") == "b" else number

    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        sheet = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))
        for name in archive.namelist():
            ElementTree.fromstring(archive.read(name))
    lines = [{cell.get("r"): value(cell) for cell in row} for row in sheet.iter(f"{SPACE}row")]
    assert all(re.fullmatch(f"[A-Z]{n}", place) for n, line in enumerate(lines, 1) for place in line)
    return [{place[0]: cell for place, cell in line.items()} for line in lines]


def test_truth_values_are_shown_as_words(tmp_path):
    """LibreOffice shows 1 and 0 unless a cell's number format says otherwise."""
    with (tmp_path / "table.xlsx").open("wb") as file:
        write_workbook(file, [["is_new"], [True], [False]])
    with zipfile.ZipFile(tmp_path / "table.xlsx") as archive:
        styles, sheet = (
            ElementTree.fromstring(archive.read(f"xl/{name}.xml")) for name in ("styles", "worksheets/sheet1")
        )
    formats = {entry.get("numFmtId"): entry.get("formatCode") for entry in styles.iter(f"{SPACE}numFmt")}
    style = styles.find(f"{SPACE}cellXfs")
    shown = [formats.get(style[int(cell.get("s", 0))].get("numFmtId")) for cell in sheet.iter(f"{SPACE}c")]
    assert shown == [None, *['"TRUE";"TRUE";"FALSE"'] * 2]


def test_the_table_has_the_decisions_that_assignments_have_not(reviewed, run, tmp_path):
    export_csv(run, tmp_path / "labels.csv")
    results = read_results(run)
    table = rows(tmp_path / "labels.csv")
    assert tuple(table[0]) == label_tables.HEADER
    assert [row["file"] for row in table] == list(results.files)
    assert [row["label"] or None for row in table] == list(results.labels)
    assert {row["label"] for row in table} >= {HOSTILE, "red", ""}
    assert {row["decided_by"] for row in table} == {"given", "person", "model"}
    assert {(row["decided_by"], row["round"]) for row in table} == {("given", ""), ("person", "1"), ("model", "1")}
    assert {row["is_new"] for row in table if not row["label"]} == {""}
    for row, model in zip(table, rows(run / "assignments.csv"), strict=True):
        assert row["model_class"] == model["class"]
        assert row["confidence"] == model["confidence"]
        assert row["given_label"] == model["given_label"]


def test_the_workbook_says_the_same(reviewed, run, tmp_path):
    export_csv(run, tmp_path / "labels.csv")
    out = export_xlsx(run, tmp_path / "labels.xlsx")
    header, *lines = read_workbook(out.file)
    assert list(header.values()) == list(label_tables.HEADER)
    assert len(lines) == out.rows == len(reviewed.results)
    for line, row in zip(lines, rows(tmp_path / "labels.csv"), strict=True):
        assert line["A"] == plain(row["file"])
        assert line.get("B", "") == row["label"]
        assert line.get("C") == {"true": True, "false": False, "": None}[row["is_new"]]
        assert line["D"] == row["decided_by"]
        assert line.get("E") == (float(row["round"]) if row["round"] else None)
        assert line["G"] == float(row["confidence"])


def test_a_name_that_begins_like_a_formula_is_text(tmp_path):
    texts = ["=1+1", "+1", "@x", "-2", "a\tb\r\n\x1b", "_x0041_", "<&>\"'", " two ", "é😀", "\ufffe"]
    with open(tmp_path / "a.xlsx", "wb") as file:
        write_workbook(file, [texts])
    (line,) = read_workbook(tmp_path / "a.xlsx")
    assert list(line.values()) == texts
    with zipfile.ZipFile(tmp_path / "a.xlsx") as archive:
        assert b"<f>" not in archive.read("xl/worksheets/sheet1.xml")


def test_the_header_stays_in_view_and_columns_fit(tmp_path):
    with open(tmp_path / "a.xlsx", "wb") as file:
        write_workbook(file, [["file", "label"], ["a/long/path/of/an/image.png", None], ["x" * 500, "cat"]])
    with zipfile.ZipFile(tmp_path / "a.xlsx") as archive:
        sheet = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))
    assert [part.tag.removeprefix(SPACE) for part in sheet] == ["sheetViews", "cols", "sheetData", "autoFilter"]
    assert sheet.find(f".//{SPACE}pane").get("state") == "frozen"
    assert [column.get("width") for column in sheet.iter(f"{SPACE}col")] == ["64", "9"]
    assert sheet.find(f"{SPACE}autoFilter").get("ref") == "A1:B3"


def test_the_same_rows_give_the_same_bytes(run, tmp_path):
    first, second = (export_xlsx(run, tmp_path / name).file.read_bytes() for name in ("a.xlsx", "b.xlsx"))
    assert first == second


def test_a_sheet_that_cannot_hold_them_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(workbook, "MOST_ROWS", 26)
    with pytest.raises(UserError, match=r"holds 25 images at most, and there are 26. Write a CSV instead"):
        export_xlsx(run, tmp_path / "a.xlsx")
    assert not (tmp_path / "a.xlsx").exists()


def test_an_oracle_stays_marked(run, tmp_path):
    lines = (run / "assignments.csv").read_bytes().splitlines()
    marked = [lines[0] + b",oracle", *(line + b",true" for line in lines[1:])]
    (run / "assignments.csv").write_bytes(b"\r\n".join(marked))
    export_csv(run, tmp_path / "labels.csv")
    assert {row["oracle"] for row in rows(tmp_path / "labels.csv")} == {"true"}


def test_the_command_writes_both(run, tmp_path):
    words = ["export", str(run), "--csv", str(tmp_path / "a.csv"), "--xlsx", str(tmp_path / "a.xlsx")]
    parsed(words).run(Screen(quiet=True))
    assert len(rows(tmp_path / "a.csv")) == len(read_workbook(tmp_path / "a.xlsx")) - 1
