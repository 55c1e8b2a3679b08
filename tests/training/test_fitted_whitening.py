"""Whitening as a run has it: five of eight groups half-labelled, loud in three directions that say nothing of them."""

from functools import partial

import numpy as np
import pytest
import torch

from helping import contract
from helping.groups import LABELS, QUIET, SOURCE
from helping.tasks import Listening, adapted
from newfound.backbones.adapter import FEATURE_NORM
from newfound.errors import SettingError
from newfound.fitting import count
from newfound.methods import load
from newfound.runs.journal import MemoryJournal, RunJournal
from newfound.sources.vectors import Embeddings
from newfound.training import fitted_whitening
from newfound.training.fitted_whitening import whitened
from newfound.whitening import within_class_scatter

DIM, GROUPS, EACH, KNOWN_GROUPS, VIEWS = 12, 8, 16, 5, 3
TRUE = np.arange(GROUPS).repeat(EACH)
SOME = np.where((TRUE < KNOWN_GROUPS) & (np.arange(len(TRUE)) % 2 == 0), TRUE, -1)


def loud_views(seed=0):
    random = np.random.default_rng(seed)
    noise = random.normal(size=(len(TRUE), VIEWS, DIM)) * np.where(np.arange(DIM) < 3, 6.0, 0.3)
    return (random.normal(size=(GROUPS, DIM))[TRUE][:, None] + noise + 5).astype(np.float32)


def of_views(views):
    return adapted(Embeddings(views), views.shape[-1])


def whitened_by(asked, views, labels=SOME, journal=None, screen=QUIET):
    return whitened(of_views(views), labels, asked, journal or MemoryJournal(), screen)


def naive(views, labels, shrinkage):
    """N×d: as docs/backbones.md says it."""
    values, directions = np.linalg.eigh(within_class_scatter(views.astype(np.float64), labels))
    shrunk = (1 - shrinkage) * values / values.mean() + shrinkage
    first = views[:, 0].astype(np.float64)
    rows = (first - first.mean(axis=0)) @ directions @ np.diag(shrunk**-0.5) @ directions.T
    return rows * FEATURE_NORM / np.sqrt((rows**2).sum(axis=1).mean())


@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 0.9])
def test_features_are_what_a_naive_computation_gives(shrinkage):
    views = loud_views()
    found, check = whitened_by(shrinkage, views)
    np.testing.assert_allclose(found.features, naive(views, SOME, shrinkage), atol=1e-4)
    assert (check.candidates, check.accuracy, check.shrinkage) == ((), (), shrinkage)


def test_a_fresh_tail_gives_these_features():
    views = loud_views()
    found, _ = whitened_by(0.5, views)
    with torch.inference_mode():
        given = found.new_tail()(torch.from_numpy(views[:, 0]))
    np.testing.assert_allclose(given, found.features, atol=1e-4)


def test_one_view_of_each_sample_is_enough():
    views = loud_views()[:, :1]
    found, _ = whitened(adapted(Embeddings(views[:, 0]), DIM), SOME, 0.5, MemoryJournal(), QUIET)
    np.testing.assert_allclose(found.features, naive(views, SOME, 0.5), atol=1e-4)


def test_where_no_views_are_kept_the_evaluation_view_serves():
    """As with fresh views, which would have to be made for it."""
    views = loud_views()
    pretrained = of_views(views)
    pretrained.source.kept_views = lambda images: None
    found, _ = whitened(pretrained, SOME, 0.5, MemoryJournal(), QUIET)
    np.testing.assert_allclose(found.features, naive(views[:, :1], SOME, 0.5), atol=1e-4)


def test_only_views_of_labelled_images_are_looked_at():
    pretrained, asked = of_views(loud_views()), []
    kept = pretrained.source.kept_views
    pretrained.source.kept_views = lambda images: (asked.extend(images), kept(images))[1]
    for how in ("auto", 0.5):
        whitened(pretrained, SOME, how, MemoryJournal(), QUIET)
    assert set(asked) == set(np.flatnonzero(SOME >= 0))


