"""Strong views against a naive reference, and how often each change is made."""

import colorsys
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter

from newfound.images.views import strong_view, training_view, turn_hue, view_generator, views_of

DIGEST = hashlib.sha256(b"an image").hexdigest()
SIDE = 24


def photo():
    """Colourful, smooth and full of contrast."""
    across, down = np.meshgrid(np.linspace(0, 1, 30), np.linspace(0, 1, 30))
    pixels = np.stack([230 * across, 40 + 160 * down, 255 * (1 - across) * down], axis=2)
    return Image.fromarray(pixels.astype(np.uint8))


def luminance(pixels):
    return pixels @ np.array([0.299, 0.587, 0.114])


def with_hue_turned(pixels, turns):
    def one(pixel):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel / 255)
        return np.multiply(colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value), 255)

    return np.apply_along_axis(one, 2, pixels)


def reference(image, size, random):
    """The recipe in floating point, drawing as `strong_view` does."""
    pixels = np.asarray(training_view(image, size, random)).astype(float)
    if random.random() < 0.8:
        brightness, contrast, saturation = random.uniform([0.6, 0.6, 0.8], [1.4, 1.4, 1.2])
        turns = random.uniform(-0.1, 0.1)
        for k in random.permutation(4):
            if k == 0:
                pixels = brightness * pixels
            elif k == 1:
                pixels = contrast * pixels + (1 - contrast) * luminance(pixels).mean()
            elif k == 2:
                pixels = saturation * pixels + (1 - saturation) * luminance(pixels)[..., None]
            else:
                pixels = with_hue_turned(pixels, turns)
            pixels = pixels.clip(0, 255)
    if random.random() < 0.2:
        pixels = np.repeat(luminance(pixels)[..., None], 3, axis=2)
    if random.random() < 0.5:
        sigma = random.uniform(0.1, 2)
        pixels = gaussian_filter(pixels, (sigma, sigma, 0), mode="nearest")
    if random.random() < 0.1:
        pixels = np.where(pixels < 128, pixels, 255 - pixels)
    return pixels


def test_strong_views_follow_the_recipe():
    """To a few levels of 256: colours are rounded after each change, and the blur is made of boxes."""
    image = photo()
    for number in range(60):
        view = strong_view(image, SIDE, view_generator(0, DIGEST, number))
        expected = reference(image, SIDE, view_generator(0, DIGEST, number))
        assert np.abs(np.asarray(view) - expected).mean() < 2.5


def test_each_change_is_made_as_often_as_the_recipe_says():
    weak = np.full((SIDE, SIDE, 3), (230, 120, 60), dtype=np.uint8)
    weak[:, ::2] = (20, 60, 30)  # stripes, which any blur changes
    image = Image.fromarray(weak)
    strong = np.stack([strong_view(image, SIDE, view_generator(0, DIGEST, v)) for v in range(800)]).astype(int)
    grey = np.ptp(strong, axis=3).max(axis=(1, 2)) == 0
    untouched = (np.sort(strong[:, 0], axis=1) == np.sort(weak[0].astype(int), axis=0)).all(axis=(1, 2))
    assert grey.mean() == pytest.approx(0.2, abs=0.04)
    assert untouched.mean() == pytest.approx(0.2 * 0.8 * 0.5 * 0.9, abs=0.03)


@given(st.integers(0, 2**40), st.integers(1, 2**60))
def test_a_strong_view_depends_on_seed_image_and_number_only(seed, number):
    image = photo()
    together = views_of(image, 32, seed, DIGEST, [number], strong=[number, number + 1])
    assert together.shape == (4, 32, 32, 3)
    assert np.array_equal(together[:2], views_of(image, 32, seed, DIGEST, [number]))
    assert np.array_equal(together[3], views_of(image, 32, seed, DIGEST, [], strong=[number + 1])[1])


@pytest.mark.parametrize("colour", [(200, 60, 60), (10, 250, 130), (128, 128, 128), (0, 0, 0), (255, 255, 255)])
@pytest.mark.parametrize("turns", [0.0, 0.1, -0.1, 1 / 3])
def test_hue_is_turned_as_on_the_colour_wheel(colour, turns):
    found = turn_hue(Image.new("RGB", (1, 1), colour), turns).getpixel((0, 0))
    expected = with_hue_turned(np.array([[colour]], dtype=float), turns)[0, 0]
    np.testing.assert_allclose(found, expected, atol=5)
