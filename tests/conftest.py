import os
import shutil
import signal
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helping.browser import browser  # noqa: F401 - a fixture
from helping.doubles import SMALL_WIDTH, mean_colour_backbone
from helping.hostile import newfound  # noqa: F401 - a fixture
from helping.pictures import write_folder
from helping.small_runs import small_run
from newfound.report import write_report
from newfound.runs import checkpoints
from newfound.screen import Screen
from newfound.settings import DEFAULTS

checkpoints.PAUSE = 0.0  # a checkpoint after each epoch, whatever the disk's speed

# Every machine tries the same examples, however slow it is. Other ones: pytest --hypothesis-profile=explore
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

GOLDEN = Path(__file__).parent / "golden"

# Programs that tests start find `helping` as tests do
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

# Tests write tens of thousands of small files and wait for the disk after each checkpoint. In memory, if there is room,
# that takes a tenth of the time; `make torture` stays on the disk. Whoever has set TMPDIR keeps it.
IN_MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)

# In the background of a shell Ctrl-C is ignored, and processes that tests start and stop by it would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch, numbers=count()):  # noqa: B008 - one for all tests
    """No test reads or fills the user's bank. (`mktemp` would look through all folders there are, for every test.)"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / f"cache-{next(numbers)}"))


@pytest.fixture(scope="module")
def small_projector():
    """For tests of what surrounds a training: as many layers, but quick to train and to write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DEFAULTS, "projector_width", SMALL_WIDTH)
        yield


@pytest.fixture
def folder(tmp_path):
    """A small folder of coloured squares and its truth."""
    return write_folder(tmp_path)


@pytest.fixture
def quick_backbone():
    return mean_colour_backbone()


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A finished run of which nothing is changed."""
    return small_run(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def small_page(small):
    """Its page."""
    return write_report(small, Screen(quiet=True))
