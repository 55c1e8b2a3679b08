"""What images and vectors share of the line."""

from collections import Counter

import numpy as np
import pytest
import torch

from helping.contract import FACTS, LABELS, Interrupted, Stop, assert_same, checkpoints, new_journal, run, settings_of
from helping.groups import CLASSES, DIM, QUIET, REFEREE, SOURCE
from newfound import fitting
from newfound.backbones.adapter import AdapterTail
from newfound.errors import SettingError
from newfound.fitting import classes_in_use
from newfound.methods import METHODS, load, with_own
from newfound.runs.journal import MemoryJournal, RunJournal
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.training import task as task_module
from newfound.training.learner import Prediction
from newfound.training.task import Pretrained


def test_empty_classes_can_be_left_out():
    probabilities = torch.tensor([[0.2, 0.1, 0.7, 0.0], [0.1, 0.1, 0.8, 0.0]])
    prediction = Prediction(torch.zeros(2, 3), probabilities)
    assert classes_in_use(prediction, 1).tolist() == [0, 2]  # the known one, the used one
    assert classes_in_use(prediction, 2).tolist() == [0, 1, 2]
    assert classes_in_use(prediction, 0).tolist() == [2]
    assert classes_in_use(prediction, 0, fewest=2).tolist() == [0, 2]  # a second one, so that there is a runner-up
    assert classes_in_use(prediction, 2, fewest=2).tolist() == [0, 1, 2]
    assert classes_in_use(prediction, 1, np.array([False, True])).tolist() == [0, 2]
    assert classes_in_use(prediction, 1, np.array([False, False])).tolist() == [0]
    kept = torch.tensor([0, 2])
    torch.testing.assert_close(prediction.of(kept).probabilities, torch.tensor([[2 / 9, 7 / 9], [1 / 9, 8 / 9]]))
    assert prediction.of(torch.arange(4)) is prediction  # to the last bit


# What takes long happens once, and only where it is needed


@pytest.fixture
def calls(monkeypatch):
    """How often k-means of the frozen features and the standardisation are computed."""
    counted = Counter()

    def counting(name, function):
        def count(*args, **options):
            counted[name] += 1
            return function(*args, **options)

        return count

    monkeypatch.setattr(task_module, "kmeans", counting("kmeans", task_module.kmeans))
    fit = AdapterTail.fit_standardisation
    monkeypatch.setattr(AdapterTail, "fit_standardisation", counting("standardisation", fit))
    return counted


@pytest.mark.parametrize("referee", [None, REFEREE], ids=["no truth", "truth"])
def test_k_means_runs_only_where_it_is_needed(calls, referee):
    """A truth alone does not need it: the score of k-means is asked for by whoever writes it down."""
    for method, start, needed in (
        ("simgcd", "random", 0), ("simgcd", "clusters", 1), ("sdas", "random", 0), ("sdas", "clusters", 1),
        ("gcd", None, 0), ("kmeans", None, 1),
    ):  # fmt: skip
        calls.clear()
        changes = {} if start is None else {"start": start}
        run(with_own(settings_of(load(method)), changes), referee=referee)
        assert calls["kmeans"] == needed, (method, start)


@pytest.mark.parametrize("method", METHODS)
def test_k_means_and_standardisation_happen_once(calls, method):
    found = run(settings_of(load(method)))
    found.task.clusters()
    found.task.clusters()
    found.task.new_tail()
    assert found.task.frozen() is found.task.frozen()
    assert dict(calls) == {"kmeans": 1, "standardisation": 1}


@pytest.mark.parametrize("method", ["sdas", "kmeans"])
def test_k_means_is_not_computed_again_when_a_run_resumes(calls, method, tmp_path):
    (tmp_path / "checkpoint").mkdir()
    settings = settings_of(load(method))
    first = run(settings, RunJournal(tmp_path))
    assert calls["kmeans"] == 1
    again = run(settings, RunJournal(tmp_path))
    assert calls["kmeans"] == 1
    assert (tmp_path / "checkpoint" / "kept-kmeans.safetensors").is_file()
    for name in ("clusters", "centres"):
        np.testing.assert_array_equal(getattr(first.task.clusters(), name), getattr(again.task.clusters(), name))


