"""The list of methods, in a terminal of 80 columns."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from newfound.app.commands.methods import needed, show_methods
from newfound.methods import METHODS, Needs, load
from newfound.screen import Screen


def lines_of(methods, width=80):
    written = io.StringIO()
    show_methods(methods, Screen(Console(file=written, width=width)))
    return written.getvalue().splitlines()


def words_of(lines):
    """What is in the right column."""
    return " ".join("".join(line.split("│")[2:3]).strip() for line in lines)


def fake(name, **parts):
    usual = {"ABOUT": "does something.", "SOURCE": "Somebody: A Paper, 2024.", "NEEDS": Needs()}
    return SimpleNamespace(NAME=name, **{**usual, **parts})


def test_a_row_says_what_it_is_where_it_is_from_and_what_it_needs():
    source = "Somebody and others: A Paper with a Title [of some length], CVPR\n2024; github a/b (MIT)"
    lines = lines_of([fake("one", SOURCE=source, NEEDS=Needs(prompts=True, pixels=True)), fake("two")])
    assert " ".join(words_of(lines).split()) == (
        "Does something. Somebody and others: A Paper with a Title [of some length], CVPR 2024; github a/b (MIT). "
        "Needs new views of the pixels in every step (--views fresh), prompts in the backbone (a ViT). "
        "Does something. Somebody: A Paper, 2024."
    )
    assert lines[-1] == "To see the options of a method: newfound discover --method NAME --help"


def test_advice_has_a_word_on_every_method():
    advice = " ".join(lines_of([])).partition("Which one?")[2]
    assert [name for name in METHODS if not re.search(rf"\b{name}\b", advice)] == []


def test_no_line_overflows():
    long = fake("a-name-of-some-length", SOURCE="https://example.org/" + "x" * 300)
    for methods in ([long], map(load, METHODS)):
        assert max(map(len, lines_of(methods))) <= 80
    assert "".join(words_of(lines_of([long])).split()).endswith("x" * 300 + ".")


def test_every_method_is_listed(newfound):
    answer = newfound("methods")
    answer.check_done()
    names = [line.split("│")[1].strip() for line in answer.out.splitlines() if line.startswith("│")]
    assert [name for name in names if name] == list(METHODS)


@pytest.mark.parametrize(("needs", "words"), [
    (Needs(), []),
    (Needs(training=False), []),
    (
        Needs(first_training="simgcd", first_training_from="stage1"),
        ["a first training by simgcd (made for you, or taken from --stage1 RUN)"],
    ),
    (Needs(pixels=True, strong_view=True), ["a strongly augmented view",
                                            "new views of the pixels in every step (--views fresh)"]),
    (load("cms").NEEDS, ["at most 20,000 images"]),
    (load("hdbscan").NEEDS, ["no --classes, as it finds their number itself"]),
])  # fmt: skip
def test_what_is_needed(needs, words):
    assert needed(needs) == words
