"""newfound tune: what is typed, refused and printed."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from helping.hostile import FAST, rows_of
from helping.pictures import COLOURS, write_folder
from newfound.app.commands.discover import Discover
from newfound.app.commands.tune import Tune
from newfound.app.main import parsed
from newfound.app.tables import choice_sentence, show_tuned
from newfound.app.tries import changes_of
from newfound.errors import UserError
from newfound.images.class_folders import FolderMeaning
from newfound.screen import Screen
from newfound.settings import Settings, method_name
from newfound.tuning import Tuned
from newfound.tuning.candidates import changed, first_candidate
from newfound.tuning.trials import Trial

QUICK = [word for word in FAST if word != "--no-report"]


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder with four known classes, and where the command is typed."""
    monkeypatch.chdir(tmp_path)
    return write_folder(tmp_path, known=tuple(COLOURS), new=(), each=8)[0]


def last_command(text):
    return parsed(shlex.split(re.findall(r"^ +newfound (discover .+)$", text, re.MULTILINE)[-1]))


def test_it_ends_with_a_table_and_a_command(newfound, images, tmp_path):
    words = ["tune", images, "--classes", 5, "--method", "kmeans", *QUICK[2:], "--try", "method=simgcd", "--epochs", 1]
    answer = newfound(*words)
    answer.check_done()
    assert "4 trainings to do" in answer.out
    assert "default (kmeans)" in answer.out
    assert re.search(r"method=simgcd.* [+-]\d+\.\d ± \d+\.\d", answer.out)
    command = last_command(answer.out)
    assert (command.folder, command.settings.classes, command.settings.epochs) == (images, 5, None)
    trials = rows_of(tmp_path / "newfound-tune" / "trials.csv")
    assert [(row["settings"], row["split"]) for row in trials] == [
        ("default (kmeans)", "1"), ("method=simgcd", "1"), ("default (kmeans)", "2"), ("method=simgcd", "2"),
    ]  # fmt: skip
    again = newfound(*words)
    assert "0 trainings to do, 4 done before" in again.out
    assert again.out[again.out.index("Accuracy on") :] == answer.out[answer.out.index("Accuracy on") :]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--try", "method=simgdc"], "--method simgdc is not a method (did you mean simgcd?)"),
        (["--try", "entropy_wieght=2"], "--entropy-wieght 2 is not a setting of sdas (did you mean entropy_weight?)"),
        (["--try", "rho=much"], "--rho must be a number; found much"),
        (["--try", "epochs=2.5"], "--epochs must be a whole number; found 2.5"),
        (["--try", "views=both"], "--views must be one of 'bank', 'fresh'; found both"),
        (["--try", "views=fresh,both"], "--views must be one of"),
        (["--try", "rho"], "--try rho must be NAME=VALUE"),
        (["--try", "rho=0.1,"], "--try rho=0.1, must be NAME=VALUE"),
        (["--try", "seed=1,2"], "--seed 1 is no setting to compare"),
        (["--splits", "1"], "--splits must be at least 2"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--method", "simgdc"], "there is no --method simgdc (did you mean simgcd?)"),
        (["--oracle-clean-anchors"], "--oracle-clean-anchors cannot be used here"),
    ],
)
def test_mistakes_are_one_sentence_before_images_are_read(newfound, tmp_path, words, why):
    """The folder does not exist, and nobody has looked."""
    newfound("tune", tmp_path / "nowhere", *words).check_refused(why)


def test_too_few_known_classes(newfound, tmp_path):
    images, _ = write_folder(tmp_path)
    answer = newfound("tune", images, "--classes", 4, *QUICK, "--out", tmp_path / "out")
    answer.check_refused("at least 4 with two labelled images each; found 2 known classes like that")
    assert not (tmp_path / "out").exists()


def changes(*words, base=Settings()):  # noqa: B008 - it cannot change
    command = Tune.parsed(["photos", *words], prog="newfound tune")
    return [change for tried in command.tries for change in changes_of(tried, base)]


