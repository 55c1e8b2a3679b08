from pathlib import Path

import pytest

from helping.folders import put_image


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two labelled classes and two unlabelled images."""
    folder = tmp_path / "photos"
    for name in ["cat/1.png", "dog/2.png", "unlabelled/3.png", "loose.png"]:
        put_image(folder / name)
    return folder
