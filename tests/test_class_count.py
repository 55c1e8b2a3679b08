import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

import newfound.class_count as module
from newfound import count_clusterings
from newfound.class_count import ClassCount, Estimate, Point, count_classes
from newfound.evaluate import cluster_accuracy


def planted(n_classes, n_known, each=14, dim=16, noise=0.25, seed=0):
    """Groups around random directions; every second image of the first classes is labelled. Shuffled."""
    random = np.random.default_rng(seed)
    truth = random.permutation(np.repeat(np.arange(n_classes), each))
    centres = random.normal(size=(n_classes, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = centres[truth] + noise * random.normal(size=(len(truth), dim)) / dim**0.5
    labelled = np.zeros(len(truth), dtype=bool)
    for k in range(n_known):
        labelled[np.flatnonzero(truth == k)[::2]] = True
    return features, np.where(labelled, truth, -1)


def scattered(seed, images=30, known=3, dim=3):
    """No structure at all, and two labelled images of each class."""
    random = np.random.default_rng(seed)
    labels = np.full(images, -1)
    labels[: 2 * known] = np.repeat(np.arange(known), 2)
    return random.normal(size=(images, dim)), random.permutation(labels)


# The score.


def labelled_accuracy(labels, clusters):
    labelled = labels >= 0
    return cluster_accuracy(labels[labelled], clusters[labelled], labelled[labelled]).all


def test_the_curve_is_mean_and_spread_of_kmeans_on_normalised_features():
    features, labels = planted(7, 4, noise=0.9)
    found = count_classes(features, labels, most=16, seeds=[3, 8])
    order = module._order_of_content(features)[0]
    unit = (features / np.linalg.norm(features, axis=1, keepdims=True))[order].astype(np.float32)
    labels = labels[order]
    for point in found.curve[::4]:
        runs = [KMeans(point.classes, n_init=5, random_state=seed).fit_predict(unit) for seed in (3, 8)]
        scores = [labelled_accuracy(labels, run) for run in runs]
        assert (point.score, point.spread) == pytest.approx((np.mean(scores), np.std(scores)))


# What it finds.


@pytest.mark.parametrize(("n_classes", "n_known"), [(8, 4), (12, 9)])
def test_planted_classes_are_found(n_classes, n_known):
    features, labels = planted(n_classes, n_known)
    found = count_classes(features, labels)
    assert abs(found.best - n_classes) <= 0.2 * n_classes
    assert abs(found.tree.best - n_classes) <= 0.2 * n_classes
    assert found.low <= n_classes <= found.high
    assert found.tree.low <= n_classes <= found.tree.high
    assert (found.known, found.criterion) == (n_known, "accuracy on labelled images")


def test_overlapping_classes_are_counted_roughly():
    found = count_classes(*planted(16, 12, noise=1.2), seeds=[0, 1])
    assert max(point.score for point in found.curve) < 0.95
    assert abs(found.best - 16) <= 4
    assert found.low <= 16 <= found.high


def test_many_dimensions_are_reduced_without_changing_what_is_found():
    features, labels = planted(12, 6)
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(400, 16)))[0]
    noise = 0.01 * np.random.default_rng(2).normal(size=(len(features), 400))
    wide = count_classes(features @ turned.T + noise, labels, most=16, seeds=[0, 1])
    assert abs(wide.best - 12) <= 2
    assert abs(wide.tree.best - 12) <= 2


def test_without_labels_planted_classes_are_found_too():
    features, labels = planted(9, 0)
    found = count_classes(features, labels, seeds=[0])
    assert abs(found.best - 9) <= 1
    assert found.tree.best == 9
    assert (found.known, found.criterion) == (0, "silhouette")


@pytest.mark.parametrize("given", [[0], [0, 1, 2], [0, 0, 1, 2]])
def test_labels_that_cannot_tell_leave_it_to_the_silhouette(given):
    """One known class, or no two that could be torn apart."""
    features, _ = planted(9, 0)
    truth = planted(9, 9, each=14)[1]
    labels = np.full(len(truth), -1)
    for k, times in Counter(given).items():
        labels[np.flatnonzero(truth == k)[:times]] = k
    found = count_classes(features, labels, most=12, seeds=[0])
    assert (found.criterion, found.known) == ("silhouette", len(set(given)))
    assert abs(found.best - 9) <= 1
    assert found.tree.best == 9


