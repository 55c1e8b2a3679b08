"""Small real folders for tests: pictures whose class one can see."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (210, 40, 40), "green": (40, 190, 60), "blue": (40, 60, 210), "yellow": (220, 210, 50)}


def picture(colour: str, number: int, size: int = 40) -> Image.Image:
    """A noisy square of one colour, different for every number."""
    random = np.random.default_rng([list(COLOURS).index(colour), number])
    pixels = np.array(COLOURS[colour]) + random.normal(0, 25, (size, size, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_folder(root: Path, known=("red", "green"), new=("blue", "yellow"), each: int = 6) -> tuple[Path, Path]:
    """Known classes half-labelled, new ones not at all; the folder and a truth file beside it."""
    images, truth = root / "images", ["file,label"]
    for colour in (*known, *new):
        for i in range(each):
            place = colour if colour in known and i % 2 == 0 else "unlabelled"
            file = f"{place}/{len(truth):03d}.png"
            (images / file).parent.mkdir(parents=True, exist_ok=True)
            picture(colour, i).save(images / file)
            truth.append(f"{file},{colour}")
    (root / "truth.csv").write_text("\n".join(truth) + "\n")
    return images, root / "truth.csv"


def write_class_folders(root: Path) -> tuple[Path, Path]:
    """A benchmark of one's own: a folder per class, and the list of known and new ones."""
    for colour in COLOURS:
        (root / "colours" / colour).mkdir(parents=True)
        for i in range(6):
            picture(colour, i).save(root / "colours" / colour / f"{i}.png")
    (root / "lists.json").write_text(json.dumps({"known": ["red", "green"], "new": ["yellow", "blue"]}))
    return root / "colours", root / "lists.json"
