"""Every format and colour mode that people have on disk, and every way a file can be broken."""

import io
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
from PIL import Image, ImageOps

from newfound import decode
from newfound.decode import MAX_PIXELS, Unreadable, open_image

NOT_AN_IMAGE = "not a PNG, JPEG, WebP, GIF, BMP or TIFF image"
ORIENTATION_TAG = 0x0112


def save(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def encoded(image: Image.Image, file_format: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def noise(width: int = 50, height: int = 40) -> Image.Image:
    samples = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(samples)


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(size: tuple[int, int], depth: int, colour_type: int, pixels: bytes, extra: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", *size, depth, colour_type, 0, 0, 0)
    data = png_chunk(b"IHDR", header) + extra + png_chunk(b"IDAT", zlib.compress(pixels))
    return b"\x89PNG\r\n\x1a\n" + data + png_chunk(b"IEND", b"")


def reason_for(path: Path) -> str:
    with pytest.raises(Unreadable) as caught:
        open_image(path)
    assert str(caught.value) == caught.value.reason
    return caught.value.reason


# Formats


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_deflate"}),
        ("TIFF", {"compression": "packbits"}),
        ("TIFF", {"big_tiff": True}),
    ],
)
def test_lossless_formats_come_back_exactly(tmp_path, file_format, options):
    image = noise()
    opened = open_image(write(tmp_path / "x", encoded(image, file_format, **options)))
    assert opened.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(opened), np.asarray(image))


@pytest.mark.parametrize(
    ("file_format", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {}), ("TIFF", {"compression": "jpeg"})],
)
def test_lossy_formats_come_back_nearly(tmp_path, file_format, options):
    opened = open_image(
        write(tmp_path / "x", encoded(Image.new("RGB", (20, 10), (200, 100, 50)), file_format, **options))
    )
    assert opened.size == (20, 10)
    np.testing.assert_allclose(opened.getpixel((5, 5)), (200, 100, 50), atol=4)


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "TIFF", "PNG", "MPO"])
def test_the_first_of_several_pictures_is_taken(tmp_path, file_format):
    first, second = Image.new("RGB", (8, 8), (255, 0, 0)), Image.new("RGB", (8, 8), (0, 0, 255))
    content = encoded(first, file_format, save_all=True, append_images=[second])
    with Image.open(io.BytesIO(content)) as check:
        assert getattr(check, "n_frames", 1) == 2
    np.testing.assert_allclose(open_image(write(tmp_path / "x", content)).getpixel((4, 4)), (255, 0, 0), atol=4)


def test_the_content_decides_not_the_extension(tmp_path):
    assert open_image(save(tmp_path / "really_a_png.jpg", noise(), format="PNG")).size == (50, 40)
    assert open_image(save(tmp_path / "no_extension", noise(), format="GIF")).size == (50, 40)
    assert reason_for(write(tmp_path / "text.png", b"hello, this is not an image")) == NOT_AN_IMAGE


def test_one_pixel(tmp_path):
    assert open_image(save(tmp_path / "x.png", Image.new("RGB", (1, 1), (1, 2, 3)))).getpixel((0, 0)) == (1, 2, 3)


def test_formats_that_could_start_a_program_are_not_opened(tmp_path):
    assert reason_for(save(tmp_path / "x.eps", noise())) == NOT_AN_IMAGE
    assert reason_for(save(tmp_path / "x.ppm", noise())) == NOT_AN_IMAGE


# Colour modes


MODES_HELD = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("1", "L", "RGB", "CMYK", "YCbCr"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("1", "L", "P"),
    "BMP": ("1", "L", "P", "RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "I;16", "I;16B", "F"),
}


@pytest.mark.parametrize(
    ("file_format", "mode"), [(name, mode) for name, modes in MODES_HELD.items() for mode in modes]
)
def test_every_mode_that_a_format_holds_becomes_rgb(tmp_path, file_format, mode):
    image = Image.new(mode, (9, 6))
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 255, 255])  # without any, Pillow before 13 writes a BMP that nobody can read
    # Pillow before 13 reads YCbCr of a TIFF only where it is compressed
    options = {"compression": "tiff_lzw"} if (file_format, mode) == ("TIFF", "YCbCr") else {}
    opened = open_image(write(tmp_path / "x", encoded(image, file_format, **options)))
    assert (opened.mode, opened.size) == ("RGB", (9, 6))


