"""Training and evaluation views of an image, with PIL alone.

A view is a square of 8-bit RGB pixels. Which square is drawn for a training view depends on the seed, the image's
content and the view's number, on nothing else: not on the order of files, the number of workers, or what ran before.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

# Named in every bank: change it whenever a change here changes pixels.
RECIPE = "shorter side to size*256/224 bicubic, crop, flip 0.5; v1"


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


def view_generator(seed: int, digest: str, view: int) -> np.random.Generator:
    """The randomness of one view of one image; ``digest`` is the sha256 of the file's content."""
    return np.random.default_rng([seed, int(digest[:32], 16), view])


def views_of(image: Image.Image, size: int, seed: int, digest: str, views: list[int]) -> NDArray[np.uint8]:
    """The evaluation view, then the training views with these numbers: n×size×size×3."""
    resized = resize_shorter_side(image, resized_side(size))
    crops = [evaluation_view(resized, size)]
    crops += [training_view(resized, size, view_generator(seed, digest, view)) for view in views]
    return np.stack([np.asarray(crop) for crop in crops])


def to_tensor(pixels: NDArray[np.uint8], mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """n×H×W×3 pixels 0..255 to normalised n×3×H×W; mean and std are in units of pixels."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()  # channels last in memory, as the trunk likes it
    return (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
