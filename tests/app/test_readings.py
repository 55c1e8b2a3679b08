"""Methods for which no code is public: wherever their results are shown, that is said."""

import io

import pytest
from rich.console import Console

from helping.small_runs import write_run
from newfound import Discovery
from newfound.app.commands.discover import show_discovery
from newfound.app.tables import show_report
from newfound.methods import load, reading_note
from newfound.report.content import summary
from newfound.report.findings import Findings
from newfound.research.run_bench import markdown
from newfound.screen import Screen
from newfound.settings import Settings

CONFUSION = dict.fromkeys(("known_as_known", "known_as_new", "new_as_known", "new_as_new"), 0)
REPORT = {"dataset": "folder", "seeds": [0], "numbers": {}, "confusion": CONFUSION, "per_class": {}}


def shown(show, what):
    written = io.StringIO()
    show(what, Screen(Console(file=written, width=200)))
    return written.getvalue()


def places(method, folder):
    """What a person reads of a run: on the screen, in the report, in Python, and as a row of a benchmark."""
    results = write_run(folder, ["a.png", "b.png", "c.png"], [0, 1, 1], ("a", "b"), 1, given=[0, -1, -1], method=method)
    note = reading_note(Settings(method=method))
    report = {**REPORT, "reading": note} if note else REPORT
    found = Discovery.load(results.run.path)
    sentences = " ".join(summary(results, Findings([], [], [])))
    return [shown(show_discovery, found), sentences, repr(found), found._repr_html_(), markdown(report),
            shown(show_report, report)]  # fmt: skip


@pytest.mark.parametrize("method", ["rss", "mugcd"])
def test_a_reading_is_called_one_wherever_results_are_shown(method, tmp_path):
    text = f"{method} is a reading of its paper, for which no code is public: its results are no reproduction"
    assert [text in place for place in places(method, tmp_path)] == [True] * 6
    assert "reading" in load(method).SOURCE  # which newfound methods prints


def test_other_methods_are_not(tmp_path):
    assert not any("reading of its paper" in place for place in places("simgcd", tmp_path))
    assert not any(reading_note(Settings(method=name)) for name in ("sdas", "simgcd", "gcd", "kmeans", "cms", "orca"))
