"""Each command: its options, how it resumes, what it prints for a person to type."""

import os
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newfound.app.command_with_settings import GROUPS
from newfound.app.commands import COMMANDS
from newfound.app.commands.discover import Discover
from newfound.app.commands.resume import Resume
from newfound.app.main import parsed
from newfound.app.options import help_texts
from newfound.app.overview import USUAL
from newfound.backbones import BACKBONES
from newfound.errors import SettingError, UserError, as_option
from newfound.methods import METHODS, cms, load, sdas, without_effect
from newfound.settings import OF_TRAINING, Settings

paths = st.sampled_from([Path("some where/ü"), Path("run"), Path("/a'b")])


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=COMMANDS)
def test_every_option_has_a_sentence_of_help(kind):
    texts = help_texts(kind)
    for own in fields(kind):
        if own.name != "settings":  # they have a test of their own
            assert re.fullmatch(r"\S.+\.", texts[own.name]), own.name


@pytest.mark.parametrize("method", [None, *METHODS])
def test_every_setting_has_a_sentence_of_help(method):
    kind = Settings if method is None else load(method).Settings
    texts = help_texts(kind)
    for own in fields(kind):
        assert re.fullmatch(r"\S.+\.", texts[own.name]), own.name


@pytest.mark.parametrize(
    "words",
    [
        ["discover", "photos"],
        ["resume", "run"],
        ["count", "photos"],
        ["bench", "cub", "--root", "CUB"],
        ["study", "rho", "--dataset", "cub", "--root", "CUB"],
        ["demo"],
        ["tune", "photos"],
        ["predict", "run", "photos"],
    ],
    ids=lambda words: words[0],
)
def test_what_resumes_says_how(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert re.fullmatch(r".*[Tt]he same command .+\.|", parsed(words).after_stop())
    assert bool(parsed(words).after_stop()) == (words[0] != "predict")


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (["discover", "my photos"], "newfound-my photos"),
        (["discover", "photos", "--out", "run"], "run"),
        (["discover", "photos", "--continue", "run"], "run-2"),
        (["resume", "run"], "run"),
    ],
)
def test_a_run_that_was_stopped_can_be_resumed_by_what_is_printed(words, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(run).mkdir()
    assert parsed(words).after_stop() == "Nothing was trained yet: the same command starts again."
    (tmp_path / run / "config.toml").touch()
    command = parsed(words).after_stop().removesuffix(" continues from the last checkpoint.")
    assert parsed(shlex.split(command)[1:]) == Resume(Path(run))


@pytest.mark.parametrize(
    ("words", "device"),
    [
        (["discover", "photos", "--device", "cuda"], "cuda"),
        (["bench", "cub", "--root", "CUB"], "auto"),
        (["study", "rho", "--dataset", "cub", "--root", "CUB", "--device", "cpu"], "cpu"),
        (["resume", "run", "--device", "cpu"], "cpu"),
        (["count", "photos", "--device", "cpu"], None),
        (["demo"], None),
        (["tune", "photos", "--device", "cpu"], None),
        (["predict", "run", "photos", "--device", "cpu"], None),
    ],
)
def test_which_commands_several_processes_may_run(words, device):
    assert parsed(words).torchrun_device == device


@pytest.mark.parametrize("words", [["--repeat", "5"], ["--repeat=5"], ["--seeds", "5"], ["--seeds=5"]])
def test_how_many_seeds_to_discover_with(words):
    assert parsed(["discover", "photos", *words]) == Discover(Path("photos"), settings=Settings(), repeat=5)


def test_the_former_name_is_not_shown(capsys, monkeypatch):
    shown = help_of(capsys, monkeypatch, "discover")
    assert "--repeat N" in shown
    assert "--seeds" not in shown


def help_of(capsys, monkeypatch, *words):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        parsed([*words, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return " ".join(re.sub("[│╭╮╰╯─]", " ", " ".join(lines)).split())


FIRST = ["classes", "labels", "out", "epochs", "method", "backbone", "seed", "repeat", "truth", "continue"]


def test_ten_options_come_first_and_the_rest_in_named_groups(capsys, monkeypatch):
    shown = help_of(capsys, monkeypatch, "discover")
    titles = ["run options", "training options", "image options", "machine options", "--method sdas options"]
    assert [title for title in titles if title not in shown] == []
    places = [shown.index(title) for title in titles]
    assert places == sorted(places)
    first = shown[: places[0]].partition("show this help message and exit")[2]
    options = re.findall(r"(?<=\s)--([\w-]+) (?:FILE|FOLDER|N |NAME|RUN|\{N)", first)
    assert list(dict.fromkeys(options)) == FIRST
    for title, option in zip(
        titles, ["--overwrite", "--momentum N", "--image-size N", "--device NAME", "--beta N"], strict=True
    ):
        assert shown.index(title) < shown.index(option, places[0])


def test_every_setting_is_an_option_of_some_group():
    """One that is in none would come before the options that people need first."""
    assert {own.name for own in fields(Settings)} <= {name for names in GROUPS.values() for name in names}


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=COMMANDS)
def test_examples_can_be_typed_and_fit_a_narrow_terminal(kind):
    for aim, words in kind.examples.items():
        assert isinstance(parsed(shlex.split(words)[1:]), kind)
        assert max(len(aim) + 6, len(words) + 4) <= 60, words


@pytest.mark.parametrize("kind", [Settings, *(load(name).Settings for name in METHODS), *COMMANDS.values()])
def test_the_help_of_an_option_stands_alone(kind):
    """It does not continue the option's name, as "Of the optimiser." does."""
    for name, text in help_texts(kind).items():
        assert not re.match(r"(Of|At|Not|As|In|On) ", text), name
        assert text[0].isupper(), name


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_the_terminal(capsys, monkeypatch, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit, match="0"):
        parsed([*filter(None, [name]), "--help"])
    usage, *lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert len(usage) < 80  # tyro's own, in one line


@pytest.mark.parametrize("words", [["discover", "photos", "--epochs", "3"], ["review", "run"], ["predict", "a", "b"]])
def test_help_names_what_was_given_along_with_it(capsys, words):
    """A usage line without FOLDER would say that the command takes none."""
    usages = []
    for asked in (words[:1], words):
        with pytest.raises(SystemExit, match="0"):
            parsed([*asked, "--help"])
        usages.append(capsys.readouterr().out.splitlines()[0])
    assert usages[0] == usages[1]


def test_the_overview_names_every_command(newfound):
    asked, nothing = newfound("--help"), newfound()
    assert (asked.status, nothing.status) == (0, 2)
    assert asked.out == nothing.err
    assert re.findall(r"^  (\w+) {2,}[A-Z]", asked.out, re.MULTILINE) == [
        *USUAL,
        *(n for n in COMMANDS if n not in USUAL),
    ]
    newfound("--classes", 4).check_refused("--classes must follow a command: newfound COMMAND --classes")


@pytest.mark.parametrize("wanted", [True, False])
def test_colours_only_where_they_are_wanted(capsys, monkeypatch, wanted):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if wanted else "1")
    with pytest.raises(SystemExit):
        parsed(["report", "--help"])
    assert ("\x1b[" in capsys.readouterr().out) == wanted
    assert os.environ["TERM"] == "xterm"


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_box_of_options(capsys, monkeypatch, method):
    shown = help_of(capsys, monkeypatch, "discover", "--method", method)
    assert f"--method {method} options" in shown
    shared, own = shown.split(f"--method {method} options")
    options = [f"--{field.name.replace('_', '-')}" for field in fields(load(method).Settings)]
    assert [option for option in options if option not in own] == []
    assert "--image-size" not in own
    assert ("--epochs N" in shared) == load(method).NEEDS.training


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["discover"], ["--rho N", "(default: 0.05)", "--method sdas options", "(default: efficientnet_lite0)"]),
        (["discover", "--method=simgcd"], ["newfound discover --method simgcd [-h]", "(default: 0.1)"]),
        (["discover", "--method", "cms"], ["(default: by --preset)", "--neighbours N", "(default: 8)"]),
        (["bench"], ["(default: dino_vitb16)", "--method sdas options"]),
    ],
)
def test_defaults_are_those_of_the_method_and_the_command(capsys, monkeypatch, words, shown):
    text = help_of(capsys, monkeypatch, *words)
    assert [part for part in shown if part not in text] == []


