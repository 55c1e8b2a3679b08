"""One file on disk, read into one upright RGB picture, or a plain reason why it cannot be."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

MAX_PIXELS = 178_956_970
"""Larger images are refused: about 0.7 GB once decoded. The figure is where Pillow itself refuses."""

LARGE_PIXELS = 25_000_000
"""Larger images are decoded one at a time, so that several threads do not fill the memory together."""

KEPT_BYTES = 1 << 26
"""Larger files are read a second time for their digest instead of being kept in memory."""

# The readers are called directly, not through Image.open. So nothing but these six (and one for HEIC) sees the bytes
# (Image.open may hand a file to an external program), a refused image can be named with its size, and
# Pillow's warning about large images needs no warning filter, which could not be set for one thread alone.
_READERS: tuple[tuple[str, re.Pattern[bytes], type[ImageFile]], ...] = (
    ("PNG", re.compile(rb"\x89PNG\r\n\x1a\n"), PngImageFile),
    ("JPEG", re.compile(rb"\xff\xd8\xff"), JpegImageFile),  # also MPO, of which this is the first picture
    ("WebP", re.compile(rb"RIFF.{4}WEBP", re.DOTALL), WebPImageFile),
    ("GIF", re.compile(rb"GIF8[79]a"), GifImageFile),
    ("BMP", re.compile(rb"BM"), BmpImageFile),
    ("TIFF", re.compile(rb"II[*+]\0|MM\0[*+]|II\0\*|MM\*\0"), TiffImageFile),
)
_HEIC = re.compile(rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL)  # what telephones write
_WITHOUT_HEIC = 'HEIC image, which needs another package: pip install "newfound[heic]", or convert it to JPEG'
_LONGEST_SIGNATURE = 12

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_LONGEST_DETAIL = 200
_ONE_LARGE_IMAGE = threading.Lock()


class Unreadable(Exception):
    """A file that cannot be used as an image; `reason` says why in a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def open_image(path: Path, shorter_side: int | None = None) -> Image.Image:
    """Read the first picture of a file, upright, as RGB; raise `Unreadable` if that cannot be done.

    The content decides the format, not the file's extension. Transparent parts become white, 16-bit grey is
    scaled to 8 bits. Given `shorter_side`, a large JPEG is decoded at a half, a quarter or an eighth of its
    size, which is much faster, and keeps at least twice `shorter_side` pixels on both sides. Threads may call
    this at the same time.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "clear.png"
    >>> Image.new("LA", (2, 3), (0, 0)).save(path)
    >>> image = open_image(path)
    >>> image.mode, image.size, image.getpixel((0, 0))
    ('RGB', (2, 3), (255, 255, 255))
    """
    with _opened(path) as stream:
        return decode_image(stream, shorter_side)


