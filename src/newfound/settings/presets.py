"""Kinds of data and data sets that methods have values for; the values themselves are with each method."""

from __future__ import annotations

from typing import Literal, get_args

Preset = Literal[
    "generic", "fine-grained", "cifar10", "cifar100", "imagenet100", "cub", "cars", "aircraft", "herbarium"
]
PRESETS: tuple[Preset, ...] = get_args(Preset)
KINDS: tuple[Preset, ...] = ("generic", "fine-grained")  # of data; the others are data sets, with published values
DATA_SETS: tuple[Preset, ...] = tuple(preset for preset in PRESETS if preset not in KINDS)

FEW_IMAGES = 100  # per class; the paper's reason for other values on fine-grained sets is that they have few ("usually
# less than 70"). This limit puts all seven of its data sets where the paper does.


def preset_for(n_images: int, n_classes: int) -> Preset:
    """What fits data of which nothing else is known.

    >>> preset_for(5_994, 200), preset_for(50_000, 100)  # CUB, CIFAR-100
    ('fine-grained', 'generic')
    """
    return "fine-grained" if n_images < FEW_IMAGES * n_classes else "generic"
