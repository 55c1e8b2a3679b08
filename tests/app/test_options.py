"""Options from plain dataclasses: two boxes, no prefixes, defaults of the method."""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from newfound.app import main
from newfound.app.command_with_settings import shared_defaults
from newfound.app.option_boxes import Box, from_box, option_box, parsed_with_boxes
from newfound.app.options import chosen_method, help_texts, paragraphs, with_present_names
from newfound.errors import UserError
from newfound.methods import METHODS as EVERY_METHOD
from newfound.methods import load
from newfound.settings import Settings
from newfound.text import as_options


class Anything:
    """A value that Python callers may give, and nobody can type."""


@dataclass(frozen=True)
class Trained:
    """What is inherited."""

    epochs: int | None = None
    """Passes over
    the images."""
    learning_rate: float | None = None
    """At the start."""


@dataclass(frozen=True)
class Shared(Trained):
    """How to train."""

    classes: int | None = None
    """How many there are."""
    method: str | Anything = "cms"
    """Which one."""
    weights: Path | None = None
    """Of the backbone."""
    bank_dir: Path | None = None
    """Where banks are."""
    stage1: Path | None = None
    """A run."""
    start: Literal["clusters", "random"] | None = None
    """Where it starts."""
    backbone: str = "lite"
    """A network."""
    momentum: float = 0.9
    """Of the optimiser."""
    compile: bool = False
    """Make kernels."""


@dataclass(frozen=True)
class Own:
    """Contrastive mean shift."""

    beta: float | None = None
    """A share."""
    neighbours: int = 8
    """How many are near."""
    sizes: tuple[int, ...] = field(default_factory=lambda: (1, 2))
    """Several numbers."""


@paragraphs
@dataclass(frozen=True)
class Find:
    """Find something.

    In a place that is described at such length that the description does not fit into one line of a usual terminal.
    """

    place: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PLACE")]
    """Where to look."""
    settings: Shared
    own: Own
    resume: bool = False
    """Resume it."""


BOXES = {
    "settings": Box(Shared, defaults={"learning_rate": 0.05, "momentum": 0.5}, hidden=["stage1"]),
    "own": Box(Own, "--method cms", "Contrast after a step of mean shift."),
}


def parsed(*words):
    return Find(**parsed_with_boxes(Find, words, prog="newfound find", boxes=BOXES))


def shown(capsys, monkeypatch, columns):
    """The lines of --help, without colours."""
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit, match="0"):
        parsed("--help")
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()


HELP = """
    positional arguments
        PLACE Where to look. (required)
    options
        -h, --help show this help message and exit
        --resume, --no-resume Resume it. (default: False)
        --epochs N Passes over the images.
        --learning-rate N At the start. (default: 0.05)
        --classes {N,auto} How many there are. (default: auto)
        --method NAME Which one. (default: cms)
        --weights FILE Of the backbone.
        --bank-dir FOLDER Where banks are.
        --start {clusters,random} Where it starts.
        --backbone NAME A network. (default: lite)
        --momentum N Of the optimiser. (default: 0.5)
        --compile, --no-compile Make kernels. (default: False)
    --method cms options
        --beta N A share.
        --neighbours N How many are near. (default: 8)
        --sizes [INT [INT ...]] Several numbers. (default: 1 2)
"""


def test_two_boxes_of_options_without_prefixes(capsys, monkeypatch):
    frames = re.compile("[│╭╮╰╯─]| -+(?= |$)")
    text = " ".join(frames.sub(" ", line) for line in shown(capsys, monkeypatch, columns=100))
    text = text[text.index("positional") :].replace(
        "Contrast after a step of mean shift.", ""
    )  # older tyros leave it out
    assert text.split() == HELP.split()


def test_help_fits_the_terminal(capsys, monkeypatch):
    lines = shown(capsys, monkeypatch, columns=50)
    assert max(map(len, lines)) <= 50
    assert "  In a place that is described at such length" in lines


def test_what_is_not_given_is_as_by_default():
    assert parsed("here") == Find(Path("here"), Shared(momentum=0.5), Own())


def test_what_is_given_reaches_its_dataclass():
    chosen = ["--start", "random", "--compile", "--weights", "w.pth", "--method=cms", "--sizes", "3"]
    found = parsed("here", "--beta", "0.3", "--epochs", "7", *chosen, "--resume")
    settings = Shared(epochs=7, start="random", compile=True, weights=Path("w.pth"), momentum=0.5)
    assert found == Find(Path("here"), settings, Own(beta=0.3, sizes=(3,)), resume=True)
    assert type(found.settings.epochs) is int


@given(st.builds(
    Shared, epochs=st.none() | st.integers(0, 99), learning_rate=st.none() | st.floats(0, 1), momentum=st.floats(0, 1),
    classes=st.none() | st.integers(2, 99), weights=st.none() | st.just(Path("a b.pth")), compile=st.booleans(),
))  # fmt: skip
def test_any_settings_can_be_typed(settings):
    found = tyro.cli(option_box(Shared), args=as_options(vars(settings)))
    assert from_box(Shared, found) == settings


