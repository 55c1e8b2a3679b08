"""The table of a folder: order, progress, fingerprint, opening an image."""

import os
import random
import time
from pathlib import Path

import pytest
from PIL import Image

from helping.folders import put, put_image, with_labels
from newfound import images
from newfound.errors import UserError
from newfound.images import ImageTable, read_folder
from newfound.images.scan import Skipped


def everything(table: ImageTable) -> list[object]:
    return [table.files, table.labels.tolist(), table.class_names, table.digests, table.skipped, table.warnings]


def test_the_order_on_disk_does_not_matter(root, monkeypatch):
    put(root / "cat/notes.txt", "x")
    put(root / "empty.png", b"")
    put_image(root / "Cat/1.png", shade=5)
    put_image(root / "dog/deep/1.png", shade=5)
    (root / "dog/loop").symlink_to(".")
    expected = read_folder(root)
    listdir = os.listdir
    for seed in range(5):
        shuffle = random.Random(seed).shuffle

        def shuffled(path, shuffle=shuffle):
            names = listdir(path)
            shuffle(names)
            return names

        monkeypatch.setattr(os, "listdir", shuffled)
        table = read_folder(root)
        assert everything(table) == everything(expected)
        assert table.fingerprint == expected.fingerprint


def test_a_copy_created_in_another_order_has_the_same_fingerprint(root, tmp_path):
    original = read_folder(root)
    for file in reversed(original.files):
        put(tmp_path / "copy" / file, (root / file).read_bytes())
    copy = read_folder(tmp_path / "copy")
    assert everything(copy) == everything(original)
    assert copy.fingerprint == original.fingerprint


def test_the_order_of_label_rows_does_not_matter(root):
    rows = ["cat/1.png,a", "dog/2.png,b", "loose.png,c"]
    tables = [with_labels(root, "\n".join(["file,label", *order])) for order in (rows, rows[::-1])]
    assert everything(tables[0]) == everything(tables[1])


def test_the_fingerprint_notices_every_change(root):
    prints = [read_folder(root).fingerprint]
    put_image(root / "loose.png", shade=200)  # other content
    prints.append(read_folder(root).fingerprint)
    (root / "loose.png").rename(root / "loose2.png")  # other name
    prints.append(read_folder(root).fingerprint)
    (root / "bird").mkdir()  # another known class
    prints.append(read_folder(root).fingerprint)
    (root / "cat").rename(root / "cow")  # another label
    prints.append(read_folder(root).fingerprint)
    prints.append(with_labels(root, "file,label\nloose2.png,cow\n").fingerprint)
    assert len(set(prints)) == len(prints)


def test_progress_is_reported_for_every_file(root):
    put(root / "notes.txt", "x")
    seen: list[tuple[int, int]] = []
    read_folder(root, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 5) for done in range(1, 6)]


def test_an_interrupted_read_ends_at_once(root, monkeypatch):
    for number in range(200):
        put_image(root / f"cat/{number}.png")
    read: list[Path] = []

    def slow(path: Path) -> str:
        read.append(path)
        time.sleep(0.01)
        return "digest"

    def interrupt(_done, _total):
        raise KeyboardInterrupt

    monkeypatch.setattr(images, "_read_one", slow)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        read_folder(root, on_progress=interrupt)
    assert len(read) < 20


def test_opening_an_image_of_the_table(root):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(root / "turned.jpg", exif=exif)
    table = read_folder(root)
    index = table.files.index("turned.jpg")
    assert table.open(index).size == (4, 8)
    (root / "turned.jpg").unlink()
    with pytest.raises(UserError, match=r"turned.jpg has changed since .*no such file"):
        table.open(index)


def test_skipped_is_a_plain_record():
    assert Skipped("a", "zero bytes") == Skipped(file="a", reason="zero bytes")
