"""How often the bytes of a file are read."""

import builtins
import hashlib
import io
from collections import Counter

import numpy as np
import pytest

from helping.pictures import picture
from newfound.images import decode, read_folder
from newfound.images.decode import Unreadable, open_image, open_with_digest
from newfound.screen import Screen
from newfound.sources.bank import open_bank
from newfound.sources.fresh_views import FreshViews

FORMATS = {"jpg": {}, "png": {}, "webp": {}, "gif": {}, "bmp": {}, "tiff": {}, "lzw.tiff": {"compression": "tiff_lzw"}}


@pytest.fixture
def bytes_read(monkeypatch):
    """File name to the number of its bytes read so far."""
    counted = Counter()

    class Counted(io.FileIO):
        def readinto(self, buffer):
            return self._note(super().readinto(buffer))

        def readall(self):
            content = super().readall()
            self._note(len(content))
            return content

        def _note(self, number):
            counted[self.name.name] += number
            return number

    real = builtins.open

    def counting(file, mode="r", *args, **kwargs):
        return io.BufferedReader(Counted(file)) if mode == "rb" else real(file, mode, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", counting)
    return counted


@pytest.fixture
def photos(tmp_path):
    for number, (ending, options) in enumerate(FORMATS.items()):
        path = tmp_path / "photos" / f"{number}.{ending}"
        path.parent.mkdir(exist_ok=True)
        picture("red", number, size=200).save(path, **options)
    return tmp_path / "photos"


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_a_folder_is_looked_through_with_one_pass_over_each_file(photos, bytes_read):
    assert len(read_folder(photos)) == len(FORMATS)
    assert bytes_read == sizes(photos)


def test_a_bank_is_built_with_one_more(photos, bytes_read, quick_backbone, tmp_path):
    table = read_folder(photos)
    bytes_read.clear()
    open_bank(table, quick_backbone, views=2, folder=tmp_path / "banks", screen=Screen(quiet=True))
    assert {name: bytes_read[name] for name in sizes(photos)} == sizes(photos)


def test_fresh_views_read_an_image_once_for_both(photos, bytes_read, quick_backbone):
    table = read_folder(photos)
    bytes_read.clear()
    FreshViews(table, quick_backbone).read_pair(np.arange(len(table)), 0, 0)
    assert bytes_read == sizes(photos)


def test_what_is_no_image_is_not_read_to_its_end(tmp_path, bytes_read):
    film = tmp_path / "film.mp4"
    film.write_bytes(bytes(10_000_000))
    with pytest.raises(Unreadable):
        open_with_digest(film)
    assert 0 < bytes_read["film.mp4"] < 1_000_000


@pytest.mark.parametrize("kept_bytes", [0, decode.KEPT_BYTES])
def test_picture_and_digest_are_those_of_the_file(photos, monkeypatch, kept_bytes):
    monkeypatch.setattr(decode, "KEPT_BYTES", kept_bytes)
    for path in photos.iterdir():
        image, digest = open_with_digest(path, shorter_side=50)
        assert image.tobytes() == open_image(path, shorter_side=50).tobytes()
        assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
