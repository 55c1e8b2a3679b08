"""The question about folders such as "misc"."""

import io
import sys

import pytest
from rich.console import Console

from newfound.app import known_classes
from newfound.app.known_classes import asked_about
from newfound.app.main import parsed
from newfound.images.class_folders import FolderMeaning
from newfound.screen import Screen
from newfound.text import as_options


@pytest.fixture
def folder(tmp_path):
    for name in ("cat", "misc", "Other", "unlabelled", ".tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


def answering(*answers):
    """Gives these answers, and keeps the questions."""
    left, questions = list(answers), []

    def ask(question):
        questions.append(question)
        if not left:
            raise EOFError
        return left.pop(0)

    return ask, questions


def test_each_unclear_folder_is_asked_about_once(folder):
    ask, questions = answering("n", "")
    stream = io.StringIO()
    meaning = asked_about(folder, FolderMeaning(), Screen(Console(file=stream)), ask)
    assert meaning == FolderMeaning(unlabelled=("misc",), known=("Other",))  # Return takes yes
    assert len(questions) == 2
    assert "'Other' hold images to sort" in questions[0]
    assert questions[0].endswith("[Y/n] ")
    assert "--known Other" in stream.getvalue()
    assert "--unlabelled misc" in stream.getvalue()


def test_what_options_say_is_not_asked(folder):
    ask, questions = answering("yes")
    said = FolderMeaning(known=("misc",))
    assert asked_about(folder, said, Screen(quiet=True), ask) == FolderMeaning(("Other",), ("misc",))
    assert len(questions) == 1


def test_neither_yes_nor_no_is_asked_again_and_the_end_of_input_stops(folder):
    ask, questions = answering("maybe", "N", "what")
    with pytest.raises(KeyboardInterrupt):
        asked_about(folder, FolderMeaning(), Screen(quiet=True), ask)
    assert len(questions) == 4


def test_nobody_is_asked_outside_a_terminal(folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    assert asked_about(folder, FolderMeaning(), Screen(quiet=True)) == FolderMeaning()
    assert asked_about(folder / "nowhere", FolderMeaning(), Screen(quiet=True), input) == FolderMeaning()


def test_in_a_terminal_somebody_is_there(monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", Terminal())
        patch.setattr(sys, "stdout", Terminal())
        patch.delenv("RANK", raising=False)
        alone = known_classes._somebody_is_there()
        patch.setenv("RANK", "0")  # torchrun
        several = known_classes._somebody_is_there()
    assert (alone, several) == (True, False)


@pytest.mark.parametrize(("more", "asked"), [([], True), (["--resume"], False), (["--continue", "run"], False),
                                             (["--labels", "labels.csv"], False)])  # fmt: skip
def test_discover_asks_for_a_new_run_and_hands_the_answer_on(folder, monkeypatch, more, asked):
    handed = {}
    monkeypatch.setattr("newfound.app.commands.discover.asked_about", lambda *_: FolderMeaning(("misc",), ("Other",)))
    monkeypatch.setattr("newfound.discovery.discover", lambda *_, **options: handed.update(options))
    monkeypatch.setattr("newfound.app.commands.discover.show_discovery", lambda *_: None)
    parsed(["discover", str(folder), *more]).run(Screen(quiet=True))
    assert (handed["unlabelled"], handed["known"]) == ((("misc",), ("Other",)) if asked else ((), ()))


@pytest.mark.parametrize(("more", "asked"), [([], False), (["--overwrite"], True)])
def test_nothing_is_asked_where_a_run_is_in_the_way(folder, tmp_path, monkeypatch, more, asked):
    """It is refused anyway, unless it is to be replaced."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    questions = []
    monkeypatch.setattr("newfound.app.commands.discover.asked_about", lambda *_: questions.append(1) or FolderMeaning())
    monkeypatch.setattr("newfound.discovery.discover", lambda *_, **options: None)
    monkeypatch.setattr("newfound.app.commands.discover.show_discovery", lambda *_: None)
    parsed(["discover", str(folder), "--out", str(tmp_path / "run"), *more]).run(Screen(quiet=True))
    assert bool(questions) is asked


def test_several_names_are_several_words():
    command = parsed(["discover", "photos", "--unlabelled", "misc", "to do", "--known", "other"])
    assert command.words() == ["newfound", "discover", "photos", "--unlabelled", "misc", "to do", "--known", "other"]
    assert as_options({"known": ("a", "b")}) == ["--known", "a", "b"]
