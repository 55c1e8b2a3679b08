"""The wardrobe: a small real data set inside the package, to see newfound work before trying one's own folder."""

from __future__ import annotations

import zipfile
from importlib.resources import as_file, files
from pathlib import Path

from newfound.errors import UserError

CLASSES = 10


def unpack_wardrobe(folder: Path) -> tuple[Path, Path]:
    """Write the sample to ``folder``: the images (five classes half-labelled, five unnamed) and the truth."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with as_file(files("newfound.app") / "sample" / "wardrobe.zip") as archive, zipfile.ZipFile(archive) as content:
            content.extractall(folder)
    except OSError as error:
        raise UserError(f"the sample cannot be unpacked to {folder}: {error.strerror}") from error
    return folder / "wardrobe", folder / "truth.csv"
