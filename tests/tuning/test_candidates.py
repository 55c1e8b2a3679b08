"""Settings to compare."""

from pathlib import Path

import pytest

from newfound.errors import SettingError
from newfound.methods import METHODS, with_method, with_own
from newfound.settings import DataFacts, Settings
from newfound.tuning.candidates import changed, first_candidate, usual_changes

FACTS = DataFacts(images=900, known=6, labelled=200, labelled_classes=6, classes=120)


def decided(changes, base=Settings(), epochs=7, facts=FACTS):  # noqa: B008 - it cannot change
    return changed(base, changes).decided(facts, epochs)


def test_the_first_one_is_the_command_itself():
    base = Settings(method="simgcd", epochs=3)
    assert first_candidate(base).name == "default (simgcd)"
    assert first_candidate(base).settings is base


def test_changes_may_be_of_shared_settings_and_of_the_methods_own():
    found = decided({"method": "simgcd", "start": "random", "learning_rate": 0.2})
    assert (found.method.start, found.learning_rate, found.epochs, found.classes) == ("random", 0.2, 7, 120)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_compared_whatever_else_is_set(method):
    """What it has no use for is dropped, as nobody has asked for it there."""
    base = Settings(9, epochs=4, rho=0.1, label_balance=0.2, learning_rate=0.3)
    found = decided({"method": method}, base)
    assert found.epochs in (4, None)
    assert found.classes in (9, None)


def test_what_is_set_of_a_method_holds_for_another_that_has_it():
    base = with_own(Settings(), {"entropy_weight": 3.0})
    assert with_method(base, "simgcd").method.entropy_weight == 3.0
    assert not hasattr(with_method(base, "kmeans").method, "entropy_weight")


def test_epochs_and_classes_can_be_compared_too():
    assert [decided({"epochs": epochs}).epochs for epochs in (2, 30)] == [2, 30]
    assert decided({"classes": 50}).classes == 50


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seed": 5}, "no setting to compare"),
        ({"method": "simgdc"}, "not a method.*did you mean simgcd"),
        ({"entropy_wieght": 1.0}, "not a setting of sdas.*did you mean entropy_weight"),
        ({"method": "kmeans", "entropy_weight": 1.0}, "not a setting of kmeans"),
        ({"epochs": "many"}, "epochs must be"),
        ({"stage1": Path("run")}, "knows the labels that are hidden"),
        ({"oracle_clean_anchors": True}, "no truth is known"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, why):
    with pytest.raises(SettingError, match=why):
        changed(Settings(), changes)


def test_nor_can_the_command_use_a_training_that_knows_all_labels():
    with pytest.raises(SettingError, match="knows the labels that are hidden"):
        first_candidate(with_own(Settings(), {"stage1": "run"}))


def test_the_usual_ones_follow_the_number_of_classes():
    weights = [change["entropy_weight"] for change in usual_changes(Settings(), FACTS) if "entropy_weight" in change]
    assert weights == [1.04, 4.16]  # half and twice log10(120)


def test_the_usual_ones_can_be_decided_for_every_method():
    for method in METHODS:
        for change in usual_changes(Settings(method=method), FACTS):
            assert decided(change, Settings(method=method)).method is not None
