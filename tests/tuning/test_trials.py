"""Trainings on what is left of the labels, and the file that remembers them."""

from dataclasses import replace

import numpy as np
import pytest

from helping.groups import QUIET
from helping.tasks import adapted
from newfound import fitting
from newfound.errors import UserError
from newfound.hidden_labels import hide
from newfound.methods import decide, with_own
from newfound.settings import DataFacts, Settings
from newfound.sources.vectors import Embeddings
from newfound.tuning.trials import Planned, Trial, accuracy_on, facts_of, key_of, read_trials, time_left, write_trials

CLASSES, KNOWN, EACH = 8, 6, 16
TRUE = np.repeat(np.arange(CLASSES), EACH)
LABELS = np.where((TRUE < KNOWN) & (np.arange(len(TRUE)) % 2 == 0), TRUE, -1)
FACTS = DataFacts(len(TRUE), KNOWN, int((LABELS >= 0).sum()), KNOWN, CLASSES)
SPLIT = hide(LABELS, 0)


def planted():
    """Groups that are easy to find."""
    random = np.random.default_rng(0)
    centres = 3 * random.normal(size=(CLASSES, 12))
    return adapted(Embeddings(centres[TRUE][:, None] + random.normal(size=(len(TRUE), 2, 12))), 12)


def settings_of(method, **changes):
    quick = {} if method in ("kmeans", "hdbscan") else {"epochs": 1, "projector_width": 16}
    classes = None if method == "hdbscan" else CLASSES
    return decide(with_own(Settings(classes, method, device="cpu"), {**quick, "batch_size": 32, **changes}), FACTS)


def test_a_bad_setting_ranks_below_a_good_one():
    good = accuracy_on(SPLIT, settings_of("kmeans"), planted(), QUIET)
    bad = accuracy_on(SPLIT, settings_of("simgcd", start="random", learning_rate=1e-6), planted(), QUIET)
    assert min(good.all, good.old, good.new) > 0.9
    assert bad.all < 0.7


def told_and_scored(split, settings, monkeypatch):
    """All that the training is told of labels, and what it predicts."""
    seen = []

    def fit(settings, facts, pretrained, labels, *more):
        found = original(settings, facts, pretrained, labels, *more)
        seen.extend([facts, labels.tolist(), found.prediction.probabilities.tolist()])
        return found

    original = fitting.fit
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "fit", fit)
        return seen, accuracy_on(split, settings, planted(), QUIET)


@pytest.mark.parametrize("method", ["kmeans", "gcd", "simgcd"])  # the first two whiten features by the labels
def test_labels_that_are_hidden_change_the_score_and_nothing_else(method, monkeypatch):
    poisoned = replace(SPLIT, true=(SPLIT.true + 1 + np.arange(len(SPLIT.true)) % 3) % KNOWN)
    right, score = told_and_scored(SPLIT, settings_of(method), monkeypatch)
    wrong, other_score = told_and_scored(poisoned, settings_of(method), monkeypatch)
    assert right == wrong
    assert right[1] == SPLIT.labels.tolist()
    assert score != other_score


def test_images_that_are_left_out_are_never_right(monkeypatch):
    original = fitting.fit

    def fit(*about):
        found = original(*about)
        return replace(found, none=np.isin(np.arange(len(TRUE)), SPLIT.scored[~SPLIT.known]))

    monkeypatch.setattr(fitting, "fit", fit)
    found = accuracy_on(SPLIT, settings_of("kmeans"), planted(), QUIET)
    assert found.new == 0.0 < found.old


def test_the_number_of_classes_stays_that_of_all():
    facts = facts_of(SPLIT, settings_of("kmeans"))
    assert (facts.classes, facts.known, facts.labelled_classes) == (CLASSES, KNOWN - 2, KNOWN - 2)
    assert facts.labelled == (SPLIT.labels >= 0).sum()
    assert facts_of(SPLIT, settings_of("hdbscan")).classes == KNOWN - 2  # the fewest there can be


# What is remembered


def test_a_key_says_what_was_trained_on_what():
    base = settings_of("simgcd")
    keys = [
        key_of(base, SPLIT, ["data"]),
        key_of(base, SPLIT, ["other data"]),
        key_of(base, hide(LABELS, 1), ["data"]),
        key_of(settings_of("simgcd", entropy_weight=9.0), SPLIT, ["data"]),
        key_of(settings_of("simgcd", rho=0.1), SPLIT, ["data"]),
        key_of(settings_of("gcd"), SPLIT, ["data"]),
        key_of(replace(base, seed=1), SPLIT, ["data"]),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(with_own(base, {"bank_dir": "elsewhere"}), SPLIT, ["data"]) == keys[0]


def test_each_split_has_a_seed_of_its_own():
    settings = replace(settings_of("kmeans"), seed=2**32 - 1)
    assert [Planned.of("", number, SPLIT, settings, []).settings.seed for number in (0, 1, 2)] == [2**32 - 1, 0, 1]


def test_the_file_keeps_every_digit(tmp_path):
    path = tmp_path / "trials.csv"
    trials = {key: Trial(f'a,"b"={key}', 2, 1 / 3, 0.1 + 0.2, 0.7, 12.5, key) for key in ("one", "two")}
    assert read_trials(path) == {}
    write_trials(path, trials)
    assert read_trials(path) == trials


@pytest.mark.parametrize(
    "content", ["settings,split\nx,1\n", "settings,split,all,old,new,seconds,key\nx,1,y,0,0,0,k\n"]
)
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "trials.csv").write_text(content)
    with pytest.raises(UserError, match=r"trials\.csv is malformed .*Delete it"):
        read_trials(tmp_path / "trials.csv")


def test_the_time_that_is_left_follows_epochs_and_trainings():
    quick, slow = (Planned.of(name, 0, SPLIT, settings_of(name, epochs=10), []) for name in ("simgcd", "sdas"))
    none = Planned.of("kmeans", 0, SPLIT, settings_of("kmeans"), [])
    assert slow.work() == 4 * quick.work()  # two trainings with the sharpness penalty
    done = {trial.key: Trial("", 1, 0.5, 0.5, 0.5, 30.0, trial.key) for trial in (quick, none)}
    planned = [none, quick, slow]
    assert time_left(planned, done, [slow]) == "; about 2:00 left in all"
    assert time_left(planned, {none.key: done[none.key]}, [quick, slow]) == ""
