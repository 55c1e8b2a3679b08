"""Every format and colour mode that people have on disk."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

from helping.image_files import encoded, noise, png, png_chunk, reason_for, save, write
from newfound.images.decode import open_image

NOT_AN_IMAGE = "not a PNG, JPEG, WebP, GIF, BMP or TIFF image"
ORIENTATION_TAG = 0x0112


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