def open_with_digest(path: Path, shorter_side: int | None = None) -> tuple[Image.Image, str]:
    """Like `open_image`, with the SHA-256 of the file's content: of the bytes that were decoded, which are read once.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "red.png"
    >>> Image.new("RGB", (2, 3), "red").save(path)
    >>> image, digest = open_with_digest(path)
    >>> image.size, digest == hashlib.sha256(path.read_bytes()).hexdigest()
    ((2, 3), True)
    """
    with _opened(path) as stream:
        _recognise(stream)  # before the rest is read: a film may have gigabytes
        kept = os.fstat(stream.fileno()).st_size <= KEPT_BYTES
        content = io.BytesIO(stream.read()) if kept else stream
        image = decode_image(content, shorter_side)
        content.seek(0)
        return image, hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    try:
        _check_regular_file(path)
        with open(path, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise Unreadable("no such file") from None
    except PermissionError:
        raise Unreadable("no permission to read") from None
    except OSError as error:
        raise Unreadable(_detail(error)) from error


def _check_regular_file(path: Path) -> None:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # to open a FIFO would wait for a writer for ever
        raise Unreadable("not a regular file")
    if status.st_size == 0:
        raise Unreadable("zero bytes")


def decode_image(stream: BinaryIO, shorter_side: int | None = None) -> Image.Image:
    """Like `open_image`, from an open stream."""
    name, reader = _recognise(stream)
    try:
        return _read_picture(reader, stream, shorter_side)
    except Unreadable:
        raise
    except Image.DecompressionBombError as error:  # some readers count pixels themselves
        raise Unreadable(f"too large: {_detail(error)}") from error
    except Exception as error:  # damaged bytes make Pillow's readers raise almost anything
        detail = _detail(error)
        cut_short = isinstance(error, EOFError) or "truncated" in detail.lower()
        raise Unreadable(f"truncated: {detail}" if cut_short else f"damaged {name}: {detail}") from error


def _recognise(stream: BinaryIO) -> tuple[str, type[ImageFile]]:
    start = stream.read(_LONGEST_SIGNATURE)
    stream.seek(0)
    for name, signature, reader in _READERS:
        if signature.match(start):
            return name, reader
    if _HEIC.match(start):
        return "HEIC", _heic_reader()
    raise Unreadable("not a PNG, JPEG, WebP, GIF, BMP or TIFF image")


def _heic_reader() -> type[ImageFile]:
    """Pillow has none of its own."""
    try:
        from pillow_heif import HeifImageFile
    except ImportError:
        raise Unreadable(_WITHOUT_HEIC) from None
    reader: type[ImageFile] = HeifImageFile  # it turns the picture upright, and says so in its EXIF
    return reader


def _read_picture(reader: type[ImageFile], stream: BinaryIO, shorter_side: int | None) -> Image.Image:
    image = reader(stream)
    _check_size(*image.size)
    if shorter_side is not None:
        image.draft(None, (2 * shorter_side, 2 * shorter_side))  # does something for JPEG only
    large = image.width * image.height > LARGE_PIXELS
    with _ONE_LARGE_IMAGE if large else nullcontext():
        return _upright_rgb(image)


def upright(image: Image.Image) -> Image.Image:
    """A picture that is open already, as `open_image` would have read it: upright, RGB."""
    try:
        _check_size(*image.size)
        return _upright_rgb(image)
    except OSError as error:  # its file is read only now
        raise Unreadable(_detail(error)) from error


def _upright_rgb(image: Image.Image) -> Image.Image:
    image.load()
    turn = _TURNS.get(_orientation(image))
    picture = _to_rgb(image)
    if turn is not None:
        picture = picture.transpose(turn)
    picture.info.clear()  # it still holds the orientation, which nobody may apply a second time
    return picture


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise Unreadable(f"no pixels: {width} × {height}")
    if width * height > MAX_PIXELS:
        raise Unreadable(f"too large: {width} × {height} pixels, more than the limit of {MAX_PIXELS:,}")


def _orientation(image: Image.Image) -> Any:
    """The EXIF orientation, or 1 (upright): a picture is worth more than its damaged EXIF."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # like the readers, the EXIF parser raises almost anything
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _deep_grey_to_rgb(image)
    if image.has_transparency_data:
        return _over_white(image.convert("RGBA"))
    return image.convert("RGB")


def _over_white(image: Image.Image) -> Image.Image:
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _deep_grey_to_rgb(image: Image.Image) -> Image.Image:
    samples = np.asarray(image)  # height, width
    grey = _eight_bits(samples)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):  # the one grey value that a PNG declares see-through
        grey[samples == transparent] = 255
    return Image.fromarray(grey).convert("RGB")


def _eight_bits(samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale by the full range where it is known (16 bits, or 0 to 1), else by the image's own range.

    Pillow's `convert` would clip at 255, which leaves most 16-bit images white.
    """
    if not np.isfinite(samples).all():
        raise Unreadable("pixel values that are not finite numbers")
    low, high = float(samples.min()), float(samples.max())
    is_float = samples.dtype.kind == "f"
    if not is_float and low >= 0 and high <= 65535:
        return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)  # rounded: 65535 = 255 · 257
    if is_float and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    span = high - low if high > low else 1.0
    return np.rint((samples.astype(np.float64) - low) * (255 / span)).astype(np.uint8)


def _detail(error: Exception) -> str:
    """What an exception says, on one line of bearable length."""
    text = " ".join(str(error).split())
    if not text or isinstance(error, KeyError):  # a bare key, such as 255, says nothing by itself
        text = f"{type(error).__name__} {text}".strip()
    return text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + "…"
