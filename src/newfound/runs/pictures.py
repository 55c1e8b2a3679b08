"""Images that are in memory already: PIL images, and arrays of their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from newfound.errors import UserError
from newfound.images.decode import Unreadable, upright

Picture: TypeAlias = Image.Image | NDArray[np.uint8]  # of an array: H×W×3, red, green, blue


def is_picture(value: object) -> bool:
    """Or is it a path, or a list of either? (An array of text is a list of paths.)"""
    return isinstance(value, Image.Image) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OSU")


def check_pictures(items: Sequence[Any]) -> None:
    """Raise unless all of them are."""
    for i, item in enumerate(items):
        if not is_picture(item):
            raise UserError(f"images[{i}] is {item!r}: give paths, or images, but not both in one list")
        if isinstance(item, np.ndarray) and not _is_rgb(item):
            raise UserError(
                f"images[{i}] is an array of {item.dtype} with the shape {item.shape}: give H×W×3 of uint8, that is "
                "red, green and blue from 0 to 255"
            )


def _is_rgb(array: NDArray[Any]) -> bool:
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3


def opened(picture: Picture) -> Image.Image:
    """As if it had been read from a file: upright, RGB."""
    if isinstance(picture, Image.Image):
        return upright(picture)
    if not picture.size:
        raise Unreadable(f"no pixels: {picture.shape[1]} × {picture.shape[0]}")
    return upright(Image.fromarray(np.ascontiguousarray(picture)))
