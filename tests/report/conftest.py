import pytest

from browser import browser  # noqa: F401 - a fixture
from newfound.report import write_report
from newfound.screen import Screen
from report.runs import small_run


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A finished run."""
    return small_run(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def small_page(small):
    """Its page."""
    return write_report(small, Screen(quiet=True))
