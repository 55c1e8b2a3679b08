"""The check on labels alone: whether whitening helps k-means with images that it was not computed from."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from sklearn.preprocessing import normalize

from newfound import whitening_check
from newfound.evaluate import cluster_accuracy
from newfound.hidden_labels import hide
from newfound.kmeans import Grouping, kmeans
from newfound.ward import ward_cut
from newfound.whitening import NONE, whitening_matrix, within_class_scatter
from newfound.whitening_check import CANDIDATES, TRIALS, WhiteningCheck, check_whitening

CLASSES, EACH, DIM = 6, 8, 12


def classes_and_noise(noise, seed=0, classes=CLASSES, spread=1.0):
    """Labelled rows: a mean for each class, and what is the same for all classes on top of it."""
    random = np.random.default_rng(seed)
    labels = np.arange(classes).repeat(EACH)
    means = spread * random.normal(size=(classes, DIM))
    return means[labels] + random.normal(size=(len(labels), DIM)) * noise, labels


def loud(dim=DIM):
    """Images of one class differ a lot in a few directions, which say nothing about the class."""
    return np.where(np.arange(dim) < 3, 6.0, 0.3)


@pytest.fixture
def few_trials(monkeypatch):
    monkeypatch.setattr(whitening_check, "TRIALS", 2)


def test_noise_that_known_classes_share_is_whitened_away():
    found = check_whitening(*classes_and_noise(loud()))
    assert found.shrinkage < NONE
    assert found.candidates == CANDIDATES
    assert np.shape(found.accuracy) == (TRIALS, len(CANDIDATES))
    assert found.means[CANDIDATES.index(found.shrinkage)] == max(found.means) > found.means[0] + 0.1


def test_noise_that_is_alike_in_all_directions_is_left_alone():
    assert check_whitening(*classes_and_noise(np.full(DIM, 1.0))).shrinkage == NONE


def test_where_it_does_harm_there_is_none():
    """Classes differ along the directions in which their images differ, too: ten of them on a circle."""
    random = np.random.default_rng(0)
    labels = np.arange(10).repeat(EACH)
    rows, around = random.normal(size=(len(labels), 30)) * 0.5, 2 * np.pi * labels / 10
    rows[:, :2] = 4 * np.stack([np.cos(around), np.sin(around)], axis=1) + random.normal(size=(len(labels), 2))
    found = check_whitening(rows, labels)
    assert found.shrinkage == NONE
    assert found.means[-1] < found.means[0] - 0.1


def test_what_is_right_already_stays_as_it_is():
    found = check_whitening(*classes_and_noise(np.full(DIM, 0.01)))
    assert found.means == (1.0,) * len(CANDIDATES)
    assert found.shrinkage == NONE


@pytest.mark.parametrize(
    "labels",
    [np.full(30, -1), np.zeros(30, dtype=np.int64), np.arange(30) % 3, np.arange(30), np.r_[np.arange(27), 0, 1, 2]],
    ids=["no labels", "one class", "three classes", "one image each", "three classes with two images"],
)
def test_too_few_labels_say_nothing(labels):
    found = check_whitening(np.random.default_rng(0).normal(size=(30, DIM)), labels)
    assert (found.accuracy, found.means, found.shrinkage) == ((), (), NONE)


def test_four_classes_with_two_images_each_are_enough():
    labels = np.r_[np.arange(4), np.arange(4)]
    found = check_whitening(np.random.default_rng(0).normal(size=(8, DIM)), labels)
    assert np.shape(found.accuracy) == (TRIALS, len(CANDIDATES))


@pytest.mark.usefixtures("few_trials")
def test_only_labelled_images_count():
    rows, labels = classes_and_noise(loud())
    expected = check_whitening(rows, labels)
    unlabelled = np.random.default_rng(1).normal(size=(20, DIM)) * 100
    order = np.argsort(np.r_[np.arange(len(rows)), np.linspace(0, len(rows), 20)], kind="stable")
    mixed, mixed_labels = np.concatenate([rows, unlabelled])[order], np.r_[labels, np.full(20, -1)][order]
    assert check_whitening(mixed, mixed_labels) == expected


@pytest.mark.usefixtures("few_trials")
def test_the_seed_decides():
    rows, labels = classes_and_noise(loud())
    assert check_whitening(rows, labels, seed=3) == check_whitening(rows, labels, seed=3)
    assert check_whitening(rows, labels, seed=3).accuracy != check_whitening(rows, labels, seed=4).accuracy


def ward(rows, n_clusters, seed):
    """In place of k-means, which on turned rows may end elsewhere: this does not depend on the last bits."""
    return Grouping(ward_cut(normalize(rows), n_clusters), rows)


def naive_trial(rows, labels, split):
    """As the text of the module says it."""
    scatter = within_class_scatter(rows, split.labels)
    accuracies = []
    for shrinkage in CANDIDATES:
        whitened = rows @ whitening_matrix(scatter, shrinkage)
        clusters = ward(whitened, len(np.unique(labels)), 0).clusters[split.scored]
        accuracies.append(cluster_accuracy(labels[split.scored], clusters, split.known).all)
    return accuracies


@pytest.mark.parametrize("classes", [5, 40])
@pytest.mark.parametrize("dim", [DIM, 400], ids=["few dimensions", "more dimensions than rows"])
def test_trials_are_what_a_naive_loop_gives(monkeypatch, classes, dim):
    monkeypatch.setattr(whitening_check, "kmeans", ward)
    monkeypatch.setattr(whitening_check, "TRIALS", 3)
    random = np.random.default_rng(0)
    labels = np.arange(classes).repeat(EACH)
    rows = 0.2 * random.normal(size=(classes, dim))[labels] + random.normal(size=(len(labels), dim)) * loud(dim)
    expected = [naive_trial(rows, labels, hide(labels, number, seed=5)) for number in range(3)]
    assert len(np.unique(expected)) > 2
    np.testing.assert_allclose(check_whitening(rows, labels, seed=5).accuracy, expected)


@pytest.mark.usefixtures("few_trials")
def test_the_scatter_may_come_from_several_views():
    rows, labels = classes_and_noise(loud())
    asked = []

    def views(images):
        asked.extend(images)
        return np.stack([rows[images], rows[images]], axis=1)

    assert check_whitening(rows, labels, views=views) == check_whitening(rows, labels)
    assert sorted(asked) == list(range(len(rows)))  # each once
    still = np.repeat(rows[labels == 0][:1], len(rows), axis=0)  # no image differs from another
    found = check_whitening(rows, labels, views=lambda images: still[images][:, None])
    assert len({*found.means}) == 1


def test_of_many_classes_and_images_some_are_drawn(monkeypatch):
    rows, labels = classes_and_noise(loud(), classes=20)
    for name, value in (("MOST_CLASSES", 6), ("MOST_IMAGES", 30), ("MOST_PER_CLASS", 100)):
        monkeypatch.setattr(whitening_check, name, value)
    sizes = []
    monkeypatch.setattr(
        whitening_check, "kmeans", lambda rows, n, seed: sizes.append((len(rows), n)) or kmeans(rows, n, seed)
    )
    check_whitening(rows, labels)
    assert set(sizes) == {(30, 6)}  # 5 images of each of 6 classes


def test_it_survives_json():
    for found in (check_whitening(*classes_and_noise(loud())), WhiteningCheck(CANDIDATES, (), NONE)):
        assert WhiteningCheck.from_json(json.loads(json.dumps(asdict(found)))) == found


SOUND = {"candidates": [1.0, 0.5], "accuracy": [[0.5, 0.75]], "shrinkage": 0.5}


@pytest.mark.parametrize(
    "change",
    [{"candidates": None}, {"candidates": ["x"]}, {"candidates": [1.0, 0.4]}, {"accuracy": [[0.5]]}, {"accuracy": [3]},
     {"accuracy": [[0.5, 7]]}, {"accuracy": [[0.5, float("nan")]]}, {"shrinkage": 2}, {"shrinkage": {}}],
    ids=str,
)  # fmt: skip
def test_what_is_none_is_refused(change):
    assert WhiteningCheck.from_json(SOUND).means == (0.5, 0.75)
    with pytest.raises((KeyError, TypeError, ValueError)):
        WhiteningCheck.from_json({**SOUND, **change})


def test_no_gain_is_reported_as_none():
    assert str(WhiteningCheck((NONE, 0.5), ((0.75, 0.5),), NONE)) == (
        "none (labels that were hidden: 75 % correct without, no clear gain with)"
    )


# What follows from the trials


def chosen(*gains):
    """Of candidates with these gains over none (which is right for half of the images), by trial."""
    accuracy = np.full((len(gains), len(CANDIDATES)), 0.5)
    accuracy[:, 1 : 1 + len(gains[0])] += gains
    return whitening_check._chosen(accuracy)


def test_the_best_candidate_is_chosen():
    assert chosen((0.1, 0.2, 0.15), (0.11, 0.2, 0.14)) == CANDIDATES[2]


def test_a_gain_that_may_be_chance_is_none():
    assert chosen((0.3,), (-0.1,), (0.2,), (-0.15,)) == NONE
    assert chosen((0.3,), (0.25,), (0.2,), (0.3,)) == CANDIDATES[1]


def test_a_sure_gain_is_chosen_before_a_larger_one_that_may_be_chance():
    assert chosen((0.1, 0.9), (0.12, -0.5), (0.11, 0.2)) == CANDIDATES[1]


def test_of_equal_candidates_the_weakest_is_chosen():
    assert chosen((0.0, 0.25, 0.25), (0.0, 0.25, 0.25)) == CANDIDATES[2]
    assert chosen((0.0, 0.0), (0.0, 0.0)) == NONE