def test_help_has_every_backbone(capsys, monkeypatch):
    shown = set(re.findall(r"\w+", help_of(capsys, monkeypatch, "discover")))
    assert [name for name in BACKBONES if name not in shown] == []


def test_methods_have_their_own_options():
    command = parsed(["discover", "photos", "--method", "cms", "--neighbours", "5", "--rho", "0.1"])
    assert command.settings == Settings(method=cms.Settings(neighbours=5), rho=0.1)
    assert parsed(["discover", "photos", "--method", "cms"]).settings == Settings(method="cms")
    assert parsed(["bench", "cub", "--root", "CUB"]).settings == Settings(backbone="dino_vitb16")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--method", "simgcd", "--beta", "0.5"], "--beta"),
        (["--method", "gcd", "--start", "random"], "--start"),
    ],
)
def test_settings_of_other_methods_are_refused(capsys, words, option):
    with pytest.raises(SystemExit, match="2"):
        parsed(["discover", "photos", *words])
    said = capsys.readouterr().err
    assert "Unrecognized options" in said
    assert option in said
    assert f"newfound discover --method {words[1]} --help" in " ".join(said.split())


@pytest.mark.parametrize("method", METHODS)
def test_shared_settings_without_effect_are_neither_shown_nor_accepted(capsys, monkeypatch, method):
    idle = without_effect(Settings(method=method))
    shown = set(re.findall(r"--[a-z-]+(?= [N{])", help_of(capsys, monkeypatch, "discover", "--method", method)))
    for name in ("classes", *OF_TRAINING):
        assert (as_option(name) in shown) == (name not in idle), name
    for name in idle:
        with pytest.raises(SettingError, match=f"^{as_option(name)} 1 has no effect with {method}, which"):
            parsed(["discover", "photos", "--method", method, as_option(name), "1"])


