"""Folders as labels, with the odd names that people give them."""

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

from helping.folders import labels_by_file, only_warning, put, put_image, reasons
from newfound.errors import UserError, for_the_command_line
from newfound.images import read_folder
from newfound.images.class_folders import FolderMeaning, folder_meaning


def test_class_folders_and_unlabelled_images(root):
    table = read_folder(root)
    assert labels_by_file(table) == {
        "cat/1.png": "cat",
        "dog/2.png": "dog",
        "loose.png": None,
        "unlabelled/3.png": None,
    }
    assert table.class_names == ("cat", "dog")
    assert table.labels.dtype == np.int64
    assert (len(table), table.n_known, table.n_labelled) == (4, 2, 2)
    assert (table.skipped, table.warnings) == ((), ())
    assert table.path(0) == root / "cat" / "1.png"
    assert table.digests[0] == hashlib.sha256((root / "cat/1.png").read_bytes()).hexdigest()


def test_both_spellings_of_unlabelled_in_any_case(root):
    put_image(root / "Unlabeled/4.png")
    put_image(root / "UNLABELLED/5.png")
    table = read_folder(root)
    assert table.class_names == ("cat", "dog")
    assert table.n_labelled == 2
    assert len(table) == 6


@pytest.mark.parametrize("name", ["unsorted", "Misc", "OTHER", "To sort", "_rejected", "not a class", "inbox", "new"])
def test_a_folder_that_may_not_be_sorted_is_no_class_unless_somebody_says_so(root, name):
    put_image(root / name / "4.png")
    with pytest.raises(UserError, match=re.escape(f"the folder {name!r} may hold images to sort, or be a known class")):
        read_folder(root)
    as_class, to_sort = FolderMeaning(known=(name,)), FolderMeaning(unlabelled=(name,))
    assert labels_by_file(read_folder(root, folders=as_class))[f"{name}/4.png"] == name
    assert labels_by_file(read_folder(root, folders=to_sort))[f"{name}/4.png"] is None


def test_no_image_is_read_before_it_is_refused(root, monkeypatch):
    put_image(root / "misc/4.png")
    monkeypatch.setattr("newfound.images.open_with_digest", None)
    with pytest.raises(UserError, match="unlabelled='misc' for images to sort, or known='misc' for a class"):
        read_folder(root)


def test_a_refused_folder_speaks_to_its_reader_only(root):
    put_image(root / "misc/4.png")
    put_image(root / "To sort/5.png")
    with pytest.raises(UserError) as in_python:
        read_folder(root)
    assert "Pass unlabelled=['To sort', 'misc'] for" in str(in_python.value)
    assert "--" not in str(in_python.value)
    with for_the_command_line(), pytest.raises(UserError) as typed:
        read_folder(root)
    assert "Pass --unlabelled 'To sort' misc for" in str(typed.value)
    assert "=" not in str(typed.value)


def test_folders_named_in_python_are_refused_in_its_words(root):
    with pytest.raises(UserError, match=r"^unlabelled='birds': .* has no such folder; its folders: 'cat'; 'dog'"):
        folder_meaning(root, "birds", ())
    with pytest.raises(UserError, match=r"^known='cat' is for class folders, and labels='l.csv' already says"):
        folder_meaning(root, (), "cat", Path("l.csv"))


def test_names_of_classes_are_left_alone(root):
    names = ("news", "brother", "new-1", "otter", "knot", "others-2", "cat/misc")
    for name in names:
        put_image(root / name / "4.png")
    assert set(read_folder(root).class_names) == {"cat", "dog", *names[:-1]}


def test_folders_that_are_left_out_need_no_answer(root, tmp_path):
    put_image(root / "misc/4.png")
    assert read_folder(root, exclude=[root / "misc"]).class_names == ("cat", "dog")


def test_with_a_labels_file_folders_mean_nothing_but_labels_are_remarked_upon(root):
    put_image(root / "misc/4.png")
    labels = put(root.parent / "labels.csv", "file,label\nmisc/4.png,unknown\n")
    table = read_folder(root, labels=labels)
    assert table.class_names == ("unknown",)
    assert "'unknown' is taken as the name of a class" in only_warning(table, "leave it blank")


