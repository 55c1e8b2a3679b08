"""Images sorted into folders: safe names, copies and links, and originals that stay as they are."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helping.exporting import HOSTILE, TWIN, Heard, digests, rows
from newfound.errors import UserError
from newfound.export import export_folders, folders
from newfound.export.folders import alike, safe_names
from newfound.export.reviewed_run import NOT_A_CLASS_NAME, REJECTED_NAME, distinct
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results


@given(st.lists(st.text(max_size=40), unique=True, max_size=12))
def test_different_classes_get_different_safe_folders(names):
    check_safe(safe_names(names), len(names))


@given(st.lists(st.sampled_from(
    ["", " ", ".", "..", "...", "a/b", "a\\b", "a_b", "CON", "con.txt", "nul ", "COM¹", "x" * 300, "é" * 300, "X" * 300,
     "Straße", "STRASSE", "e\u0301", "\u00e9", "É", "a.", "a ", "a", "A", ".a", "\0", "a\nb", "\u202egpj.exe", "\udcff",
     "classes.csv", "files.csv", "-rf", "~", "a-2", "ﬁ", "fi", "*", "?", "日本", "👩\u200d🔬"]
), unique=True))  # fmt: skip
def test_hostile_names_too(names):
    check_safe(safe_names(names), len(names))


def check_safe(found, n):
    assert len(found) == len({alike(name) for name in found}) == n
    for name in found:
        assert name == name.strip()
        assert not name.startswith(".")
        assert not name.endswith(".")
        assert 0 < len(name.encode("utf-8")) <= 140  # so it is UTF-8
        assert name.isprintable()
        assert not set(name) & set('<>:"/\\|?*\0')
        assert not folders.RESERVED.match(name)
        assert name.lower() not in folders.INDEX_FILES


def test_a_name_that_needs_no_change_keeps_it():
    assert safe_names(["a/b", "a_b", "cat"]) == ["a_b-2", "a_b", "cat"]


@given(st.lists(st.sampled_from(["a", "a-2", "a-3", "A", "b"]), max_size=30))
def test_numbers_never_meet_names(texts):
    found = distinct(texts, alike=str.lower)
    assert len({text.lower() for text in found}) == len(texts)


def test_many_equal_file_names_take_no_time():
    assert len(set(distinct(["001.png"] * 20_000))) == 20_000


def test_folders_hold_copies_and_the_originals_stay(run, tmp_path):
    before = digests(tmp_path / "images") | digests(run)
    out = export_folders(run, tmp_path / "out")
    assert digests(tmp_path / "images") | digests(run) == before
    results = read_results(run)
    assert out.files == len(results) == len(rows(tmp_path / "out" / "files.csv"))
    assert not out.missing
    for row, assigned in zip(
        sorted(rows(tmp_path / "out" / "files.csv"), key=lambda row: row["file"]),
        sorted(rows(run / "assignments.csv"), key=lambda row: row["file"]),
        strict=True,
    ):
        copy, original = tmp_path / "out" / row["copy"], tmp_path / "images" / row["file"]
        assert (row["file"], row["class"]) == (assigned["file"], assigned["class"])
        assert copy.parent.name == row["class"]
        assert not copy.is_symlink()
        assert copy.read_bytes() == original.read_bytes()
        assert copy.stat().st_mtime_ns == original.stat().st_mtime_ns
    assert sum(len(os.listdir(folder)) for folder in (tmp_path / "out").iterdir() if folder.is_dir()) == out.files
    assert {item.name for item in (tmp_path / "out").iterdir()} == {*out.names, "classes.csv", "files.csv"}


def test_folders_follow_the_decisions(reviewed, run, tmp_path):
    heard = Heard()
    out = export_folders(run, tmp_path / "out", screen=heard)
    classes = {row["folder"]: row for row in rows(tmp_path / "out" / "classes.csv")}
    assert set(classes) == set(out.names) == {name.name for name in (tmp_path / "out").iterdir() if name.is_dir()}
    assert [row["class"] for row in classes.values()] == [
        HOSTILE, "red", NOT_A_CLASS_NAME, NOT_A_CLASS_NAME, REJECTED_NAME,
    ]  # fmt: skip
    assert list(classes)[2:4] == [NOT_A_CLASS_NAME, f"{NOT_A_CLASS_NAME}-2"]  # the class keeps its name
    assert [row["kind"] for row in classes.values()] == ["known", "known", "new", "", ""]
    for row in rows(tmp_path / "out" / "files.csv"):
        image = reviewed.results.files.index(row["file"])
        name = reviewed.names.get(int(reviewed.class_of[image]), NOT_A_CLASS_NAME)
        rejected = reviewed.verdict[image] < 0
        assert row["class"] == (REJECTED_NAME if rejected else name)
        assert row["rejected_from"] == (name if rejected else "")
        assert classes[row["copy"].split("/")[0]]["class"] == row["class"]


def test_equal_file_names_do_not_meet(run, tmp_path):
    log = DecisionLog(read_results(run))
    log.decide({"action": "merge", "classes": [0, 1, 2], "into": 3}, 0)
    shutil.copy(tmp_path / "images" / "red" / "001.png", tmp_path / "images" / "x.png")
    out = export_folders(run, tmp_path / "out")
    (folder,) = out.names
    assert len(os.listdir(tmp_path / "out" / folder)) == len(log.results)
    copies = {row["file"]: row["copy"] for row in rows(tmp_path / "out" / "files.csv")}
    assert {copies["red/001.png"], copies[TWIN]} == {f"{folder}/001.png", f"{folder}/001-2.png"}


def test_links_point_to_the_originals(run, tmp_path):
    before = digests(tmp_path / "images")
    export_folders(run, tmp_path / "out", link=True)
    for row in rows(tmp_path / "out" / "files.csv"):
        link = tmp_path / "out" / row["copy"]
        assert link.is_symlink()
        assert link.samefile(tmp_path / "images" / row["file"])
    shutil.rmtree(tmp_path / "out")
    assert digests(tmp_path / "images") == before


def test_links_that_cannot_be_made_are_explained(run, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(UserError, match=r"Operation not permitted.*Without link=True, copies are made"):
        export_folders(run, tmp_path / "out", link=True)


def test_missing_originals_are_listed(run, tmp_path):
    (tmp_path / "images" / "red" / "001.png").unlink()
    shutil.rmtree(tmp_path / "images" / "green")
    (tmp_path / "images" / "green").write_text("a file now")
    heard = Heard()
    out = export_folders(run, tmp_path / "out", screen=heard)
    gone = {item.file for item in out.missing}
    assert "red/001.png" in gone
    assert len(gone) == 4
    assert {row["file"] for row in rows(tmp_path / "out" / "missing.csv")} == gone
    assert out.files == len(read_results(run)) - 4
    assert any("left out: 4 images, such as" in line for line in heard.warnings)
    shutil.rmtree(tmp_path / "images")
    with pytest.raises(UserError, match="no image of the run is still in"):
        export_folders(run, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_folders_are_not_written_where_something_is(run, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("full", "full/thing", "link"):
        with pytest.raises(UserError, match="already exists"):
            export_folders(run, tmp_path / place)
    with pytest.raises(UserError, match="is inside the images' folder"):
        export_folders(run, tmp_path / "images" / "sorted")
    assert not (tmp_path / "images" / "sorted").exists()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
        with pytest.raises(UserError, match="0 MB free"):
            export_folders(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    export_folders(run, tmp_path / "empty")


def test_a_copy_stopped_halfway_leaves_whole_files_only(run, tmp_path, monkeypatch):
    before, real, copied = digests(tmp_path / "images"), shutil.copyfile, []

    def stop(source, target):
        if len(copied) == 5:
            Path(target).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        copied.append(real(source, target))

    monkeypatch.setattr(shutil, "copyfile", stop)
    with pytest.raises(UserError, match="No space left on device"):
        export_folders(run, tmp_path / "out")
    assert digests(tmp_path / "images") == before
    assert not (tmp_path / "out" / "files.csv").exists()
    assert not (tmp_path / "out" / ".part").exists()
    whole = {value[0] for value in before.values()}
    there = list((tmp_path / "out").rglob("*.png"))
    assert len(there) == 5
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() in whole for path in there)
