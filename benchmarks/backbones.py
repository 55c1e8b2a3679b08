"""What the larger embedded networks cost, as a ratio to EfficientNet-Lite0: `python -m benchmarks.backbones`.

From a JPEG to its row in a bank of eight views, one image at a time in one thread. The networks take turns, and what
counts is processor time, which other programs hardly change. Two cores build a bank in half of these seconds.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import torch

from benchmarks.__main__ import hardware
from benchmarks.images import blurred_jpeg
from benchmarks.timing import Side, alternated
from newfound.backbones import Backbone, load_backbone
from newfound.backbones.efficientnet import LITE_SPECS
from newfound.images.decode import decode_image
from newfound.images.views import resized_side, views_of
from newfound.settings import BANK_VIEWS
from newfound.sources.bank import run_trunk

SIZES = (160, 224)
IMAGES, ROUNDS = 4, 9


def builder(backbone: Backbone, file: bytes) -> Callable[[], None]:
    """What computes the rows of some images."""
    size, views = backbone.image_size, list(range(1, 1 + BANK_VIEWS))

    def build() -> None:
        for _ in range(IMAGES):
            photo = decode_image(io.BytesIO(file), resized_side(size))
            run_trunk(backbone, views_of(photo, size, 0, "0" * 64, views)).half()

    return build


def main() -> None:
    torch.set_num_threads(1)
    file = blurred_jpeg()
    print(f"{hardware()}; medians of {ROUNDS} rounds")
    for size in SIZES:
        sides = {name: Side(builder(load_backbone(name, image_size=size), file)) for name in LITE_SPECS}
        seconds = alternated(sides, ROUNDS, clock=time.process_time)
        for name, taken in seconds.items():
            ratio = taken / seconds["efficientnet_lite0"]
            print(f"{size} px, {name}: {1000 * taken / IMAGES:.0f} s per 1,000 images, {ratio:.2f} times Lite0")


if __name__ == "__main__":
    main()
