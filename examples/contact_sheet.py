"""Draw one picture of what a run found: a row per class, its most certain images from left to right.

    python examples/contact_sheet.py newfound-demo/run newfound-demo/wardrobe sheet.png

Reads assignments.csv and classes.csv, so it works for every run.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from newfound.images.decode import open_image

TILE, PER_ROW, MARGIN, TEXT = 64, 12, 4, 150


def main(run: Path, images: Path, target: Path) -> None:
    assigned = read(run / "assignments.csv")
    rows = [row for row in read(run / "classes.csv") if int(row["size"])]
    step = TILE + MARGIN
    sheet = Image.new("RGB", (TEXT + PER_ROW * step + MARGIN, len(rows) * step + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for y, row in enumerate(rows):
        top = MARGIN + y * step
        draw.text((MARGIN, top + 14), row["name"], fill="black", font=ImageFont.load_default(16))
        draw.text((MARGIN, top + 36), f"{row['size']} images", fill="gray", font=ImageFont.load_default(12))
        members = [item for item in assigned if item["class"] == row["name"] and not item["given_label"]]
        members.sort(key=lambda item: -float(item["confidence"]))
        for x, item in enumerate(members[:PER_ROW]):
            tile = open_image(images / item["file"])
            tile.thumbnail((TILE, TILE))
            tile = tile.resize((TILE, TILE * tile.height // tile.width)) if tile.width < TILE else tile
            sheet.paste(tile, (TEXT + x * step, top))
    sheet.save(target)


def read(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
