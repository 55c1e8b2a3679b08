"""The contract of a method (CONTRIBUTING, "How to add a method"), for each of them."""

import ast
import json
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest
import torch

from helping import contract, methods_together, wrong_methods
from helping.groups import CLASSES, DIM, LABELS, REFEREE, TRUE, UNLABELLED
from helping.preloaded import Ranks
from newfound import CategoryDiscovery
from newfound.errors import UserError
from newfound.evaluate import cluster_accuracy
from newfound.methods import METHODS, load
from newfound.runs.inputs import check_settings
from newfound.runs.journal import MemoryJournal
from newfound.settings import Settings
from newfound.settings.presets import PRESETS

ROOT = Path(__file__).parents[2]
every_method = pytest.mark.parametrize("method", [load(name) for name in METHODS], ids=METHODS)


@every_method
def test_it_says_what_it_is(method):
    assert method.NAME in METHODS
    assert method.ABOUT.endswith(".")
    assert "\n" not in method.ABOUT
    assert method.SOURCE
    assert set(method.PRESETS) <= set(PRESETS)
    own = set(method.Settings.__dataclass_fields__)
    for values in (method.DEFAULTS, *method.PRESETS.values()):
        assert set(values) <= own | set(Settings.__dataclass_fields__)


@every_method
def test_a_setting_it_does_not_have_is_refused_in_one_sentence(method):
    with pytest.raises(UserError, match=r"no_such_setting.* is not a setting of"):
        method.Settings(no_such_setting=1)


@every_method
def test_it_is_documented(method):
    assert f"`{method.NAME}`" in (ROOT / "docs" / "methods.md").read_text("utf-8")


@every_method
def test_its_settings_pass_before_any_image_is_read(method):
    check_settings(Settings(method=method.NAME))


@every_method
def test_planted_groups_are_found(method):
    contract.check_finds_groups(method)


@every_method
def test_stopped_after_every_epoch_it_resumes_to_the_same_bytes(method):
    contract.check_resumes(method)


@every_method
def test_the_truth_changes_nothing(method):
    contract.check_ignores_truth(method)


@every_method
def test_losses_are_pure(method):
    contract.check_losses_are_pure(method)


@pytest.mark.parametrize("method", [m for m in map(load, METHODS) if m.NEEDS.training], ids=lambda m: m.NAME)
def test_it_trains_with_the_sharpness_penalty(method):
    settings, journal = contract.settings_of(method, epochs=1, rho=0.05), MemoryJournal()
    assert contract.run(settings, journal).prediction.probabilities.isfinite().all()
    assert [line["stage"] for line in journal.entries] == [1, 2][: method.trainings(settings.method, contract.FACTS)]
    assert all(line["rise"] != 0 and line["skipped_steps"] == 0 for line in journal.entries)  # it went uphill


@every_method
def test_settings_survive_the_file(method, tmp_path):
    contract.check_config(method, tmp_path)


@every_method
def test_the_predictor_labels_the_training_samples_as_the_run_did(method):
    found = contract.run(contract.settings_of(method), source=contract.FAR_APART)
    with torch.inference_mode():
        predicted = found.predictor.probabilities(found.prediction.features).argmax(dim=1)
    agree = (predicted == found.prediction.classes).double().mean()
    assert agree == 1.0 or (method is load("cms") and agree > 0.95)  # CMS clusters its training images by another rule


@every_method
def test_the_estimator_runs_it(method):
    random = np.random.default_rng(0)
    X = random.normal(size=(CLASSES, DIM))[TRUE] * 8 + random.normal(size=(len(TRUE), DIM))
    how = {"epochs": 5, "batch_size": 32}  # 35 steps: for UNO+, whose new classes start at random, 5 are too few
    found = CategoryDiscovery(CLASSES, method=method.NAME, random_state=0, **how).fit(X, LABELS)
    score = cluster_accuracy(TRUE[UNLABELLED], found.labels_[UNLABELLED], TRUE[UNLABELLED] < 3)
    assert score.all > 0.9
    assert np.array_equal(found.predict(X), found.labels_)


@pytest.fixture(scope="module")
def apart():
    """How far features and classifiers of one process and of two are apart, by method."""
    together = Ranks(2, methods_together.main)
    out, err = together.communicate()
    assert together.poll() == 0, err
    return json.loads(out)


@every_method
def test_two_processes_equal_one(method, apart):
    assert apart[method.NAME] < 2e-5  # what the order of sums makes of a few steps; features are about 1


def test_two_processes_equal_one_with_whitened_features(apart):
    assert apart["whitened"] < 2e-5


# A method that breaks the contract is noticed


def test_state_in_an_attribute_is_noticed():
    with pytest.raises(AssertionError, match="other features"):
        contract.check_resumes(wrong_methods.COUNTS_IN_ATTRIBUTE)


def test_an_update_inside_losses_is_noticed():
    with pytest.raises(AssertionError, match=r"changes when it is computed again|losses change the state"):
        contract.check_losses_are_pure(wrong_methods.UPDATES_IN_LOSSES)


def test_a_parameter_behind_everyone_is_noticed(apart):
    assert apart["acts_behind_everyone"] > 1e-4


def test_a_look_at_the_truth_is_noticed():
    with pytest.raises(AssertionError, match=r"other features|other pseudo-labels"):
        contract.check_ignores_truth(wrong_methods.PEEKS_AT_TRUTH)


def test_what_a_run_does_with_settings_of_a_method_is_said_by_its_needs():
    """The rest knows none of them by name; but a study says which methods it has with which settings."""
    named = {name for m in map(load, METHODS) for name in (m.NEEDS.first_training_from, m.NEEDS.oracle)} - {None}
    assert named == {"stage1", "oracle_clean_anchors"}
    section = "stage1"  # of config.toml
    found = {
        (path.name, node.value)
        for path in (ROOT / "src" / "newfound").rglob("*.py")
        if path.parent.name != "methods"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in named
    }
    assert found == {("provenance.py", section), ("studies.py", "oracle_clean_anchors")}


def test_no_method_names_what_belongs_to_the_loop():
    for path in (ROOT / "src" / "newfound" / "methods").glob("*.py"):
        assert "referee" not in path.read_text("utf-8")


def test_nothing_a_method_receives_leads_to_the_referee(monkeypatch):
    method, received = load("kmeans"), []
    monkeypatch.setattr(method, "fit", lambda task, s, fit=method.fit: received.append(task) or fit(task, s))
    contract.run(contract.settings_of(method), referee=REFEREE)
    assert all(found is not REFEREE for found in reachable(received[0]))


def reachable(start):
    """What can be reached by attributes and items."""
    seen, ahead = {}, [start]
    while ahead:
        found = ahead.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType | str | int | float):
            continue
        seen[id(found)] = found
        ahead += getattr(found, "__dict__", {}).values()
        ahead += found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple | set) else ()
    return list(seen.values())
