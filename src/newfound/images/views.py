"""Training and evaluation views of an image, with PIL alone.

A view is a square of 8-bit RGB pixels. Training views are weak (crop and flip) or strong (other colours, too). What is
drawn for one depends on the seed, the image's content and the view's number, on nothing else: not on the order of
files, the number of workers, or what ran before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

# Named in every bank: change them whenever a change here changes pixels.
RECIPE = "shorter side to size*256/224 bicubic, crop, flip 0.5; v1"
STRONG_RECIPE = (
    f"{RECIPE}; then as many with jitter of brightness 0.4, contrast 0.4, saturation 0.2, hue 0.1 (0.8), grey (0.2), "
    "blur of 0.1 to 2 px (0.5), solarise 128 (0.1); v1"
)


def resized_side(size: int) -> int:
    """The shorter side an image is brought to before a crop of ``size``: 256 for 224."""
    return round(size * 256 / 224)


def resize_shorter_side(image: Image.Image, side: int) -> Image.Image:
    """Bicubic, the longer side in proportion (rounded down, as the field's usual transform does)."""
    image = _without_absurd_ends(image)
    width, height = image.size
    if width <= height:
        new = (side, max(side, int(side * height / width)))
    else:
        new = (max(side, int(side * width / height)), side)
    return image if new == image.size else image.resize(new, Image.Resampling.BICUBIC)


def _without_absurd_ends(image: Image.Image) -> Image.Image:
    """The middle of an image longer than 16 times its width: resized whole, a 1×30,000 strip would fill the memory."""
    width, height = image.size
    keep_width, keep_height = min(width, 16 * height), min(height, 16 * width)
    if (keep_width, keep_height) == image.size:
        return image
    left, top = (width - keep_width) // 2, (height - keep_height) // 2
    return image.crop((left, top, left + keep_width, top + keep_height))


def evaluation_view(resized: Image.Image, size: int) -> Image.Image:
    """The centre crop."""
    left, top = round((resized.width - size) / 2), round((resized.height - size) / 2)
    return resized.crop((left, top, left + size, top + size))


def training_view(resized: Image.Image, size: int, random: np.random.Generator) -> Image.Image:
    """A random crop, mirrored half of the time."""
    left = int(random.integers(0, resized.width - size + 1))
    top = int(random.integers(0, resized.height - size + 1))
    crop = resized.crop((left, top, left + size, top + size))
    return crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else crop


def strong_view(resized: Image.Image, size: int, random: np.random.Generator) -> Image.Image:
    """A training view with other colours: jittered, grey, blurred and solarised, each by chance.

    >>> photo = Image.new("RGB", (40, 40), (200, 60, 60))
    >>> colours = {strong_view(photo, 32, np.random.default_rng(k)).getpixel((0, 0)) for k in range(10)}
    >>> len(colours) > 5
    True
    """
    view = training_view(resized, size, random)
    if random.random() < 0.8:
        view = _jittered(view, random)
    if random.random() < 0.2:
        view = view.convert("L").convert("RGB")
    if random.random() < 0.5:
        view = view.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2)))
    if random.random() < 0.1:
        view = ImageOps.solarize(view, 128)
    return view


def _jittered(view: Image.Image, random: np.random.Generator) -> Image.Image:
    """Brightness, contrast, saturation and hue changed, in random order, since each acts on what the others left."""
    brightness, contrast = random.uniform(0.6, 1.4), random.uniform(0.6, 1.4)
    saturation, hue = random.uniform(0.8, 1.2), random.uniform(-0.1, 0.1)
    changes = (
        lambda view: ImageEnhance.Brightness(view).enhance(brightness),
        lambda view: ImageEnhance.Contrast(view).enhance(contrast),
        lambda view: ImageEnhance.Color(view).enhance(saturation),
        lambda view: turn_hue(view, hue),
    )
    for k in random.permutation(len(changes)):
        view = changes[k](view)
    return view


def turn_hue(image: Image.Image, turns: float) -> Image.Image:
    """Every colour moved along the colour wheel.

    >>> turn_hue(Image.new("RGB", (1, 1), (255, 0, 0)), 1 / 3).getpixel((0, 0))
    (0, 255, 0)
    """
    hue, saturation, value = image.convert("HSV").split()
    hue = hue.point([(level + round(255 * turns)) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def view_generator(seed: int, digest: str, view: int) -> np.random.Generator:
    """The randomness of one view of one image; ``digest`` is the sha256 of the file's content."""
    return np.random.default_rng([seed, int(digest[:32], 16), view])


def views_of(
    image: Image.Image, size: int, seed: int, digest: str, views: Sequence[int], strong: Sequence[int] = ()
) -> NDArray[np.uint8]:
    """The evaluation view, then the weak, then the strong training views with these numbers: n×size×size×3."""
    resized = resize_shorter_side(image, resized_side(size))
    crops = [evaluation_view(resized, size)]
    crops += [training_view(resized, size, view_generator(seed, digest, view)) for view in views]
    crops += [strong_view(resized, size, view_generator(seed, digest, view)) for view in strong]
    return np.stack([np.asarray(crop) for crop in crops])


def to_tensor(pixels: NDArray[np.uint8], mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """n×H×W×3 pixels 0..255 to normalised n×3×H×W; mean and std are in units of pixels."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()  # channels last in memory, as the trunk likes it
    return (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