@pytest.mark.parametrize("asked", ["none", None, 1, 1.0])
def test_without_it_nothing_changes(asked):
    pretrained, screen = of_views(loud_views()), Listening()
    assert whitened(pretrained, SOME, asked, MemoryJournal(), screen) == (pretrained, None)
    assert not screen.said
    assert "whitening" not in pretrained.new_tail().state_dict()


def test_where_the_check_is_against_it_nothing_changes():
    pretrained = adapted(SOURCE)
    found, check = whitened(pretrained, LABELS, "auto", MemoryJournal(), QUIET)  # of three classes there is no telling
    assert found is pretrained
    assert (check.accuracy, check.shrinkage) == ((), 1.0)


def test_counting_classes_stays_on_plain_features():
    """Whitened ones ruin the count; the network that it is given keeps what it had."""
    pretrained = of_views(loud_views())
    before = count(pretrained, SOME, QUIET)
    found, _ = whitened(pretrained, SOME, 0.1, MemoryJournal(), QUIET)
    assert not np.allclose(found.features, pretrained.features, atol=0.1)
    assert count(pretrained, SOME, QUIET) == before


# Said once, kept, and the same again


def test_it_says_what_was_decided_and_why():
    screen = Listening()
    found, check = whitened_by("auto", loud_views(), screen=screen)
    with_, without = (100 * check.means[check.candidates.index(s)] for s in (check.shrinkage, 1.0))
    reason = f"labels that were hidden: {with_:.0f} % correct with, {without:.0f} % without"
    assert screen.said == [f"whitening: shrinkage {check.shrinkage:g} ({reason})"]
    assert "whitening" in found.new_tail().state_dict()


def test_that_there_are_too_few_classes_is_reported():
    screen = Listening()
    whitened_by("auto", loud_views(), np.where(SOME < 3, SOME, -1), screen=screen)
    assert screen.said == ["whitening: none (too few known classes to check)"]


@pytest.mark.parametrize("labels", [SOME, np.full(len(SOME), -1)], ids=["whitened", "not whitened"])
def test_a_resumed_run_has_the_same_and_computes_nothing_again(tmp_path, monkeypatch, labels):
    (tmp_path / "checkpoint").mkdir()
    views, screen = loud_views(), Listening()
    first, check = whitened_by("auto", views, labels, RunJournal(tmp_path))
    monkeypatch.setattr(fitted_whitening, "_fitted", None)
    again, same = whitened_by("auto", views, labels, RunJournal(tmp_path), screen)
    assert same == check
    assert not screen.said
    assert np.array_equal(first.features, again.features)
    assert (check.shrinkage < 1) == (labels is SOME)
    if labels is SOME:
        assert torch.equal(*(pretrained.new_tail().whitening for pretrained in (first, again)))


# The contract of methods, with whitened features


@pytest.fixture
def half(monkeypatch):
    monkeypatch.setattr(contract, "settings_of", partial(contract.settings_of, whitening=0.5))


@pytest.mark.usefixtures("half")
def test_stopped_after_every_epoch_it_resumes_to_the_same_bytes():
    """A training by contrast, then one with a mean teacher, which has the matrix, too."""
    contract.check_resumes(load("mugcd"))


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("name", ["kmeans", "simgcd"])
def test_the_truth_changes_nothing(name):
    contract.check_ignores_truth(load(name))


def test_the_predictor_has_it():
    method = load("kmeans")
    plain, other = (contract.run(contract.settings_of(method, whitening=how)) for how in ("none", 0.5))
    assert (plain.whitening, other.whitening.shrinkage) == (None, 0.5)
    assert not torch.equal(plain.prediction.features, other.prediction.features)
    tokens = SOURCE.evaluation(range(len(SOURCE)))
    with torch.inference_mode():
        torch.testing.assert_close(other.predictor.features(tokens), other.prediction.features)


# What cannot be


@pytest.mark.parametrize(
    ("asked", "labels", "message"),
    [
        (0.5, np.full(len(SOME), -1), r"^whitening=0.5 has no effect: no two labelled views of a class differ$"),
        (0, np.where(np.arange(len(SOME)) == 0, 0, -1), "^whitening=0 cannot be used: .* must be above 0$"),
    ],
)
def test_labels_that_do_not_allow_it_are_refused(asked, labels, message):
    with pytest.raises(SettingError, match=message):
        whitened_by(asked, loud_views(), labels)