def test_a_tree_of_some_images_serves_all(monkeypatch):
    features, labels = planted(10, 6, each=30)
    whole = count_classes(features, labels, most=14, seeds=[0]).tree
    monkeypatch.setattr(count_clusterings, "LINKED", 100)
    part = count_classes(features, labels, most=14, seeds=[0]).tree
    assert part != whole
    assert abs(part.best - 10) <= 2


def test_centres_of_some_images_serve_all(monkeypatch):
    features, labels = planted(10, 6, each=30)
    whole = count_classes(features, labels, most=14, seeds=[0])
    monkeypatch.setattr(module, "FITTED", 100)
    part = count_classes(features, labels, most=14, seeds=[0])
    assert part.curve != whole.curve
    assert abs(part.best - 10) <= 2
    assert part.low <= 10 <= part.high


# What it does not depend on.


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 100), st.booleans())
def test_order_of_images_and_names_of_classes_do_not_matter(seed, structured):
    features, labels = planted(5, 3, each=6, noise=0.8, seed=seed) if structured else scattered(seed)
    order = np.random.default_rng(seed).permutation(len(labels))
    names = np.append(np.random.default_rng(seed).permutation(50)[: labels.max() + 1], -1)
    found = count_classes(features, labels, most=6, seeds=[0, 1])
    assert count_classes(features[order], names[labels[order]], most=6, seeds=[0, 1]) == found


def test_the_length_of_features_does_not_matter():
    features, labels = planted(6, 4, noise=0.8)
    lengths = 2.0 ** np.random.default_rng(0).integers(-300, 300, size=(len(labels), 1))
    by_length, plain = (count_classes(f, labels, most=12, seeds=[0]) for f in (features * lengths, features))
    for one, two in ((by_length, plain), (by_length.tree, plain.tree)):
        assert abs(one.best - two.best) <= 2  # the images are taken in another order
    assert by_length.tree.curve == plain.tree.curve


def test_the_number_of_threads_does_not_matter():
    features, labels = planted(8, 5, each=30, dim=150, noise=1.5)
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            answers.append(count_classes(features, labels, most=10, seeds=[0, 1]))
    assert answers[0] == answers[1]


def test_inputs_stay_as_they_are():
    features, labels = planted(5, 3)
    before = features.copy(), labels.copy()
    count_classes(features, labels, most=8, seeds=[0])
    assert_array_equal(features, before[0])
    assert_array_equal(labels, before[1])


# The search and the interval.


class Plain:
    """A criterion with units of size 1, for made-up scores."""

    name = "made up"

    def __init__(self, units):
        self.sizes = np.ones(units)


def search(score, fewest, most, units=20):
    """Search a made-up curve without noise; also what was tried, in order."""
    asked = []

    def runs(count):
        asked.append(count)
        return np.broadcast_to(score(count), (2, units))

    criterion = Plain(units)
    return module._search(runs, fewest, most, lambda tried: module._estimate(tried, criterion, 0), None), asked


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(0, 700), st.floats(0, 1))
def test_a_single_peak_is_found_and_nothing_is_scored_twice(fewest, room, where):
    most = fewest + room
    peak = round(fewest * (most / fewest) ** where)
    found, asked = search(lambda count: -abs(np.log(count / peak)), fewest, most)
    assert abs(found.best - peak) <= max(1, 0.02 * peak)
    assert len(asked) == len(set(asked)) <= module.TRIED
    assert {fewest, most} <= set(asked)
    assert [point.classes for point in found.curve] == sorted(asked)
    assert found.low <= found.best <= found.high


