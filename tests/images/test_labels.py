"""What people's spreadsheets and Hugging Face's metadata files really look like."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.errors import UserError
from newfound.images.labels import LabelFile, listed, read_labels


def read(folder: Path, content: str | bytes, name: str = "labels.csv") -> LabelFile:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_labels(path)


def pairs(label_file: LabelFile) -> list[tuple[int, str, str | None]]:
    return [(row.row, row.file, row.label) for row in label_file.rows]


def error_for(folder: Path, content: str | bytes, name: str = "labels.csv") -> str:
    with pytest.raises(UserError) as caught:
        read(folder, content, name)
    assert str(folder / name) in str(caught.value), "an error names the file"
    return str(caught.value)


TWO_ROWS = [(2, "a.jpg", "cat"), (3, "b.jpg", None)]


# CSV


@pytest.mark.parametrize(
    "content",
    [
        "file,label\na.jpg,cat\nb.jpg,\n",
        "file,label\na.jpg,cat\nb.jpg,",
        "file,label\r\na.jpg,cat\r\nb.jpg,\r\n",
        "file,label\ra.jpg,cat\rb.jpg,\r",
        "\ufefffile,label\na.jpg,cat\nb.jpg,\n",
        "file;label\na.jpg;cat\nb.jpg;\n",
        "file\tlabel\na.jpg\tcat\nb.jpg\t\n",
        " File , LABEL \na.jpg, cat \nb.jpg,  \n",
        "file_name,label\na.jpg,cat\nb.jpg,\n",
        '"file","label"\n"a.jpg","cat"\n"b.jpg",""\n',
        "label,file\ncat,a.jpg\n,b.jpg\n",
        "file,label\na.jpg,cat\nb.jpg,\n\n\n",
    ],
)
def test_the_usual_ways_to_write_a_csv(tmp_path, content):
    label_file = read(tmp_path, content)
    assert pairs(label_file) == TWO_ROWS
    assert label_file.warnings == ()
    assert [row.place for row in label_file.rows] == ["row 2", "row 3"]


def test_rows_are_numbered_as_a_spreadsheet_numbers_them(tmp_path):
    content = 'file,label\n"two\nlines.jpg",cat\n\nb.jpg,dog\n'
    assert pairs(read(tmp_path, content)) == [(2, "two\nlines.jpg", "cat"), (4, "b.jpg", "dog")]


def test_quotes_delimiters_and_odd_names_in_cells(tmp_path):
    content = 'file,label\n"a,""b"".jpg","<script>"\n😀.jpg,"x;y"\n it\'s .jpg,ü\n'
    assert pairs(read(tmp_path, content)) == [
        (2, 'a,"b".jpg', "<script>"),
        (3, "😀.jpg", "x;y"),
        (4, " it's .jpg", "ü"),
    ]


def test_other_columns_are_named_in_one_warning(tmp_path):
    label_file = read(tmp_path, "file,label,width,note\na.jpg,cat,3,x\n")
    assert pairs(label_file) == [(2, "a.jpg", "cat")]
    (warning,) = label_file.warnings
    assert "'width'; 'note'" in warning


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("path,label", "'path'; 'label'"),
        ("file,class", "'file'; 'class'"),
        ("a.jpg,cat", "'a.jpg'; 'cat'"),
        ("file", "'file'"),
        ("\nfile,label", "none"),
        ("file,file_name,label", "'file'; 'file_name'; 'label'"),
        ("file,label,Label", "'file'; 'label'; 'Label'"),
    ],
)
def test_wrong_columns_are_named_with_those_expected(tmp_path, header, found):
    message = error_for(tmp_path, f"{header}\n")
    assert f"found the columns {found}" in message
    assert "file (or file_name)" in message


def test_rows_with_too_many_or_too_few_cells(tmp_path):
    message = error_for(tmp_path, "file,label\na.jpg\nb.jpg,cat\nc.jpg,dog,extra\n")
    assert "row 2 has 1 cell, the header has 2" in message
    assert "row 4 has 3 cells, the header has 2" in message
    assert "row 3" not in message


def test_a_row_without_a_file(tmp_path):
    assert "row 3 names no file" in error_for(tmp_path, "file,label\na.jpg,cat\n  ,dog\n")


def test_only_the_first_few_of_many_problems_are_listed(tmp_path):
    message = error_for(tmp_path, "file,label\n" + ",cat\n" * 12)
    assert "row 6 names no file; and 7 more" in message
    assert "row 7" not in message


def test_an_unmatched_quote(tmp_path):
    message = error_for(tmp_path, 'file,label\na.jpg,cat\n"b.jpg,dog\nc.jpg,dog\n')
    assert "row 3 is not valid CSV" in message


def test_an_endless_cell(tmp_path):
    assert "row 2 is not valid CSV" in error_for(tmp_path, "file,label\n" + "a" * 200_000 + ",cat\n")


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path, content):
    assert "is empty" in error_for(tmp_path, content)
    assert "is empty" in error_for(tmp_path, content, "metadata.jsonl")


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    assert read(tmp_path, "file,label\n").rows == ()


def test_text_that_is_not_utf8(tmp_path):
    message = error_for(tmp_path, "file,label\nMünchen.jpg,cat\n".encode("latin-1"))
    assert "byte 0xfc at offset 12" in message
    assert "UTF-8" in message
    assert "offset 0" in error_for(tmp_path, "file,label\n".encode("utf-16"))


def test_the_offset_counts_a_byte_order_mark(tmp_path):
    assert "offset 3" in error_for(tmp_path, b"\xef\xbb\xbf\xff")


def test_nul_bytes(tmp_path):
    assert "line 2 holds a NUL byte" in error_for(tmp_path, b"file,label\na\0.jpg,cat\n")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="no such labels file"):
        read_labels(tmp_path / "nowhere.csv")
    with pytest.raises(UserError, match="cannot be read"):
        read_labels(tmp_path)


# One file, several rows


def test_the_same_label_twice_is_a_warning_that_names_both_rows(tmp_path):
    label_file = read(tmp_path, "file,label\na.jpg,cat\nb.jpg,dog\na.jpg,cat\n")
    assert pairs(label_file) == [(2, "a.jpg", "cat"), (3, "b.jpg", "dog")]
    (warning,) = label_file.warnings
    assert "row 2 and row 4 both name 'a.jpg'" in warning


@pytest.mark.parametrize(("second", "shown"), [("dog", "'dog'"), ("", "unlabelled")])
def test_two_labels_are_an_error_that_names_both_rows_and_labels(tmp_path, second, shown):
    message = error_for(tmp_path, f"file,label\na.jpg,cat\na.jpg,{second}\n")
    assert f"row 2 and row 3 both name 'a.jpg', as 'cat' and as {shown}" in message


# JSON lines


def test_json_lines(tmp_path):
    lines = [{"file_name": "a.jpg", "label": "cat"}, {"file_name": "b.jpg", "label": None}]
    content = "\n".join(json.dumps(line) for line in lines)
    label_file = read(tmp_path, content, "metadata.jsonl")
    assert pairs(label_file) == [(1, "a.jpg", "cat"), (2, "b.jpg", None)]
    assert [row.place for row in label_file.rows] == ["line 1", "line 2"]


def test_json_labels_may_be_whole_numbers_blank_or_left_out(tmp_path):
    content = '{"file": "a", "label": 0}\r\n\r\n{"FILE": "b", "label": " "}\n{"file": "c"}\n'
    assert "found the columns" in error_for(tmp_path, content, "x.jsonl"), "file and FILE differ"
    label_file = read(tmp_path, content.replace("FILE", "file"), "x.jsonl")
    assert pairs(label_file) == [(1, "a", "0"), (3, "b", None), (4, "c", None)]


def test_other_json_keys_are_named_in_one_warning(tmp_path):
    content = '{"file_name": "a", "label": 1, "text": {"deep": []}}\n{"file_name": "b", "label": 1, "size": 3}\n'
    (warning,) = read(tmp_path, content, "metadata.jsonl").warnings
    assert "'text'; 'size'" in warning


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"file": "b", ', "line 2 is not valid JSON: "),
        ("[" * 100_000, "line 2 cannot be read"),
        ('{"file": "b", "label": ' + "9" * 10_000 + "}", "line 2 cannot be read"),
        ('["b", "cat"]', "line 2 is not an object"),
        ('{"label": "cat"}', "line 2 names no file"),
        ('{"file": 7, "label": "cat"}', "line 2 names no file"),
        ('{"file": "b", "label": 1.5}', "neither text, a whole number nor null: 1.5"),
        ('{"file": "b", "label": true}', "neither text, a whole number nor null: True"),
        ('{"file": "b", "label": ["cat"]}', "neither text, a whole number nor null: ['cat']"),
        ('{"file": "b", "label": "\\ud800"}', "not valid Unicode"),
        ('{"file": "a", "label": "dog"}', "line 1 and line 2 both name 'a', as 'cat' and as 'dog'"),
    ],
)
def test_bad_json_lines_are_named(tmp_path, line, problem):
    assert problem in error_for(tmp_path, f'{{"file": "a", "label": "cat"}}\n{line}\n', "labels.jsonl")


def test_json_without_any_label(tmp_path):
    message = error_for(tmp_path, '{"file_name": "a", "text": "x"}\n', "metadata.jsonl")
    assert "found the columns 'file_name'; 'text'" in message


# Any text at all

cells = st.text(alphabet=st.sampled_from('ab,;\t"\n\r \\/.é\0\ufeff'), max_size=6)
tables = st.lists(st.lists(cells, min_size=1, max_size=3).map(",".join), max_size=6).map("\n".join)


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary(), tables, tables.map(lambda text: f"file,label\n{text}")))
def test_any_csv_gives_rows_or_an_error_for_the_user(content):
    check_any_content(content, "labels.csv")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
json_lines = st.lists(
    st.fixed_dictionaries({}, optional={"file": json_values, "file_name": json_values, "label": json_values}),
    max_size=4,
).map(lambda items: "\n".join(json.dumps(item) for item in items))


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary(), json_lines))
def test_any_json_lines_give_rows_or_an_error_for_the_user(content):
    check_any_content(content, "metadata.jsonl")


def check_any_content(content: str | bytes, name: str) -> None:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", errors="surrogatepass")
    with tempfile.TemporaryDirectory() as folder:
        try:
            label_file = read(Path(folder), raw, name)
        except UserError:
            return
    names = [row.file for row in label_file.rows]
    assert len(set(names)) == len(names)
    assert all(name.strip() for name in names)
    assert all(row.label is None or row.label == row.label.strip() != "" for row in label_file.rows)


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1), st.text()), unique_by=lambda row: row[0]))
def test_what_json_writes_is_read_back(rows):
    rows = [(file, label) for file, label in rows if file.strip()]
    content = "\n".join(json.dumps({"file": file, "label": label}) for file, label in [("first", "x"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        if any(file == "first" for file, _ in rows):
            return
        label_file = read(Path(folder), content, "labels.jsonl")
    assert [(row.file, row.label) for row in label_file.rows[1:]] == [
        (file, label.strip() or None) for file, label in rows
    ]


def test_listed():
    assert listed([]) == ""
    assert listed(list("abcde")) == "a; b; c; d; e"
    assert listed(list("abcdef")) == "a; b; c; d; e; and 1 more"