def test_the_balance_of_labels_is_an_option_where_batches_are_half_labelled():
    words = ["discover", "photos", "--method", "orca", "--label-balance=0.3"]
    with pytest.raises(SettingError, match="no effect with orca, which draws all images with equal chances unless"):
        parsed([*words, "--batches", "alike"])
    assert parsed([*words, "--batches", "half-labelled"]).settings.label_balance == 0.3
    with pytest.raises(SettingError, match="batches must be one of"):
        parsed([*words, "--batches", "large"])


def test_epochs_of_a_comparison_are_an_option_whatever_the_method():
    assert parsed(["tune", "photos", "--method", "kmeans", "--epochs", "5"]).epochs == 5


SEVERAL_RUNS = {"bench": ["bench", "folder"], "study": ["study", "rho", "--dataset", "folder"]}


@pytest.fixture
def runs(newfound, monkeypatch):
    """A function that types bench or study and gives the answer with the seeds it came to; the work is not done."""
    came_to = []

    def work(*_, seeds, **__):
        came_to.append(seeds)
        raise UserError("the work")

    monkeypatch.setattr("newfound.research.run_bench.bench", work)
    monkeypatch.setattr("newfound.research.run_study.study", work)
    where = ["--root", "colours", "--backbone", "efficientnet_lite0"]  # no other one is here
    return lambda name, *words: (newfound(*SEVERAL_RUNS[name], *where, *words), came_to)


@pytest.mark.parametrize("name", SEVERAL_RUNS)
@pytest.mark.parametrize(
    ("words", "seeds"),
    [([], (0, 1, 2)), (["--repeat", 5], (0, 1, 2, 3, 4)), (["--seeds", 5], (5,)), (["--seeds", 3, 1], (3, 1))],
)
def test_seeds_of_several_runs(runs, name, words, seeds):
    assert runs(name, *words)[1] == [seeds]


@pytest.mark.parametrize("name", SEVERAL_RUNS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", 0, "--repeat", 2], "--repeat N means N seeds, --seeds names them: give only one of the two"),
        (["--repeat", 0], "--repeat must be at least 1; found 0"),
        (["--seed", 1], "--seed is for a single run; here use --repeat N for N seeds, or --seeds for exact ones"),
    ],
)
def test_seeds_that_are_refused(runs, name, words, message):
    answer, came_to = runs(name, *words)
    answer.check_refused(message)
    assert came_to == []


@given(
    st.builds(
        Discover,
        folder=paths,
        settings=st.builds(
            Settings,
            classes=st.none() | st.integers(2, 99),
            method=st.sampled_from(["sdas", "gcd"])
            | st.builds(cms.Settings, neighbours=st.integers(1, 7), temperature=st.none() | st.floats(0, 1))
            | st.builds(sdas.Settings, stage1=paths, oracle_clean_anchors=st.booleans()),
            weights=st.none() | paths,
            rho=st.none() | st.floats(0, 1),
            compile=st.booleans(),
        ),
        out=st.none() | paths,
        resume=st.booleans(),
        repeat=st.integers(1, 9),
        report=st.booleans(),
        after=st.none() | paths,
    )
)
def test_a_command_can_be_typed(command):
    words = shlex.split(shlex.join(command.words()))
    assert words[0] == "newfound"
    assert parsed(words[1:]) == command


@pytest.mark.parametrize("words", [[], ["--seed", "3", "--bank-dir", "my bank", "--epochs", "2", "--no-report"]])
def test_the_demo_runs_what_it_prints(newfound, tmp_path, monkeypatch, words):
    ran = []
    monkeypatch.setattr(Discover, "run", lambda self, screen: ran.append(self))
    monkeypatch.chdir(tmp_path)
    answer = newfound("demo", *words)
    answer.check_done()
    (printed,) = re.findall(r"^  newfound (.+)$", answer.out, re.MULTILINE)
    assert [parsed(shlex.split(printed))] == ran
    assert not ran[0].resume
    assert ran[0].folder.is_dir()
    assert (ran[0].settings.bank_dir, ran[0].report) == ((Path("my bank"), False) if words else (None, True))


def test_a_second_demo_resumes(newfound, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(Discover, "run", lambda self, screen: ran.append(self.resume))
    run = tmp_path / "demo" / "run"
    newfound("demo", "--out", run.parent).check_done()
    run.mkdir()
    (run / "config.toml").touch()
    newfound("demo", "--out", run.parent).check_done()
    assert ran == [False, True]
