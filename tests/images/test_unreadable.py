"""Every way a file can be broken."""

import os
import random
import socket
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helping.image_files import encoded, noise, png, reason_for, save, write
from newfound.images import decode
from newfound.images.decode import MAX_PIXELS, Unreadable, open_image

ORIENTATION_TAG = 0x0112


# Files that cannot be used


def test_zero_bytes(tmp_path):
    assert reason_for(write(tmp_path / "x.jpg", b"")) == "zero bytes"


def test_missing_and_not_regular(tmp_path):
    assert reason_for(tmp_path / "nowhere.jpg") == "no such file"
    assert reason_for(tmp_path) == "not a regular file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_fifo_and_socket_are_refused_without_being_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an absolute path may be too long for a socket
    os.mkfifo(tmp_path / "pipe.jpg")
    assert reason_for(tmp_path / "pipe.jpg") == "not a regular file"  # to open it would block for ever
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.jpg")
        assert reason_for(tmp_path / "socket.jpg") == "not a regular file"


def test_no_permission(tmp_path, monkeypatch):
    path = save(tmp_path / "x.png", noise())

    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(decode, "open", refuse, raising=False)  # chmod would not stop the superuser
    assert reason_for(path) == "no permission to read"


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_half_a_file(tmp_path, file_format):
    content = encoded(noise(), file_format)
    reason = reason_for(write(tmp_path / "x", content[: len(content) // 2]))
    assert reason.startswith(("truncated: ", "damaged "))
    if file_format in ("PNG", "JPEG", "GIF", "BMP"):
        assert reason.startswith("truncated: ")


def test_a_bare_signature_is_called_damaged_not_a_foreign_format(tmp_path):
    assert reason_for(write(tmp_path / "x", b"\x89PNG\r\n\x1a\n" + b"?" * 50)).startswith("damaged PNG: ")


def test_a_huge_image_is_refused_by_its_header(tmp_path, recwarn):
    reason = reason_for(write(tmp_path / "x.png", png((30000, 30000), 8, 2, b"")))
    assert reason == "too large: 30000 × 30000 pixels, more than the limit of 178,956,970"
    assert not recwarn.list


def test_a_large_image_within_the_limit_is_read_without_a_warning(tmp_path, recwarn):
    side = 10_000
    assert Image.MAX_IMAGE_PIXELS < side * side < MAX_PIXELS
    pixels = bytes((side // 8 + 1) * side)  # one bit each
    opened = open_image(write(tmp_path / "x.png", png((side, side), 1, 0, pixels)))
    assert opened.size == (side, side)
    assert not recwarn.list


def test_a_webp_that_counts_its_own_pixels(tmp_path):
    content = bytearray(encoded(noise(), "WEBP", save_all=True, append_images=[noise().rotate(180)]))
    canvas = content.index(b"VP8X") + 12
    content[canvas : canvas + 6] = b"\xff\x3f\x00\xff\x3f\x00"  # 16384 × 16384
    assert reason_for(write(tmp_path / "x.webp", bytes(content))).startswith("too large: ")


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_an_image_without_pixels(tmp_path, size):
    assert reason_for(write(tmp_path / "x.png", png(size, 8, 2, b"")))
    content = bytearray(encoded(Image.new("RGB", (5, 5)), "BMP"))
    content[18:26] = struct.pack("<ii", *size)
    assert reason_for(write(tmp_path / "x.bmp", bytes(content)))


def test_reasons_are_short_and_on_one_line(tmp_path, monkeypatch):
    def explode(*_args):
        raise RuntimeError("a\nlong " + "story " * 100)

    monkeypatch.setattr(decode, "_read_picture", explode)
    reason = reason_for(save(tmp_path / "x.png", noise()))
    assert "\n" not in reason
    assert len(reason) < 300


@pytest.mark.parametrize("error", [MemoryError(), EOFError(), KeyError(255), zlib.error("bad"), OverflowError("big")])
def test_whatever_a_reader_raises_is_a_reason(tmp_path, monkeypatch, error):
    def explode(*_args):
        raise error

    monkeypatch.setattr(decode, "_read_picture", explode)
    reason = reason_for(save(tmp_path / "x.png", noise()))
    assert type(error).__name__ in reason or str(error) in reason


# Hostile bytes and threads


@cache
def fuzz_seeds() -> dict[str, bytes]:
    image, exif = noise(), Image.Exif()
    exif[ORIENTATION_TAG] = 6
    return {
        "png": encoded(image, "PNG"),
        "png palette": encoded(image.quantize(16), "PNG", transparency=3),
        "png 16 bit": encoded(Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20)), "PNG"),
        "jpeg": encoded(image, "JPEG", exif=exif),
        "jpeg progressive": encoded(image, "JPEG", progressive=True),
        "jpeg cmyk": encoded(image.convert("CMYK"), "JPEG"),
        "mpo": encoded(image, "MPO", save_all=True, append_images=[image]),
        "webp": encoded(image, "WEBP", exif=exif),
        "webp lossless": encoded(image.convert("RGBA"), "WEBP", lossless=True),
        "gif": encoded(image, "GIF"),
        "gif animated": encoded(image, "GIF", save_all=True, append_images=[image.rotate(90)]),
        "bmp": encoded(image, "BMP"),
        "bmp 1 bit": encoded(image.convert("1"), "BMP"),
        "tiff": encoded(image, "TIFF"),
        "tiff lzw": encoded(image, "TIFF", compression="tiff_lzw"),
        "tiff jpeg": encoded(image, "TIFF", compression="jpeg"),
        "tiff group 4": encoded(image.convert("1"), "TIFF", compression="group4"),
        "tiff float": encoded(Image.fromarray(np.ones((9, 9), dtype=np.float32)), "TIFF"),
    }


def damaged(content: bytes, rng: random.Random) -> bytes:
    result = bytearray(content)
    if rng.random() < 0.3:
        del result[rng.randrange(len(result)) :]
    for _ in range(rng.choice([0, 1, 1, 3, 10, 50]) if result else 0):
        reach = len(result) if rng.random() < 0.5 else min(len(result), 200)  # headers matter most
        result[rng.randrange(reach)] = rng.choice([0, 255, rng.randrange(256)])
    return bytes(result)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", list(fuzz_seeds()))
def test_damaged_bytes_give_an_image_or_a_reason(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(decode, "MAX_PIXELS", 1_000_000)  # so that a flipped size costs no gigabytes
    content, rng, path = fuzz_seeds()[kind], random.Random(kind), tmp_path / "x"
    for _ in range(150):
        path.write_bytes(damaged(content, rng))
        try:
            opened = open_image(path, rng.choice([None, 8]))
        except Unreadable:
            continue
        assert opened.mode == "RGB"
        assert 0 < opened.width * opened.height <= decode.MAX_PIXELS


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_threads_read_what_one_thread_reads(tmp_path):
    paths = []
    for number, content in enumerate(fuzz_seeds().values()):
        paths.append(write(tmp_path / f"{number}", content))
        paths.append(write(tmp_path / f"{number} cut", content[: len(content) // 3]))

    def outcome(path: Path) -> bytes | str:
        try:
            return open_image(path).tobytes()
        except Unreadable as error:
            return error.reason

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(outcome, paths * 5))
    assert together == [outcome(path) for path in paths] * 5
