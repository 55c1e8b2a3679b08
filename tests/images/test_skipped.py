"""What people keep beside their images: litter, links, damage."""

import os
import socket
from pathlib import Path

import pytest
from PIL import Image

from helping.folders import labels_by_file, put, put_image, reasons
from newfound.errors import UserError
from newfound.images import read_folder


def test_files_that_cannot_be_read_are_listed_with_a_reason(root):
    Image.effect_noise((50, 50), 99).save(root / "cat/cut.png")
    whole = (root / "cat/cut.png").read_bytes()
    put(root / "cat/cut.png", whole[: len(whole) // 2])
    put(root / "cat/empty.jpg", b"")
    put(root / "cat/notes.txt", "hello")
    put(root / "film.mp4", b"\0" * 100)
    table = read_folder(root)
    assert len(table) == 4
    found = reasons(table)
    assert list(found) == ["cat/cut.png", "cat/empty.jpg", "cat/notes.txt", "film.mp4"]
    assert found["cat/cut.png"].startswith("truncated: ")
    assert found["cat/empty.jpg"] == "zero bytes"
    assert found["cat/notes.txt"] == found["film.mp4"] == "not a PNG, JPEG, WebP, GIF, BMP or TIFF image"


def test_hidden_files_and_system_litter(root):
    for name in [".hidden.png", "cat/._1.png", "cat/Thumbs.db", "desktop.ini", ".git/x.png", "cat/.cache/deep/x.png"]:
        put_image(root / name)
    put_image(root / "__MACOSX/cat/x.png")
    table = read_folder(root)
    assert len(table) == 4
    assert table.class_names == ("cat", "dog")
    assert reasons(table) == {
        ".git": "hidden folder",
        ".hidden.png": "hidden file",
        "__MACOSX": "system folder",
        "cat/._1.png": "hidden file",
        "cat/.cache": "hidden folder",
        "cat/Thumbs.db": "system file",
        "desktop.ini": "system file",
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_fifos_and_sockets_are_skipped_without_being_opened(root, monkeypatch):
    os.mkfifo(root / "cat/pipe.png")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.png")
        found = reasons(read_folder(root))
    assert found == {"cat/pipe.png": "not a regular file", "socket.png": "not a regular file"}


def test_symbolic_links_to_files(root, tmp_path):
    elsewhere = put_image(tmp_path / "elsewhere.png")
    (root / "cat/link.png").symlink_to(elsewhere)
    (root / "cat/broken.png").symlink_to(tmp_path / "nowhere.png")
    (root / "cat/itself.png").symlink_to("itself.png")
    table = read_folder(root)
    assert labels_by_file(table)["cat/link.png"] == "cat"
    assert reasons(table) == {"cat/broken.png": "broken symbolic link", "cat/itself.png": "symbolic link loop"}


def test_symbolic_links_to_folders(root, tmp_path):
    put_image(tmp_path / "birds/1.png")
    (root / "bird").symlink_to(tmp_path / "birds")
    (root / "cat/up").symlink_to("..")
    (root / "self").symlink_to(".")
    (root / "dog/sibling").symlink_to("../cat")
    table = read_folder(root)
    assert table.class_names == ("bird", "cat", "dog")
    assert labels_by_file(table)["bird/1.png"] == "bird"
    assert labels_by_file(table)["dog/sibling/1.png"] == "dog", "a link to a sibling is no loop"
    loops = {"cat/up", "self", "dog/sibling/up"}
    assert reasons(table) == dict.fromkeys(sorted(loops), "symbolic link loop")


def test_a_folder_that_cannot_be_listed(root, monkeypatch):
    put_image(root / "secret/1.png")
    listdir = os.listdir

    def guarded(path):  # chmod would not stop the superuser
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", guarded)
    table = read_folder(root)
    assert reasons(table) == {"secret": "no permission to read"}
    assert table.class_names == ("cat", "dog", "secret"), "its name is a label all the same"


@pytest.mark.skipif(os.name == "nt", reason="paths are shorter on Windows")
def test_folders_nested_deeper_than_the_system_allows(root, monkeypatch):
    monkeypatch.chdir(root)
    for _ in range(30):  # 30 × 200 characters exceed the longest path
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    monkeypatch.chdir(root)
    table = read_folder(root)
    assert len(table) == 4
    assert "too long" in table.skipped[0].reason


def test_excluded_paths_are_left_out_altogether(root, monkeypatch):
    put_image(root / "run/kept.png")
    put_image(root / "cat/not_this.png")
    monkeypatch.chdir(root)
    table = read_folder(root, exclude=[Path("run"), root / "cat" / "not_this.png", root / "not_there_yet"])
    assert len(table) == 4
    assert (table.skipped, table.warnings) == ((), ())
    assert table.class_names == ("cat", "dog")


# Folders that cannot be used


def test_a_root_that_is_missing_or_a_file(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="this is a file"):
        read_folder(put_image(tmp_path / "x.png"))


def test_nothing_readable_is_an_error_that_counts_the_reasons(tmp_path):
    with pytest.raises(UserError, match="holds no files"):
        read_folder(tmp_path)
    for number in range(3):
        put(tmp_path / f"cat/{number}.txt", "text")
    put(tmp_path / "empty.png", b"")
    put(tmp_path / ".hidden", b"")
    with pytest.raises(UserError) as caught:
        read_folder(tmp_path)
    assert "no readable image among 4 files" in str(caught.value)
    assert "3 × not a PNG, JPEG, WebP, GIF, BMP or TIFF image; 1 × hidden file; 1 × zero bytes" in str(caught.value)
