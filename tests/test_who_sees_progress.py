"""Who sees progress: somebody at a terminal or a notebook, unless told otherwise."""

import io
import sys
from types import ModuleType

import pytest
from rich.console import Console

from newfound import notebook_progress, screen
from newfound.errors import UserError
from newfound.screen import Screen, screen_for


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nobody_watches_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert screen_for(None).console.quiet
    assert not screen_for(True).console.quiet
    assert screen_for(False).console.quiet


def test_somebody_watches_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("TTY_COMPATIBLE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert not screen_for(None).console.quiet
    assert screen_for(False).console.quiet


def test_a_screen_is_taken_as_it_is_and_nothing_else():
    own = Screen(quiet=True)
    assert screen_for(own) is own
    with pytest.raises(UserError, match=r"^screen must be True, False or a newfound\.Screen; found screen='loud'$"):
        screen_for("loud")


class Notebook:
    """Stands for IPython: keeps what it was asked to show, last of all what is visible now."""

    def __init__(self, monkeypatch):
        self.seen = []
        package, module = ModuleType("IPython"), ModuleType("IPython.display")
        module.display = lambda shown, display_id: self.update(shown) or self
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        monkeypatch.setattr(screen, "Console", lambda quiet=False, highlight=False: Console(
            quiet=quiet, highlight=highlight, force_jupyter=True))  # fmt: skip

    def update(self, shown):
        self.seen.append(shown._repr_html_())


def test_a_notebook_has_a_bar(monkeypatch):
    notebook = Notebook(monkeypatch)
    monkeypatch.setattr(notebook_progress, "SECONDS_BETWEEN_UPDATES", 0)
    with screen_for(None).track("reading <b>", 10) as progress:
        progress.update(4, note="<script>")
        assert '<progress max="10" value="4">' in notebook.seen[-1]
        assert "reading &lt;b&gt; 4/10" in notebook.seen[-1]
        assert "&lt;script&gt;" in notebook.seen[-1]
        progress.update(20, total=20)
    assert '<progress max="20" value="20">' in notebook.seen[-1]
    assert "0:00 elapsed" in notebook.seen[-1]  # as in a terminal, and nothing is left
    assert "left" not in notebook.seen[-1]


def test_a_notebook_that_shall_stay_silent(monkeypatch):
    notebook = Notebook(monkeypatch)
    with screen_for(False).track("reading", 10) as progress:
        progress.update(10)
    assert notebook.seen == []


def test_a_bar_in_a_notebook_is_not_drawn_for_every_step(monkeypatch):
    notebook = Notebook(monkeypatch)
    monkeypatch.setattr(notebook_progress, "SECONDS_BETWEEN_UPDATES", 1e9)
    with screen_for(None).track("reading", 100) as progress:
        for done in range(100):
            progress.update(done)
        progress.update(100)
    assert [line.count('value="100"') for line in notebook.seen] == [0, 1, 1]  # the beginning, the last step, the end
