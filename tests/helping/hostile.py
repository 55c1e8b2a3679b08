"""The command under bad input: how it is run and what it may answer; and what people and bad luck leave in a folder."""

from __future__ import annotations

import csv
import os
import pickle
import socket
import struct
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helping.doubles import SMALL_WIDTH, mean_colour_backbone
from helping.pictures import picture
from newfound.app.main import main
from newfound.backbones import load_backbone
from newfound.runs import model
from newfound.settings import DEFAULTS
from newfound.training import opened_images

Writer = Callable[[Path], object]
FAST = ["--epochs", "1", "--image-size", "32", "--bank-views", "2", "--batch-size", "12", "--no-report"]
RUN = [*FAST, "--classes", "4"]
NO_TRAINING = ["--method", "kmeans", *FAST[2:], "--classes", "4"]
UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)  # as Python starts


@dataclass(frozen=True)
class Answer:
    status: object
    out: str
    err: str

    def check_refused(self, words: str) -> None:
        assert self.status == 2, self.out + self.err
        assert self.err.startswith("newfound: ")
        assert all(line.startswith("  ") for line in self.err.splitlines()[1:]), f"not one sentence: {self.err}"
        assert words in self.err

    def check_done(self) -> None:
        assert self.status == 0, self.err
        assert self.err == ""


@pytest.fixture
def newfound(capfd, monkeypatch):
    """The command, in this process, on a backbone that takes no time; Python's warnings are failures."""
    monkeypatch.setenv("COLUMNS", "200")
    make_quick(monkeypatch)

    def run(*args: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["newfound", *map(str, args)])
        capfd.readouterr()
        with warnings.catch_warnings(record=True) as spilled:
            warnings.simplefilter("always")
            try:
                main()
                status: object = 0
            except SystemExit as stop:
                status = stop.code
        assert [str(w) for w in spilled if not issubclass(w.category, UNSEEN)] == []
        answer = Answer(status, *capfd.readouterr())
        assert "Traceback" not in answer.err
        return answer

    return run


def make_quick(monkeypatch) -> None:
    """A backbone and a projector that take no time."""
    monkeypatch.setattr(opened_images, "load_backbone", quick_backbone)
    monkeypatch.setattr(model, "load_backbone", quick_backbone)
    monkeypatch.setitem(DEFAULTS, "projector_width", SMALL_WIDTH)


def quick_backbone(name, *, image_size, weights=None, grad_from_block=None):
    if name != "efficientnet_lite0" or weights is not None or image_size != 32:
        return load_backbone(name, image_size=image_size, weights=weights, grad_from_block=grad_from_block)
    return replace(mean_colour_backbone(), name=name)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Case:
    """One thing that is odd: how it is made in a folder with ``images``, what is asked, and the answer.

    ``refused`` are words of the one sentence of an error; otherwise there is a result, and ``says`` is on the screen.
    """

    name: str
    prepare: Callable[[Path], object] = lambda root: None
    args: tuple[object, ...] = ()
    refused: str | None = None
    says: str = ""

    def check(self, newfound, *command: object) -> None:
        answer = newfound(*command, *self.args)
        if self.refused is not None:
            answer.check_refused(self.refused)
        else:
            answer.check_done()
            assert self.says in answer.out


# Files, each written at the path it is given


def image(number: int = 0, **options: object) -> Writer:
    """A picture like any other; its number keeps it from being a copy."""
    return lambda path: picture("blue", 100 + number).save(path, **{"format": "PNG", **options})


def content(data: bytes | str) -> Writer:
    return lambda path: path.write_bytes(data if isinstance(data, bytes) else data.encode())


def animation(kind: str) -> Writer:
    frames = [picture("yellow", 200 + i) for i in range(3)]
    return lambda path: frames[0].save(path, kind, save_all=True, append_images=frames[1:])


def converted(mode: str, kind: str) -> Writer:
    return lambda path: picture("green", 300 + len(mode)).convert(mode).save(path, kind)


def deep_grey(kind: str) -> Writer:
    samples = np.linspace(0, 65535, 40 * 40).reshape(40, 40).astype(np.uint16)
    return lambda path: Image.fromarray(samples).save(path, kind)


def clear_palette(path: Path) -> None:
    picture("red", 400).quantize(8).save(path, "PNG", transparency=bytes([0, 128, *[255] * 6]))


def cut_short(path: Path) -> None:
    picture("red", 401).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:-300])


def strip(path: Path) -> None:
    """One pixel wide and very long: brought to a width of 36 it would be enormous."""
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60_000, 1, 3)).astype(np.uint8)).save(path, "PNG")


def png_of(width: int, height: int, pixels: bytes = b"", extra: bytes = b"") -> bytes:
    """A PNG of one bit per pixel, by hand; ``pixels`` is what is in its data, compressed."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(path: Path) -> None:
    """A valid image of 30,000 × 30,000 white pixels, a tenth of a megabyte on disk."""
    packer, row = zlib.compressobj(1), b"\0" + b"\xff" * 3750
    path.write_bytes(png_of(30_000, 30_000, b"".join(packer.compress(row) for _ in range(30_000)) + packer.flush()))


def text_bomb(path: Path) -> None:
    """A small picture with a comment of a hundred megabytes."""
    comment = b"Comment\0\0" + zlib.compress(b"x" * 100_000_000, 1)
    path.write_bytes(png_of(8, 8, zlib.compress(b"\0\xff" * 8), _chunk(b"zTXt", comment)))


def listening_socket(path: Path) -> None:
    """By a relative name: that of a socket has at most 107 bytes."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def link_to(target: str) -> Writer:
    return lambda path: path.symlink_to(target)


def nested(depth: int) -> Writer:
    """An image, deep down."""

    def write(path: Path) -> None:
        deep = path.joinpath(*["d"] * depth)
        deep.mkdir(parents=True)
        image(depth)(deep / "deep.png")

    return write


class RunsCode:
    """What a pickle holds that leaves a file behind when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def pickled_code(path: Path) -> None:
    """Loading it would make the folder ``ran`` beside it."""
    path.write_bytes(pickle.dumps({"weight": RunsCode(path.parent / "ran")}))


def array_with_code(path: Path) -> None:
    np.save(path, np.array([RunsCode(path.parent / "ran")], dtype=object), allow_pickle=True)


def replaced(old: str | bytes, new: str | bytes) -> Writer:
    """A file with every ``old`` in it replaced; there has to be one."""

    def write(path: Path) -> None:
        old_bytes, new_bytes = (part if isinstance(part, bytes) else part.encode() for part in (old, new))
        before = path.read_bytes()
        assert old_bytes in before
        path.write_bytes(before.replace(old_bytes, new_bytes))

    return write


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(where: float) -> Writer:
    """One byte changed, at this share of the file."""

    def write(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(where * len(data))] ^= 0xFF
        path.write_bytes(data)

    return write