def test_a_second_peak_that_is_plausible_is_looked_into():
    def of_two_minds(count):
        near_30, near_120 = (np.exp(-(np.log(count / peak) ** 2) / 0.2) for peak in (30, 120))
        return [near_30] * 10 + [near_120] * 11

    found, asked = search(of_two_minds, 10, 300, units=21)
    assert abs(found.best - 120) <= 3
    assert found.low <= 33
    assert sum(25 <= count <= 36 for count in asked) > 4  # of the coarse ones, there are one or two


def test_of_equal_scores_the_largest_number_is_taken():
    found, _ = search(lambda count: min(count, 7) - max(count, 12), 5, 16)
    assert (found.low, found.best, found.high) == (7, 12, 12)


def test_the_interval_holds_nine_of_ten_resamplings():
    random = np.random.default_rng(0)
    counts = np.arange(4, 30)
    values = random.normal(size=(len(counts), 3, 15))
    found = module._estimate(dict(zip(counts.tolist(), values, strict=True)), Plain(15), 5)
    tops = []
    for _ in range(1000):
        runs, units = random.integers(3, size=3), random.integers(15, size=15)
        tops.append(counts[values[:, runs][:, :, units].mean(axis=(1, 2)).argmax()])
    tops = np.array(tops)
    assert np.mean(tops < found.low) < 0.08
    assert np.mean(tops > found.high) < 0.08
    assert np.mean(tops <= found.low) > 0.02  # no wider than need be
    assert np.mean(tops >= found.high) > 0.02


def test_units_count_by_their_size():
    criterion = Plain(2)
    criterion.sizes = np.array([10.0, 30.0])
    found = module._estimate({3: np.array([[10.0, 3.0]]), 4: np.array([[0.0, 15.0]])}, criterion, 0)
    assert [point.score for point in found.curve] == [13 / 40, 15 / 40]
    assert (found.low, found.best, found.high) == (3, 4, 4)


