import io

import numpy as np
import pytest
from PIL import Image

from newfound.report import thumbnails
from newfound.report.thumbnails import LADDER, gallery_order, look, make_thumbnails, thumbnail
from newfound.screen import Screen


@pytest.fixture
def noise(tmp_path):
    """Noise is what compresses worst."""
    random = np.random.default_rng(0)
    files = [f"{i}.png" for i in range(6)]
    for file in files:
        Image.fromarray(random.integers(0, 255, (120, 300, 3), dtype=np.uint8)).save(tmp_path / file)
    return tmp_path, files


def made(root, files, wanted=None, **options):
    return make_thumbnails(root, files, range(len(files)) if wanted is None else wanted, Screen(quiet=True), **options)


def test_pictures_keep_their_shape_and_are_never_enlarged(noise):
    root, files = noise
    found = made(root, files)
    picture = Image.open(io.BytesIO(found.pictures[0]))
    assert (picture.format, picture.size) == ("WEBP", (224, 90))
    Image.new("RGB", (9, 5)).save(root / "tiny.png")
    assert Image.open(io.BytesIO(thumbnail(root / "tiny.png"))).size == (9, 5)


@pytest.mark.parametrize("budget", [60_000, 20_000, 6_000])
def test_pictures_shrink_to_fit_the_budget(noise, budget):
    root, files = noise
    found = made(root, files, budget=budget)
    assert len(found.pictures) == 6
    assert sum(map(len, found.pictures.values())) <= budget


def test_a_sample_that_misleads_is_corrected(noise, monkeypatch):
    root, files = noise
    Image.new("RGB", (300, 120)).save(root / "0.png")
    monkeypatch.setattr(thumbnails, "PROBED", 1)  # sees the black one only
    found = made(root, files, budget=30_000)
    assert sum(map(len, found.pictures.values())) <= 30_000
    assert found.side < LADDER[0][0]


def test_no_budget_is_too_small_to_end(noise):
    root, files = noise
    assert len(made(root, files, budget=1).pictures) == 6


def test_files_that_are_gone_or_no_images_any_more_are_counted(noise):
    root, files = noise
    (root / "1.png").unlink()
    (root / "2.png").write_text("a letter")
    (root / "3.png").unlink()
    (root / "3.png").mkdir()
    found = made(root, [*files, "nul\0byte.png"])
    assert sorted(found.pictures) == [0, 4, 5]
    assert found.unreadable == 4
    assert len(found.looks) == 3
    assert thumbnail(root / "1.png") is None


def test_nothing_readable_at_all(tmp_path):
    found = made(tmp_path, ["a.png", "b.png"])
    assert (found.pictures, found.unreadable, found.looks.shape[0]) == ({}, 2, 0)


def test_beyond_the_limit_the_first_wanted_get_a_picture(noise, monkeypatch):
    root, files = noise
    monkeypatch.setattr(thumbnails, "MOST", 2)
    found = made(root, files, [4, 1, 0, 2, 3, 5])
    assert sorted(found.pictures) == [1, 4]
    assert found.left_out == 4


def test_gallery_order_has_every_image_once_and_both_ends_of_each_class_first():
    classes = np.array([0] * 6 + [2] * 3)
    confidence = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9, 0.8, 0.7])
    order = gallery_order(classes, confidence, first=[3, 3])
    assert order == [3, 5, 6, 0, 8, 4, 7, 1, 2]


def test_copies_compressed_scaled_or_brightened_look_alike(tmp_path):
    random = np.random.default_rng(1)
    smooth = Image.fromarray(random.integers(0, 255, (6, 8, 3), dtype=np.uint8)).resize((160, 120))
    other = Image.fromarray(random.integers(0, 255, (6, 8, 3), dtype=np.uint8)).resize((160, 120))
    smooth.save(tmp_path / "a.jpg", quality=50)
    copies = [Image.open(tmp_path / "a.jpg"), smooth.resize((80, 60)), smooth.point(lambda v: v * 0.85)]

    def cosine(a, b):
        a, b = look(a), look(b)
        return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))

    assert min(cosine(smooth, copy) for copy in copies) > 0.995
    assert cosine(smooth, other) < 0.9
