import pytest

from browser import browser  # noqa: F401 - a fixture
from newfound.report import write_report
from newfound.screen import Screen
from report.runs import small_run


@pytest.fixture
def results(tmp_path):
    """A finished run with its report."""
    found = small_run(tmp_path)
    write_report(found, Screen(quiet=True))
    return found