@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "TIFF"])
def test_alpha_is_laid_over_white(tmp_path, file_format):
    image = Image.new("RGBA", (3, 1))
    image.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 128)])
    options = {"lossless": True, "exact": True} if file_format == "WEBP" else {}
    opened = open_image(write(tmp_path / "x", encoded(image, file_format, **options)))
    assert opened.getpixel((0, 0)) == (255, 0, 0)
    assert opened.getpixel((1, 0)) == (255, 255, 255)
    assert opened.getpixel((2, 0)) == (127, 127, 127)


def test_grey_with_alpha_is_laid_over_white(tmp_path):
    image = Image.new("LA", (2, 1))
    image.putdata([(10, 255), (10, 0)])
    opened = open_image(save(tmp_path / "x.png", image))
    assert [opened.getpixel((x, 0)) for x in range(2)] == [(10, 10, 10), (255, 255, 255)]


@pytest.mark.parametrize("file_format", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_white(tmp_path, file_format):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putdata([0, 1])
    opened = open_image(write(tmp_path / "x", encoded(image, file_format, transparency=1)))
    assert [opened.getpixel((x, 0)) for x in range(2)] == [(255, 0, 0), (255, 255, 255)]


def test_half_transparent_palette_entries(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 0])
    image.putdata([0, 1])
    opened = open_image(save(tmp_path / "x.png", image, transparency=bytes([255, 128])))
    assert [opened.getpixel((x, 0)) for x in range(2)] == [(255, 0, 0), (127, 127, 127)]


def test_the_transparent_colour_of_a_png_without_alpha_is_white(tmp_path):
    image = Image.new("RGB", (2, 1), (9, 9, 9))
    image.putpixel((1, 0), (0, 255, 0))
    opened = open_image(save(tmp_path / "x.png", image, transparency=(0, 255, 0)))
    assert [opened.getpixel((x, 0)) for x in range(2)] == [(9, 9, 9), (255, 255, 255)]


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_16_bit_grey_is_scaled_not_clipped(tmp_path, suffix):
    samples = np.array([[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16)
    opened = open_image(save(tmp_path / f"x.{suffix}", Image.fromarray(samples)))
    assert [opened.getpixel((x, 0)) for x in range(6)] == [(v, v, v) for v in (0, 0, 1, 1, 128, 255)]


def test_big_endian_16_bit_tiff(tmp_path):
    samples = np.array([[0, 32768, 65535]], dtype=">u2")
    opened = open_image(save(tmp_path / "x.tiff", Image.fromarray(samples)))
    assert [opened.getpixel((x, 0))[0] for x in range(3)] == [0, 128, 255]


def test_16_bit_grey_with_a_transparent_value(tmp_path):
    pixels = b"\0" + struct.pack(">2H", 0, 32768)
    content = png((2, 1), 16, 0, pixels, png_chunk(b"tRNS", struct.pack(">H", 0)))
    opened = open_image(write(tmp_path / "x.png", content))
    assert [opened.getpixel((x, 0))[0] for x in range(2)] == [255, 128]


def test_16_bit_colour(tmp_path):
    pixels = b"\0" + struct.pack(">6H", 65535, 0, 0, 0x1234, 0x5678, 0x9ABC)
    opened = open_image(write(tmp_path / "x.png", png((2, 1), 16, 2, pixels)))
    assert [opened.getpixel((x, 0)) for x in range(2)] == [(255, 0, 0), (0x12, 0x56, 0x9A)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([[0, 32768, 65535]], dtype=np.int32), [0, 128, 255]),  # within 16 bits: full range
        (np.array([[0, 50_000, 100_000]], dtype=np.int32), [0, 128, 255]),  # beyond: own range
        (np.array([[-100, 0, 100]], dtype=np.int32), [0, 128, 255]),
        (np.array([[0.0, 0.5, 1.0]], dtype=np.float32), [0, 128, 255]),
        (np.array([[0.2, 0.2, 0.4]], dtype=np.float32), [51, 51, 102]),  # within 0 to 1: not stretched
        (np.array([[-1.0, 0.0, 1.0]], dtype=np.float32), [0, 128, 255]),
        (np.array([[-3e38, 0.0, 3e38]], dtype=np.float32), [0, 128, 255]),
        (np.array([[7.0, 7.0, 7.0]], dtype=np.float32), [0, 0, 0]),
    ],
)
def test_whole_numbers_and_floats(tmp_path, samples, expected):
    opened = open_image(save(tmp_path / "x.tiff", Image.fromarray(samples)))
    np.testing.assert_allclose([opened.getpixel((x, 0))[0] for x in range(3)], expected, atol=1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_floats_that_are_not_finite(tmp_path, value):
    samples = np.array([[0.0, value]], dtype=np.float32)
    assert "not finite" in reason_for(save(tmp_path / "x.tiff", Image.fromarray(samples)))


def test_cmyk_jpeg_with_the_inverted_inks_of_adobe(tmp_path):
    content = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    assert b"Adobe" in content
    np.testing.assert_allclose(open_image(write(tmp_path / "x", content)).getpixel((8, 8)), (255, 0, 0), atol=6)


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(tmp_path, orientation, file_format):
    upright = Image.new("RGB", (32, 16), "white")
    upright.paste((255, 0, 0), (0, 0, 16, 8))  # the top left quarter is red
    undo = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]  # values of Image.Transpose
    stored = upright if undo is None else upright.transpose(Image.Transpose(undo))
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    content = encoded(stored, file_format, exif=exif)
    opened = open_image(write(tmp_path / "x", content))
    assert opened.size == (32, 16)
    for place, colour in {(4, 3): (255, 0, 0), (27, 3): (255,) * 3, (4, 12): (255,) * 3}.items():
        np.testing.assert_allclose(opened.getpixel(place), colour, atol=20)
    assert ImageOps.exif_transpose(opened).tobytes() == opened.tobytes(), "nobody can turn it a second time"


