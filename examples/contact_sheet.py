"""Draw one picture of what a run found: a row per class, its most certain unlabelled images from left to right.

    python examples/contact_sheet.py newfound-demo/run sheet.png

Names are those of a review, if there was one. The images have to be where the run read them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from newfound import Discovery
from newfound.images.decode import open_image

TILE, PER_ROW, MARGIN, TEXT = 72, 11, 6, 150
KNOWN, NEW = "#555555", "#0a7d33"


def main(run: Path, target: Path) -> None:
    found = Discovery.load(run)
    results, step = found.results, TILE + MARGIN
    given = dict(zip(results.files, results.given.tolist(), strict=True))
    rows = [group for group in found.classes if group.size]
    sheet = Image.new("RGB", (TEXT + PER_ROW * step + MARGIN, len(rows) * step + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for y, group in enumerate(rows):
        top = MARGIN + y * step
        draw.text((MARGIN, top + 12), group.name, fill="black", font=ImageFont.load_default(17))
        kind = f"found: {group.size} images" if group.is_new else f"known: {group.labelled} of {group.size} labelled"
        draw.text((MARGIN, top + 38), kind, fill=NEW if group.is_new else KNOWN, font=ImageFont.load_default(12))
        unlabelled = [file for file in group.files if given[file] < 0]
        for x, file in enumerate(unlabelled[:PER_ROW]):
            tile = open_image(results.root / file)
            tile.thumbnail((TILE, TILE))
            sheet.paste(tile, (TEXT + x * step + (TILE - tile.width) // 2, top + (TILE - tile.height) // 2))
    sheet.save(target, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
