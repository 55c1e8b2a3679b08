import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from newfound.images.views import (
    RECIPE,
    evaluation_view,
    resize_shorter_side,
    resized_side,
    to_tensor,
    training_view,
    view_generator,
    views_of,
)

DIGEST = hashlib.sha256(b"an image").hexdigest()


def gradient(width, height):
    """Every pixel tells where it was: red is the column, green the row."""
    x, y = np.meshgrid(np.arange(width) % 256, np.arange(height) % 256)
    return Image.fromarray(np.stack([x, y, np.zeros_like(x)], axis=2).astype(np.uint8))


def test_the_published_sizes():
    assert resized_side(224) == 256
    assert resize_shorter_side(gradient(500, 375), 256).size == (341, 256)  # int(256 * 500 / 375)
    assert resize_shorter_side(gradient(375, 500), 256).size == (256, 341)
    assert resize_shorter_side(gradient(256, 256), 256).size == (256, 256)
    assert resize_shorter_side(gradient(28, 28), 256).size == (256, 256)


def test_resizing_is_bicubic():
    image = gradient(300, 200)
    expected = image.resize((384, 256), Image.Resampling.BICUBIC)
    assert np.array_equal(resize_shorter_side(image, 256), expected)


def test_evaluation_view_is_the_centre():
    pixels = np.asarray(evaluation_view(gradient(256, 240), 200))
    assert pixels.shape == (200, 200, 3)
    assert tuple(pixels[0, 0, :2]) == (28, 20)


def test_training_views_are_crops_flipped_half_of_the_time():
    image, flips, corners = gradient(100, 90), 0, set()
    for view in range(400):
        pixels = np.asarray(training_view(image, 80, view_generator(0, DIGEST, view))).astype(int)
        flipped = pixels[0, 0, 0] > pixels[0, 1, 0]
        flips += flipped
        left = pixels[0, -1 if flipped else 0, 0]
        corners.add((left, pixels[0, 0, 1]))
        across = pixels[0, ::-1, 0] if flipped else pixels[0, :, 0]
        assert np.array_equal(across, np.arange(left, left + 80))  # a crop: nothing stretched
    assert 160 < flips < 240
    assert {x for x, _ in corners} == set(range(21))  # every position is possible, the borders too
    assert {y for _, y in corners} == set(range(11))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from([32, 96, 224]))
def test_any_image_gives_views_of_the_asked_size(width, height, size):
    views = views_of(gradient(width, height), size, 0, DIGEST, [1, 2])
    assert views.shape == (3, size, size, 3)
    assert views.dtype == np.uint8


@pytest.mark.parametrize("shape", [(1, 30_000), (30_000, 1), (3, 9000)])
def test_a_strip_does_not_fill_the_memory(shape):
    assert max(resize_shorter_side(Image.new("RGB", shape), 256).size) <= 16 * 256


def test_a_view_depends_on_seed_image_and_number_only():
    image = gradient(300, 200)
    together = views_of(image, 64, 0, DIGEST, [1, 2, 3])
    for k, view in enumerate([1, 2, 3]):
        assert np.array_equal(views_of(image, 64, 0, DIGEST, [view])[1], together[1 + k])
    assert not np.array_equal(together[1], together[2])
    assert not np.array_equal(views_of(image, 64, 1, DIGEST, [1])[1], together[1])
    assert not np.array_equal(views_of(image, 64, 0, DIGEST[::-1], [1])[1], together[1])


def test_views_are_the_same_on_every_machine():
    """Pinned: if this fails, views have changed, and RECIPE must change with them or old banks would be reused."""
    draws = [view_generator(0, DIGEST, 1).integers(0, 1000, 3).tolist() for _ in range(2)]
    assert draws[0] == draws[1] == [692, 492, 533]


def test_weak_views_are_pinned():
    """Crops of an image that needs no resizing: those that every bank so far was built from."""
    views = views_of(gradient(300, 256), 224, 0, DIGEST, [1, 2, 3, 4])
    assert views[:, 0, 0, :2].tolist() == [[38, 16], [20, 16], [13, 20], [3, 7], [74, 27]]
    assert views[:, 0, -1, 0].tolist() == [5, 53, 236, 226, 41]  # two of them are mirrored
    assert RECIPE == "shorter side to size*256/224 bicubic, crop, flip 0.5; v1"


def test_to_tensor_normalises_pixels():
    pixels = np.array([[[[0, 127, 255]]]], dtype=np.uint8)
    tensor = to_tensor(pixels, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0))
    assert tensor.shape == (1, 3, 1, 1)
    np.testing.assert_allclose(tensor.flatten(), [-127 / 128, 0, 1])
