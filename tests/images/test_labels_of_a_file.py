"""A folder whose labels come from a file."""

import pytest

from helping.folders import labels_by_file, only_warning, put, put_image, with_labels
from newfound import images
from newfound.errors import UserError
from newfound.images import read_folder


def test_a_labels_file_gives_the_labels_and_folders_mean_nothing(root):
    table = with_labels(root, "file,label\ncat/1.png,tiger\nloose.png,wolf\ndog/2.png,\n")
    assert labels_by_file(table) == {
        "cat/1.png": "tiger",
        "dog/2.png": None,
        "loose.png": "wolf",
        "unlabelled/3.png": None,
    }
    assert table.class_names == ("tiger", "wolf")
    assert (table.skipped, table.warnings) == ((), ()), "the labels file itself is not mentioned"


def test_a_labels_file_outside_the_folder(root, tmp_path):
    labels = put(tmp_path / "elsewhere" / "labels.csv", f"file,label\n{root / 'loose.png'},wolf\n.\\cat\\1.png,tiger\n")
    table = read_folder(root, labels=labels)
    assert labels_by_file(table)["loose.png"] == "wolf"
    assert labels_by_file(table)["cat/1.png"] == "tiger"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cat/metadata.csv", "file_name,label\n1.png,3\n"),
        ("cat/metadata.jsonl", '{"file_name": "1.png", "label": 3}\n'),
    ],
)
def test_hugging_face_metadata_next_to_its_images(root, name, content):
    table = with_labels(root, content, name)
    assert labels_by_file(table)["cat/1.png"] == "3"
    assert table.class_names == ("3",)
    assert table.skipped == ()


def test_rows_without_a_file_are_named_and_their_labels_stay_known(root):
    rows = "".join(f"gone{number}.png,bird\n" for number in range(7))
    table = with_labels(root, f"file,label\ncat/1.png,cat\n{rows}")
    assert table.class_names == ("bird", "cat")
    warning = only_warning(table, "not in")
    assert "row 3 'gone0.png'" in warning
    assert "row 7 'gone4.png'; and 2 more" in warning
    assert "still make known classes" in warning
    assert "'bird'" in only_warning(table, "without a readable image")


def test_rows_whose_file_was_skipped_are_named_with_the_reason(root):
    put(root / "empty.png", b"")
    put_image(root / ".hidden.png")
    put_image(root / ".cache/x.png")
    table = with_labels(root, "file,label\ncat/1.png,cat\nempty.png,bird\n.hidden.png,cow\n.cache/x.png,cow\n")
    assert table.class_names == ("bird", "cat", "cow")
    warning = only_warning(table, "was skipped")
    assert "row 3 'empty.png' (zero bytes)" in warning
    assert "row 4 '.hidden.png' (hidden file)" in warning
    assert "row 5 '.cache/x.png' (hidden folder)" in only_warning(table, "not in")


def test_no_row_matches_a_file(root):
    with pytest.raises(UserError, match=r"no file in .* is named by its 2 rows: row 2 'a.png'; row 3 'b.png'"):
        with_labels(root, "file,label\na.png,cat\nb.png,dog\n")
    with pytest.raises(UserError, match="a header but no row"):
        with_labels(root, "file,label\n")


def test_a_wrong_labels_file_shows_before_any_image_is_read(root, monkeypatch):
    monkeypatch.setattr(images, "_read_one", lambda path: pytest.fail(f"read {path}"))
    with pytest.raises(UserError, match="is named by its 1 row:"):
        with_labels(root, "file,label\na.png,cat\n")


def test_two_labels_under_two_spellings(root):
    with pytest.raises(UserError, match=r"row 2 and row 3 both name .* as 'cat' and as 'dog'"):
        with_labels(root, "file,label\ncat/1.png,cat\ncat\\1.png,dog\n")


def test_warnings_of_the_labels_file_are_passed_on(root):
    table = with_labels(root, "file,label,note\ncat/1.png,Unlabelled,x\ncat/1.png,Unlabelled,x\n")
    only_warning(table, "'note'")
    only_warning(table, "row 2 and row 3")
    assert "leave it blank" in only_warning(table, "'Unlabelled'")


def test_look_alike_labels_and_contradictions_in_a_labels_file(root):
    put_image(root / "a.png", shade=1)
    put_image(root / "b.png", shade=1)
    table = with_labels(root, "file,label\na.png,cat\nb.png,Cat\n")
    only_warning(table, "kept apart")
    only_warning(table, "'a.png' ('cat') and 'b.png' ('Cat')")
