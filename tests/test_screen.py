"""What a person sees while it works."""

import io
import re

import pytest
from rich.console import Console

from newfound import screen
from newfound.screen import Screen


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_line_says_what_is_elapsed_and_what_is_left(clock):
    out = io.StringIO()
    with Screen(Console(file=out, width=200)).track("training", 10) as progress:
        clock[0] += screen.SECONDS_BETWEEN_LINES
        progress.update(2, "loss 1.5")
        clock[0] += 1
        progress.update(3)  # too soon for another line
        clock[0] += 4000
        progress.update(10, "loss 0.5")
    assert out.getvalue().splitlines() == [
        "training 2/10, 0:15 elapsed, about 1:00 left  loss 1.5",
        "training 10/10, 1:06:56 elapsed  loss 0.5",
    ]


def live(width, note=""):
    """The last picture of a bar on a terminal, after nine seconds and 80 of 100 images."""
    now, out = [0.0], io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None, get_time=lambda: now[0])
    with Screen(console).track("reading images", 100) as progress:
        for done in range(0, 81, 10):
            progress.update(done, note)
            now[0] += 1.0
        progress._progress.refresh()
    return re.split(r"[\r\n]", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", out.getvalue()).strip())[-1].rstrip()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_cannot_be_misread_at_any_width(width):
    line = live(width, "loss 1.5")
    assert re.match(r"reading images [━╸╺ ]*80/100 0:09 elapsed, about 0:02 left", line), line
    assert len(line) <= width
    assert ("━" in line) == (width >= 80)
    assert ("loss 1.5" in line) == (width >= 110)
