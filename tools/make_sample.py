"""Make the wardrobe sample: 2,000 images of Fashion-MNIST, five classes half-labelled and five unnamed.

    python tools/make_sample.py FOLDER_WITH_THE_IDX_FILES

The folder is what Debian's package dataset-fashion-mnist installs. The first 200 training images of each class are
taken, in official order. What is worn above the waist is known, and every other image of it keeps its label; trousers,
shoes and bags are for newfound to find.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ["t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
KNOWN = {"t-shirt", "pullover", "dress", "coat", "shirt"}
PER_CLASS = 200
TARGET = Path(__file__).parent.parent / "src" / "newfound" / "app" / "sample" / "wardrobe.zip"


def main(source: Path) -> None:
    images = np.frombuffer(gzip.decompress((source / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((source / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    images = images.reshape(-1, 28, 28)
    chosen = sorted(int(i) for c in range(10) for i in np.flatnonzero(labels == c)[:PER_CLASS])
    seen, truth = [0] * 10, []
    with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_STORED) as archive:
        for number, i in enumerate(chosen):
            c = int(labels[i])
            labelled = NAMES[c] in KNOWN and seen[c] % 2 == 0
            seen[c] += 1
            file = f"{NAMES[c] if labelled else 'unlabelled'}/{number:04d}.png"
            truth.append([file, NAMES[c]])
            _add(archive, f"wardrobe/{file}", _png(images[i]))
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([["file", "label"], *sorted(truth)])
        _add(archive, "truth.csv", table.getvalue().encode())
    print(f"{len(chosen)} images, {TARGET.stat().st_size:,} bytes in {TARGET}")


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)  # a fixed date: the same bytes each time


if __name__ == "__main__":
    main(Path(sys.argv[1]))
