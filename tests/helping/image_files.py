"""Image files of every kind, written and read."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from newfound.images.decode import Unreadable, open_image


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
