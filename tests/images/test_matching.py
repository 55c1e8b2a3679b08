"""Which file a cell means, however it is spelled."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.errors import UserError
from newfound.images.labels import LabelFile, LabelRow
from newfound.images.matching import match_rows


def matched(root: Path, files: list[str], cells: list[str], labels_path: Path | None = None) -> dict[str, str]:
    rows = tuple(LabelRow(number, cell, "cat", f"row {number}") for number, cell in enumerate(cells, start=2))
    matches = match_rows(LabelFile(labels_path or root.parent / "labels.csv", rows, ()), root, files)
    return {row.file: file for file, row in matches.by_file.items()}


@pytest.mark.parametrize(
    "cell",
    ["sub/a.jpg", "./sub/a.jpg", "sub//a.jpg", "sub/../sub/a.jpg", "sub\\a.jpg", ".\\sub\\a.jpg", " sub/a.jpg "],
)
def test_spellings_of_a_path(tmp_path, cell):
    assert matched(tmp_path, ["sub/a.jpg"], [cell]) == {cell: "sub/a.jpg"}


def test_a_backslash_may_be_part_of_a_name(tmp_path):
    files = ["sub/a.jpg", "sub\\a.jpg"]
    assert matched(tmp_path, files, ["sub\\a.jpg"]) == {"sub\\a.jpg": "sub\\a.jpg"}


def test_spaces_may_be_part_of_a_name(tmp_path):
    assert matched(tmp_path, [" a.jpg", "a.jpg"], [" a.jpg"]) == {" a.jpg": " a.jpg"}


def test_accents_composed_or_not(tmp_path):
    composed, decomposed = "caf\u00e9.jpg", "cafe\u0301.jpg"
    assert matched(tmp_path, [decomposed], [composed]) == {composed: decomposed}
    assert matched(tmp_path, [composed, decomposed], [decomposed]) == {decomposed: decomposed}


def test_absolute_paths_inside_the_root(tmp_path, monkeypatch):
    root, link = tmp_path / "photos", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    cell = str(root / "sub" / "a.jpg")
    assert matched(root, ["sub/a.jpg"], [cell]) == {cell: "sub/a.jpg"}
    assert matched(link, ["sub/a.jpg"], [cell]) == {cell: "sub/a.jpg"}
    assert matched(root, ["a.jpg"], [str(tmp_path / "a.jpg")]) == {}
    monkeypatch.chdir(tmp_path)
    assert matched(Path("photos"), ["sub/a.jpg"], [cell]) == {cell: "sub/a.jpg"}


def test_paths_relative_to_the_labels_file(tmp_path):
    labels_path = tmp_path / ".train" / "metadata.csv"
    assert matched(tmp_path, [".train/a.jpg"], ["a.jpg"], labels_path) == {"a.jpg": ".train/a.jpg"}
    outside = tmp_path.parent / "metadata.csv"
    assert matched(tmp_path, [f"{tmp_path.name}/a.jpg"], ["a.jpg"], outside) == {}


def test_a_cell_that_could_mean_two_files_is_taken_from_the_root_with_a_warning(tmp_path):
    rows = (LabelRow(2, "a.jpg", "cat", "row 2"),)
    label_file = LabelFile(tmp_path / "sub" / "labels.csv", rows, ())
    matches = match_rows(label_file, tmp_path, ["a.jpg", "sub/a.jpg"])
    assert list(matches.by_file) == ["a.jpg"]
    assert "row 2 'a.jpg' was taken as 'a.jpg', not 'sub/a.jpg'" in matches.warnings[0]


def test_two_spellings_of_one_file(tmp_path):
    same = tuple(LabelRow(row, cell, "cat", f"row {row}") for row, cell in [(2, "a.jpg"), (3, "./a.jpg")])
    assert "row 2 and row 3" in match_rows(LabelFile(tmp_path, same, ()), tmp_path, ["a.jpg"]).warnings[0]
    other = (same[0], LabelRow(3, "./a.jpg", "dog", "row 3"))
    with pytest.raises(UserError, match="as 'cat' and as 'dog'"):
        match_rows(LabelFile(tmp_path, other, ()), tmp_path, ["a.jpg"])


@settings(deadline=None)
@given(st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_any_cell_is_found_or_not(cell, files):
    root = Path("photos")
    matches = match_rows(LabelFile(root / "l.csv", (LabelRow(2, cell, None, "row 2"),), ()), root, files)
    assert len(matches.by_file) + len(matches.missing) == 1