def test_progress_grows_to_its_end():
    features, labels = planted(6, 4, noise=0.8)
    told = []
    count_classes(features, labels, most=30, seeds=[0], on_progress=lambda done, planned: told.append((done, planned)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert all(done <= planned for done, planned in told)
    assert told[-1][0] == told[-1][1]


# How far to look.


@pytest.mark.parametrize(
    ("images", "labelled", "known", "most"),
    [
        (400, 100, 10, 40),  # new classes as small as ten images
        (100, 20, 10, 26),  # or five
        (400, 200, 2, 22),  # or at least as many as the root of all
        (100, 100, 10, 10),  # nothing is left
        (400, 0, 0, 40),  # the silhouette wants ten images of each
        (9, 0, 0, 3),
    ],
)
def test_the_largest_number_considered(images, labelled, known, most):
    labels = np.full(images, -1)
    labels[:labelled] = np.arange(labelled) % max(known, 1)
    assert module._range(labels, images, None) == (max(known, 1), most)


def test_no_more_classes_than_asked_for_or_than_different_images():
    features, labels = planted(10, 4)
    found = count_classes(features, labels, most=6, seeds=[0])
    assert found.most == max(point.classes for point in found.curve) == 6
    assert found.tree.curve[-1].classes == 6
    copies = np.repeat(np.eye(5), 4, axis=0)
    found = count_classes(copies, [0, 0, -1, -1, 1, 1, -1, -1] + [-1] * 12, most=15, seeds=[0])
    assert (found.best, found.tree.best, found.most) == (5, 5, 5)


# Edges.


def test_all_labelled_leaves_nothing_to_find():
    features, labels = planted(5, 5, each=6)
    known = labels >= 0
    found = count_classes(features[known], labels[known], most=30)
    assert (found.low, found.best, found.high, found.tree.best) == (5, 5, 5, 5)
    assert found.sentence() == "about 5 classes; 5 are known"


@pytest.mark.parametrize("labels", [[-1, -1, -1], [0, -1, -1], [0, 1, -1], [0, 0, -1], [4, 2, 9]])
def test_three_images(labels):
    found = count_classes([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], labels)
    assert max(found.known, 1) <= found.low <= found.best <= found.high <= 3


def test_one_image():
    assert count_classes([[1.0, 2.0]], [-1]).best == 1
    assert count_classes([[1.0, 2.0]], [7]).sentence() == "about 1 class; 1 is known"


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("labels", [[-1] * 6, [0, 0, 1, 1, -1, -1]])
def test_images_that_are_all_the_same(value, labels):
    found = count_classes(np.full((6, 4), value), labels)
    assert found.best == found.tree.best == max(found.known, 1)


def test_many_images_that_are_all_the_same():
    labels = np.repeat([0, 1, -1], 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count_classes(np.ones((150, 140)), labels).best == 2


def test_features_that_look_like_distances_raise_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count_classes(np.zeros((2, 2)), [0, 1], seeds=[0]).best == 2


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_anything_finite_has_an_answer(data):
    images, dim = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 3))
    number = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 1e-300, 1e300]) | st.floats(-5, 5)
    features = data.draw(st.lists(st.lists(number, min_size=dim, max_size=dim), min_size=images, max_size=images))
    labels = np.array(data.draw(st.lists(st.integers(-1, 4), min_size=images, max_size=images)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = count_classes(features, labels, seeds=[0])
    known = len(set(labels.tolist()) - {-1})
    for estimate in (found, found.tree):
        assert max(known, 1) <= estimate.low <= estimate.best <= estimate.high <= found.most <= images
        assert all(-1 <= point.score <= 1 for point in estimate.curve)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_every_precision_is_taken(kind):
    features, labels = planted(6, 4)
    found = count_classes(features.astype(kind), labels, most=8)
    assert abs(found.best - 6) <= 1
    assert abs(found.tree.best - 6) <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named(bad):
    features, labels = planted(3, 2)
    features[5, 1] = bad
    with pytest.raises(ValueError, match="features must be finite; found NaN or infinity in row 5"):
        count_classes(features, labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.ones(4)}, r"a table of images by numbers; found shape \(4,\)"),
        ({"features": np.ones((0, 4)), "labels": []}, r"found shape \(0, 4\)"),
        ({"labels": [0, 1]}, r"one number for each of 4 images; found shape \(2,\)"),
        ({"labels": [0.0, 1.0, 0.0, -1.0]}, "labels must be whole numbers"),
        ({"labels": [0, 1, 0, -2]}, "labels must be whole numbers"),
        ({"most": 1}, "at least 1 and the 2 known classes; found 1"),
        ({"most": 2.5}, "most must be a whole number"),
        ({"labels": [-1] * 4, "most": 0}, "at least 1 and the 0 known classes; found 0"),
        ({"seeds": []}, "seeds must be different"),
        ({"seeds": [1, 1]}, "seeds must be different"),
        ({"seeds": [-1]}, "seeds must be different"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    sound = {"features": np.eye(4), "labels": [0, 0, 1, -1]}
    with pytest.raises(ValueError, match=message):
        count_classes(**(sound | change))


def test_sentences():
    tree = Estimate(24, 20, 28, (Point(24, 0.5, 0.0),))
    found = ClassCount(23, 18, 30, (Point(23, 0.5, 0.1),), tree, known=10, most=60, criterion="made up")
    assert str(found) == "about 23 classes, 18 to 30 plausible; 10 are known"
    edge = replace(found, most=30)
    assert str(edge) == "about 23 classes, 18 to 30 plausible; 10 are known; more than 30 were not looked for"
    split = replace(found, tree=replace(tree, best=41))
    assert str(split) == "about 23 classes, 18 to 30 plausible; 10 are known; a tree of the images says 41"
    blind = replace(found, known=0, criterion="silhouette")
    assert str(blind) == "about 23 classes, 18 to 30 plausible; none is known; judged without labels, by silhouette"


def test_there_are_no_more_new_classes_than_unlabelled_images():
    random = np.random.default_rng(0)
    true = np.arange(5).repeat(20)
    features = np.eye(5)[true] + 0.3 * random.normal(size=(100, 5))
    found = count_classes(features, np.where(np.arange(100) < 2, -1, true))
    assert 5 <= found.low <= found.best <= found.high <= 7
    assert found.most == 7