def test_each_value_is_a_change_and_words_together_are_one():
    assert changes("--try", "rho=0,0.1", "--try", "learning-rate=0.3") == [
        {"rho": 0.0}, {"rho": 0.1}, {"learning_rate": 0.3},
    ]  # fmt: skip
    together = [{"method": "simgcd", "start": "random"}]
    assert (
        changes("--try", "method=simgcd", "start=random") == changes("--try", "method=simgcd start=random") == together
    )
    assert changes() == []


def test_values_have_the_types_of_their_settings():
    found = changes("--try", "compile=true classes=auto epochs=3 weights=a/b.pth bank_views=4 views=fresh beta=1")
    assert found == [
        {"compile": True, "classes": None, "epochs": 3, "weights": "a/b.pth", "bank_views": 4, "views": "fresh",
         "beta": 1.0},
    ]  # fmt: skip
    assert isinstance(found[0]["beta"], float)
    assert changes("--try", "whitening=0.9,auto") == [{"whitening": 0.9}, {"whitening": "auto"}]
    with pytest.raises(UserError, match="compile must be bool"):
        changed(Settings(), changes("--try", "compile=maybe")[0])


def tuned(*accuracies):
    """A comparison of simgcd with other settings of it; accuracies by split."""
    base = Settings(12, "simgcd", seed=3)
    changes = [{"start": "random"}, {"method": "gcd", "epochs": 40}]
    candidates = [first_candidate(base), *(changed(base, change) for change in changes)]
    trials = tuple(
        tuple(Trial("", i + 1, x, x - 0.01, x + 0.01, 9.0, "") for i, x in enumerate(row)) for row in accuracies
    )
    return Tuned(tuple(candidates), trials)


def printed(found, capsys):
    show_tuned(found, Screen())
    return capsys.readouterr().out


def test_the_best_is_first_and_the_differences_are_by_split(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = printed(tuned([0.50, 0.60], [0.40, 0.52], [0.63, 0.71]), capsys)
    lines = [" ".join(re.sub("[│┃]", " ", line).split()) for line in out.splitlines()]
    rows = [line for line in lines if re.search(r"\d \d+$", line)]
    assert rows == [
        "method=gcd epochs=40 67.0 ± 5.7 66.0 68.0 +12.0 ± 1.0 9",
        "default (simgcd) 55.0 ± 7.1 54.0 56.0 9",
        "start=random 46.0 ± 8.5 45.0 47.0 -9.0 ± 1.0 9",
    ]
    assert "method=gcd epochs=40 is better than the default by 12.0 points" in out


def test_in_doubt_it_says_to_keep_the_default():
    assert choice_sentence(tuned([0.5, 0.6], [0.4, 0.5], [0.9, 0.5])).endswith("keep it.")


def test_the_command_to_type_is_that_of_the_winner():
    command = Tune.parsed(["my photos", "--labels", "labels.csv", "--method", "simgcd"], prog="newfound tune")
    found = tuned([0.50, 0.60], [0.40, 0.52], [0.63, 0.71])
    typed = command.discovering(found, FolderMeaning(unlabelled=("new",))).words()
    assert typed[:3] == ["newfound", "discover", "my photos"]
    again = parsed(typed[1:])
    assert isinstance(again, Discover)
    assert (again.folder, again.labels, again.unlabelled) == (Path("my photos"), Path("labels.csv"), ("new",))
    assert (method_name(again.settings), again.settings) == ("gcd", Settings(12, "gcd", seed=3, epochs=40))


def test_numbers_are_of_the_candidates_they_stand_beside():
    found = tuned([0.1, 0.2], [0.3, 0.4], [0.5, 0.6])
    np.testing.assert_allclose(found.accuracy("old"), [[0.09, 0.19], [0.29, 0.39], [0.49, 0.59]])
    np.testing.assert_array_equal(found.seconds, [9.0] * 3)
