"""Folders as people keep them: half labelled, with litter, links, damage and odd names."""

import hashlib
import os
import random
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from newfound import images
from newfound.errors import UserError
from newfound.images import ImageTable, read_folder
from newfound.images.scan import Skipped


def put_image(path: Path, shade: int | None = None) -> Path:
    """Write a small image; without a shade, one that depends on its path, so that no two are alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = tuple(hashlib.sha256(os.fsencode(path)).digest()[:3]) if shade is None else (shade,) * 3
    Image.new("RGB", (4, 3), colour).save(path, format="PNG")
    return path


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def labels_by_file(table: ImageTable) -> dict[str, str | None]:
    return {
        file: None if label < 0 else table.class_names[label]
        for file, label in zip(table.files, table.labels.tolist(), strict=True)
    }


def reasons(table: ImageTable) -> dict[str, str]:
    return {item.file: item.reason for item in table.skipped}


def only_warning(table: ImageTable, about: str) -> str:
    found = [warning for warning in table.warnings if about in warning]
    assert len(found) == 1, table.warnings
    return found[0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two labelled classes and two unlabelled images."""
    folder = tmp_path / "photos"
    for name in ["cat/1.png", "dog/2.png", "unlabelled/3.png", "loose.png"]:
        put_image(folder / name)
    return folder


# Folders as labels


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
    assert "--labels PATH" in only_warning(table, "labels.csv")


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


# What is skipped


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


# A labels file


def with_labels(root: Path, content: str, name: str = "labels.csv", **options) -> ImageTable:
    return read_folder(root, labels=put(root / name, content), **options)


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
    with pytest.raises(UserError, match=r"none of its 2 rows names a file in .*row 2 'a.png'; row 3 'b.png'"):
        with_labels(root, "file,label\na.png,cat\nb.png,dog\n")
    with pytest.raises(UserError, match="a header but no row"):
        with_labels(root, "file,label\n")


def test_a_wrong_labels_file_shows_before_any_image_is_read(root, monkeypatch):
    monkeypatch.setattr(images, "_read_one", lambda path: pytest.fail(f"read {path}"))
    with pytest.raises(UserError, match="none of its 1 rows"):
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


# Order, progress, fingerprint


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