def test_orientation_survives_a_reduced_decode(tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    path = save(tmp_path / "x.jpg", Image.new("RGB", (800, 400)), exif=exif)
    assert open_image(path, shorter_side=50).size == (100, 200)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_unknown_orientation_is_ignored(tmp_path, orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    assert open_image(save(tmp_path / "x.jpg", noise(), exif=exif)).size == (50, 40)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0",
        b"Exif\0\0nonsense",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\xff\xff\xff\x7f\0\0\0\0",
    ],
)
def test_damaged_exif_leaves_the_picture_as_it_is(tmp_path, exif):
    assert open_image(save(tmp_path / "x.jpg", noise(), exif=exif)).size == (50, 40)


# Reduced decoding


@pytest.mark.parametrize(
    ("size", "shorter_side", "expected"),
    [
        ((1600, 1200), 100, (400, 300)),  # 1200 / 4 ≥ 2 · 100 > 1200 / 8
        ((1600, 1200), 75, (200, 150)),
        ((1600, 1200), 301, (1600, 1200)),
        ((1600, 1200), 300, (800, 600)),
        ((4000, 100), 224, (4000, 100)),
        ((1600, 1200), None, (1600, 1200)),
    ],
)
def test_large_jpegs_are_decoded_reduced_but_never_below_twice_the_side(tmp_path, size, shorter_side, expected):
    path = save(tmp_path / "x.jpg", Image.new("RGB", size, (9, 99, 200)))
    opened = open_image(path, shorter_side)
    assert opened.size == expected
    np.testing.assert_allclose(opened.getpixel((0, 0)), (9, 99, 200), atol=4)


def test_other_formats_are_never_reduced(tmp_path):
    assert open_image(save(tmp_path / "x.png", Image.new("RGB", (800, 800))), 10).size == (800, 800)


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
    assert reason == "too large: 30000 × 30000 pixels, the limit is 178,956,970 in all"
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
