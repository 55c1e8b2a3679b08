"""HEIC: read if pillow-heif is installed, else named with what to install."""

import sys
from io import BytesIO
from types import ModuleType

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from helping.pictures import picture
from newfound.images import read_folder
from newfound.images.decode import Unreadable, open_image

HEADER = b"\x00\x00\x00\x1cftypheic"


def png_bytes():
    content = BytesIO()
    picture("red", 0).save(content, "PNG")
    return content.getvalue()


class StandIn(PngImageFile):
    """Reads a PNG behind the first bytes of a HEIC."""

    def __init__(self, stream):
        super().__init__(BytesIO(stream.read()[len(HEADER) :]))


def test_without_the_package_the_reason_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for brand in (b"heic", b"heix", b"hevc", b"mif1", b"msf1"):
        (tmp_path / f"{brand.decode()}.heic").write_bytes(HEADER[:8] + brand + bytes(100))
    (tmp_path / "film.mp4").write_bytes(HEADER[:8] + b"isom" + bytes(100))
    picture("red", 0).save(tmp_path / "red.png")
    reasons = {item.file: item.reason for item in read_folder(tmp_path).skipped}
    film = reasons.pop("film.mp4")
    assert film == "not a PNG, JPEG, WebP, GIF, BMP or TIFF image"
    assert set(reasons.values()) == {
        'HEIC image, which needs another package: pip install "newfound[heic]", or convert it to JPEG'
    }
    assert len(reasons) == 5


def test_with_the_package_it_is_read(tmp_path, monkeypatch):
    package = ModuleType("pillow_heif")
    package.HeifImageFile = StandIn
    monkeypatch.setitem(sys.modules, "pillow_heif", package)
    (tmp_path / "IMG_1.HEIC").write_bytes(HEADER + png_bytes())
    assert open_image(tmp_path / "IMG_1.HEIC").tobytes() == picture("red", 0).tobytes()
    (tmp_path / "IMG_2.HEIC").write_bytes(HEADER + png_bytes()[:40])
    with pytest.raises(Unreadable, match=r"damaged HEIC|truncated"):
        open_image(tmp_path / "IMG_2.HEIC")


def test_a_real_one_is_upright(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    image, turned = Image.new("RGB", (64, 48)), Image.Exif()
    image.paste((255, 0, 0), (0, 0, 20, 20))
    turned[0x112] = 6  # a quarter to the right
    heif.from_pillow(image).save(tmp_path / "turned.heic", exif=turned.tobytes())
    found = open_image(tmp_path / "turned.heic")
    assert found.size == (48, 64)
    assert found.getpixel((40, 5))[0] > 200  # the top right corner is red
    assert found.getpixel((5, 5))[0] < 50