def test_unlabelled_means_something_at_the_top_only(root):
    put_image(root / "cat/unlabelled/4.png")
    assert labels_by_file(read_folder(root))["cat/unlabelled/4.png"] == "cat"


def test_nested_folders_belong_to_the_class_at_the_top(root):
    put_image(root / "cat/persian/white/4.png")
    put_image(root / "unlabelled/from/monday/5.png")
    labels = labels_by_file(read_folder(root))
    assert labels["cat/persian/white/4.png"] == "cat"
    assert labels["unlabelled/from/monday/5.png"] is None


def test_an_empty_class_folder_is_a_known_class(root):
    (root / "bird").mkdir()
    table = read_folder(root)
    assert table.class_names == ("bird", "cat", "dog")
    assert labels_by_file(table)["cat/1.png"] == "cat"
    assert "'bird'" in only_warning(table, "without a readable image")


def test_a_folder_without_labels_or_without_unlabelled_images_is_fine(tmp_path):
    put_image(tmp_path / "a/1.png")
    assert read_folder(tmp_path / "a").n_known == 0
    assert read_folder(tmp_path).n_labelled == 1


def test_names_are_sorted_by_code_point(tmp_path):
    names = ["b.png", "B.png", "a10.png", "a2.png", "ä.png", "a/1.png", "a-b/1.png", "😀.png"]
    for name in names:
        put_image(tmp_path / name)
    assert list(read_folder(tmp_path).files) == sorted(names)


ODD_NAMES = [
    "two\nlines",
    'quo"te',
    "it's",
    "<script>alert(1)</script>".replace("/", "∕"),
    "😀",
    " spaces ",
    "a,b;c",
    "back\\slash",
    "%s{}",
    "#?&",
    "-rf",
    "~",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_of_files_and_classes(root, name):
    put_image(root / name / f"{name}.png")
    table = read_folder(root)
    assert labels_by_file(table)[f"{name}/{name}.png"] == name
    assert table.fingerprint


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode on Windows")
def test_names_that_are_not_utf8_survive(root):
    name = os.fsdecode(b"caf\xe9")
    try:
        put_image(root / name / f"{name}.png")
    except OSError:
        pytest.skip("this file system refuses such names")
    table = read_folder(root)
    assert labels_by_file(table)[f"{name}/{name}.png"] == name
    assert table.path(table.files.index(f"{name}/{name}.png")).exists()
    assert len(table.fingerprint) == 64


def test_look_alike_class_names_are_kept_apart_with_a_warning(root):
    for name in ["Cat", "dog ", "caf\u00e9", "cafe\u0301"]:
        put_image(root / name / "x.png")
    table = read_folder(root)
    assert table.n_known == 6
    warning = only_warning(table, "kept apart")
    assert "'Cat' and 'cat'" in warning
    assert "'dog' and 'dog '" in warning
    assert "'cafe\u0301' and 'caf\u00e9'" in warning


def test_an_unused_labels_file_is_pointed_out(root):
    put(root / "labels.csv", "file,label\ncat/1.png,tiger\n")
    table = read_folder(root)
    assert labels_by_file(table)["cat/1.png"] == "cat"
    assert reasons(table)["labels.csv"].startswith("not a PNG")
    assert "labels='PATH'" in only_warning(table, "labels.csv")


def test_copies_under_two_labels_are_pointed_out(root):
    for name in ["cat/copy.png", "dog/copy.png", "unlabelled/copy.png", "cat/again.png"]:
        put_image(root / name, shade=7)
    warning = only_warning(read_folder(root), "under two labels")
    assert "'cat/again.png' ('cat') and 'dog/copy.png' ('dog')" in warning
    assert "unlabelled" not in warning


def test_only_the_first_few_contradictions_are_listed(root):
    for shade in range(8):
        put_image(root / f"cat/copy{shade}.png", shade)
        put_image(root / f"dog/copy{shade}.png", shade)
    warning = only_warning(read_folder(root), "under two labels")
    assert warning.endswith("and 3 more")
    assert warning.count(" and 'dog/") == 5