@pytest.mark.parametrize("whitening", ["none", 0.5])
def test_standardisation_is_not_computed_again_when_a_run_resumes(calls, whitening, tmp_path):
    settings = settings_of(load("simgcd"), whitening=whitening)
    whole = run(settings, new_journal(tmp_path / "whole"))
    for _ in range(2):
        with pytest.raises(Stop):
            run(settings, new_journal(tmp_path / "stopped", Interrupted))
    resumed = run(settings, new_journal(tmp_path / "stopped"))
    assert calls["standardisation"] == 2  # of two runs
    assert_same(whole, resumed)
    assert checkpoints(tmp_path / "whole") == checkpoints(tmp_path / "stopped")
    assert "kept-standardisation.safetensors" in checkpoints(tmp_path / "whole")


@pytest.mark.parametrize("whitening", ["none", 0.5])
def test_clusters_are_sought_in_the_mean_of_all_views_if_asked_for(whitening):
    one, several = (run(settings_of(load("kmeans"), whitening=whitening, frozen_views=v)) for v in ("one", "all"))
    plain = several.task.pretrained.new_tail()
    with torch.inference_mode():
        every = plain(torch.from_numpy(SOURCE.kept_views(np.arange(len(SOURCE)))).flatten(0, 1))
    mean = every.unflatten(0, (len(SOURCE), -1)).mean(dim=1)
    np.testing.assert_allclose(several.task.frozen(), mean, rtol=1e-4, atol=1e-4)
    assert not np.allclose(one.task.frozen(), mean, atol=1e-2)


def test_images_are_assigned_by_their_evaluation_view_all_the_same():
    """As new ones will be."""
    one, several = (run(settings_of(load("kmeans"), whitening="none", frozen_views=v)) for v in ("one", "all"))
    assert torch.equal(several.prediction.features, one.prediction.features)


def test_counting_and_training_share_what_is_computed(calls):
    pretrained = Pretrained(SOURCE, lambda: AdapterTail(DIM, 16), DIM)
    settings, facts, count = fitting.with_count(
        Settings(method="simgcd", device="cpu", epochs=1, batch_size=60), FACTS, lambda: pretrained, LABELS, QUIET
    )
    assert settings.classes == facts.classes == count.best
    fitting.fit(fitting.decided(settings, facts, QUIET), facts, pretrained, LABELS, MemoryJournal(), QUIET)
    assert calls["standardisation"] == 1


# Before anything takes long


def test_a_number_that_was_given_is_not_estimated():
    def untouched():
        raise AssertionError("images were looked at")

    settings, facts, count = fitting.with_count(Settings(CLASSES), FACTS, untouched, LABELS, QUIET)
    assert (settings.classes, facts.classes, count) == (CLASSES, CLASSES, None)


def test_a_mistake_does_not_wait_for_the_count():
    def untouched():
        raise AssertionError("images were looked at")

    settings = with_own(Settings(device="cpu"), {"beta": 2.0})
    with pytest.raises(SettingError, match="beta must be between 0 and 1"):
        fitting.with_count(settings, FACTS, untouched, LABELS, QUIET)


@pytest.mark.parametrize(
    ("method", "epochs", "said"),
    [
        ("sdas", None, "60 epochs in each training"),
        ("simgcd", None, "60 epochs;"),
        ("sdas", 60, None),
        ("kmeans", None, None),
    ],
)
def test_the_quick_recipe_is_reported_where_nobody_chose_it(capsys, method, epochs, said):
    fitting.decided(Settings(CLASSES, method, device="cpu", epochs=epochs), FACTS, Screen())
    out = capsys.readouterr().out
    assert (said in out) if said else out == ""