@pytest.mark.parametrize(("word", "value"), [("auto", None), ("2", 2), ("200", 200)])
def test_a_number_of_classes(word, value):
    assert parsed("here", "--classes", word).settings.classes == value


@pytest.mark.parametrize("word", ["0", "1", "-3", "3.5", "many", ""])
def test_a_number_of_classes_that_cannot_be(word):
    with pytest.raises(UserError, match=f"--classes must be a whole number, at least 2, or auto; found {word}$"):
        parsed("here", "--classes", word)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epochs", "2.5"), "--epochs must be a whole number; found 2.5"),
        (("--epochs", "None"), "--epochs must be a whole number; found None"),
        (("--learning-rate", "fast"), "--learning-rate must be a number; found fast"),
    ],
)
def test_a_number_that_is_none_is_one_sentence(words, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        parsed("here", *words)


@pytest.mark.parametrize("words", [("--stage1", "run"), ("--own.beta", "1"), ("--start", "nowhere"), ("--gamma", "1")])
def test_what_is_no_option_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        parsed("here", *words)
    assert words[0] in capsys.readouterr().err


def test_the_plain_dataclass_is_left_as_it_is():
    option_box(Shared, defaults={"momentum": 0.1})
    assert Shared().momentum == 0.9
    assert {own.name: own.type for own in fields(Shared)}["classes"] == int | None


def test_help_texts_of_the_base_are_kept_and_may_be_replaced():
    @dataclass(frozen=True)
    class Other(Trained):
        epochs: int | None = 3
        """Other passes."""

    assert help_texts(Other) == {"epochs": "Other passes.", "learning_rate": "At the start."}


METHODS = ("kmeans", "gcd", "simgcd", "cms")


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ([], "gcd"),
        (["photos", "--method", "cms", "--no-such-option", "--beta", "many"], "cms"),
        (["--method=simgcd", "photos"], "simgcd"),
        (["--method", "cms", "--method=kmeans"], "kmeans"),
        (["--method=cms", "--method", "kmeans"], "kmeans"),
        (["--method"], "gcd"),  # the parser says that a value is missing
        (["--method", "--help"], "gcd"),
        (["--methodical", "cms"], "gcd"),
    ],
)
def test_the_method_is_read_first(words, method):
    assert chosen_method(words, "gcd", METHODS) == method


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("simgdc", "there is no --method simgdc (did you mean simgcd?); there are kmeans, gcd, simgcd, cms"),
        ("", "there is no --method ; there are kmeans, gcd, simgcd, cms"),
        ("zzz", "there is no --method zzz; there are kmeans, gcd, simgcd, cms"),
    ],
)
def test_an_unknown_method_is_one_sentence(word, message):
    with pytest.raises(UserError) as caught:
        chosen_method(["photos", f"--method={word}"], "gcd", METHODS)
    assert str(caught.value) == message


def test_a_value_is_not_taken_for_a_former_name():
    assert with_present_names(["--out", "--seeds-5", "a=--seeds"], {"--seeds": "--repeat"}) == [
        "--out",
        "--seeds-5",
        "a=--seeds",
    ]


@pytest.mark.parametrize(("word", "value"), [("auto", "auto"), ("none", "none"), ("0.25", 0.25), ("1", 1.0)])
def test_an_option_may_be_a_number_or_a_word(word, value):
    assert main.parsed(["discover", "photos", "--whitening", word]).settings.whitening == value


def test_what_is_neither_number_nor_word_is_refused():
    with pytest.raises(UserError, match=r"whitening must be auto, none or a number; found some"):
        main.parsed(["discover", "photos", "--whitening", "some"])


def options(**of_box):
    """Help text and what is shown as the default, by name."""
    hints = get_type_hints(option_box(Settings, **of_box), include_extras=True)
    arguments = {name: hint.__metadata__[0] for name, hint in hints.items()}
    return {name: (argument.help, argument.help_behavior_hint) for name, argument in arguments.items()}


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_a_default_is_stated_once(method):
    shown = options(defaults=shared_defaults(load(method)))
    assert [name for name, (text, default) in shown.items() if "Default: " in text and default] == []
    assert all(shown[name][1] == "" for name in ("whitening", "label_balance"))
    assert shown["momentum"][1] == "(default: 0.9)"


@pytest.mark.parametrize(("command", "text"), [("bench", "the true number"), ("study", "the true number"),
                                               ("tune", "estimate it"), ("discover", "estimate it")])  # fmt: skip
def test_the_number_of_classes_means_what_it_does_there(capsys, monkeypatch, command, text):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="0"):
        main.parsed([command, "--help"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "--classes {N,auto}" in line)
    assert text in line
