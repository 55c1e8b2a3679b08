"""One small run, exported in every format, with and without a person's decisions."""

import shutil

import pytest

from helping.exporting import FAST, ODD, TWIN, decide_on
from helping.pictures import picture, write_folder
from newfound.discovery import discover
from newfound.settings import Settings


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The embedded network, whitened and clustered: a run in two seconds."""
    root = tmp_path_factory.mktemp("made")
    images, _ = write_folder(root)
    for number, file in enumerate((ODD, TWIN)):
        (images / file).parent.mkdir(exist_ok=True)
        picture("red", 50 + number).save(images / file)
    settings = Settings(4, **FAST, method="kmeans", whitening=0.5, bank_dir=root / "bank")
    discover(images, settings, out=root / "run")
    return root


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run that a test may decide on, and of its images."""
    shutil.copytree(made / "run", tmp_path / "run")
    shutil.copytree(made / "images", tmp_path / "images")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(made / "images"), str(tmp_path / "images")))
    return tmp_path / "run"


@pytest.fixture
def reviewed(run):
    return decide_on(run)
