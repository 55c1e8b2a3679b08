import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

import newfound.semi_kmeans as module
from newfound.evaluate import cluster_accuracy
from newfound.semi_kmeans import semi_kmeans

CASES = ["sskmeans_00_N300_k10", "sskmeans_01_N300_k8", "sskmeans_02_N240_k9", "sskmeans_03_N300_k13"]


def loaded(golden, case):
    """A stored case: its arrays, and the labels with -1 for unlabelled."""
    data = dict(np.load(golden / f"{case}.npz", allow_pickle=False))
    return data, np.where(data["mask_labelled"], data["targets"], -1)


def same(one, two):
    assert_array_equal(one.labels, two.labels)
    assert_array_equal(one.centres, two.centres)
    assert (one.inertia, one.iterations) == (two.inertia, two.iterations)


# The golden files: the released implementation.


def check(found, labels, centres, inertia):
    assert_array_equal(found.labels, labels)
    assert_allclose(found.centres, centres, rtol=0, atol=1e-6)
    assert found.inertia == pytest.approx(inertia, rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_matches_the_released_code_from_its_first_centres(golden, case):
    data, labels = loaded(golden, case)
    for run, drawn in enumerate(data["init_indices"]):
        first = np.concatenate([data["init_labelled_centers"], data["features"][drawn]])
        found = semi_kmeans(data["features"], labels, int(data["k"]), initial_centres=first)
        check(found, data["labels"][run], data["centers"][run], data["inertia"][run])
        assert found.iterations == data["iterations"][run]


def lend_random_numbers(monkeypatch, seed):
    """The random numbers of the released code: one sequence for all starts."""
    numbers = np.random.RandomState(seed)
    monkeypatch.setattr(module.np.random, "default_rng", lambda _: SimpleNamespace(random=numbers.rand))


@pytest.mark.parametrize("case", CASES)
def test_matches_the_released_code_from_its_random_numbers(golden, case, monkeypatch):
    data, labels = loaded(golden, case)
    for run, seed in enumerate(data["seeds"]):
        lend_random_numbers(monkeypatch, seed)
        found = semi_kmeans(data["features"], labels, int(data["k"]), starts=1)
        check(found, data["labels"][run], data["centers"][run], data["inertia"][run])


@pytest.mark.parametrize("case", CASES)
def test_matches_the_best_of_ten_starts_of_the_released_code(golden, case, monkeypatch):
    data, labels = loaded(golden, case)
    lend_random_numbers(monkeypatch, data["multi_seed"])
    starts, most = int(data["multi_n_init"]), int(data["multi_max_iterations"])
    found = semi_kmeans(data["features"], labels, int(data["k"]), starts=starts, max_iterations=most)
    expected = np.empty_like(found.labels)
    expected[np.argsort(labels < 0, kind="stable")] = data["multi_labels_lab_then_unlab"]
    check(found, expected, data["multi_centers"], data["multi_inertia"])


@pytest.mark.parametrize("case", CASES)
def test_own_starts_are_as_good_as_those_of_the_released_code(golden, case):
    data, labels = loaded(golden, case)
    runs = [semi_kmeans(data["features"], labels, int(data["k"]), seed=seed, starts=1) for seed in range(20)]
    inertia, spread = data["inertia"].mean(), data["inertia"].std()
    assert np.mean([run.inertia for run in runs]) == pytest.approx(inertia, abs=spread)
    best = semi_kmeans(data["features"], labels, int(data["k"]))
    assert best.inertia <= np.median(data["inertia"])
    assert best.inertia <= runs[0].inertia  # which is its first start
    targets = np.unique(data["targets"], return_inverse=True)[1]
    free = labels < 0
    accuracy = cluster_accuracy(targets[free], best.labels[free], data["mask_old"][free])
    assert accuracy.all >= data["acc_v2"][:, 0].min()


def test_without_labels_matches_plain_kmeans_of_the_released_code(golden):
    data = np.load(golden / "kmeans_plain.npz", allow_pickle=False)
    features, k = data["features"], int(data["k"])
    for run, seed in enumerate(data["seeds"]):
        numbers = np.random.RandomState(seed)
        drawn = [numbers.randint(len(features))]
        while len(drawn) < k:
            distances = [min(squared(x, features[i]) for i in drawn) for x in features]
            drawn.append(int(np.searchsorted(np.cumsum(distances), numbers.rand() * sum(distances))))
        found = semi_kmeans(features, [-1] * len(features), k, initial_centres=features[drawn])
        check(found, data["labels"][run], data["centers"][run], data["inertia"][run])
        assert found.iterations == data["n_iter"][run]


# The same once more, one sample at a time.


def squared(one, two):
    return sum((float(a) - float(b)) ** 2 for a, b in zip(one, two, strict=True))


def naive_nearest(features, fixed, centres):
    """Clusters and squared distances; empty clusters go to the farthest unlabelled sample, all of them at a time."""
    cluster, distance = [], []
    for x, own in zip(features, fixed, strict=True):
        distances = [squared(x, c) for c in centres]
        cluster.append(own if own >= 0 else distances.index(min(distances)))
        distance.append(distances[cluster[-1]])
    empty = [j for j in range(len(centres)) if j not in cluster]
    away = [d if own < 0 else 0.0 for d, own in zip(distance, fixed, strict=True)]
    if not empty or not any(away):
        return centres, cluster, sum(distance)
    centres = list(centres)
    for j in empty:
        if any(away):
            centres[j] = features[away.index(max(away))]
            away = [min(d, squared(x, centres[j])) for x, d in zip(features, away, strict=True)]
    return naive_nearest(features, fixed, centres)


def naive(features, labels, centres, most=200, tolerance=1e-4):
    classes = sorted({label for label in labels if label >= 0})
    fixed = [classes.index(label) if label >= 0 else -1 for label in labels]
    iterations, shift = 0, np.inf
    while iterations < most and shift**2 > tolerance:
        iterations += 1
        before, cluster, inertia = naive_nearest(features, fixed, centres)
        centres = list(before)
        for j in set(cluster):
            members = [x for x, own in zip(features, cluster, strict=True) if own == j]
            centres[j] = [sum(float(v) for v in column) / len(members) for column in zip(*members, strict=True)]
        shift = sum(squared(a, b) ** 0.5 for a, b in zip(before, centres, strict=True))
    return module.SemiKMeans(np.array(cluster), np.array(centres, dtype=float), inertia, iterations)


@st.composite
def problems(draw, ties=None):
    """Features, labels and first centres; with ``ties``, on so coarse a grid that most things tie or coincide."""
    samples, width = draw(st.integers(1, 25)), draw(st.integers(1, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ties = draw(st.booleans()) if ties is None else ties
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    features = random.integers(-2, 3, (samples, width)) / 4 if ties else random.normal(size=(samples, width))
    features = features.astype(dtype)
    labels = random.choice([-1, -1, -1, 0, 3, 17], samples)
    different = len(np.unique(features[labels < 0], axis=0))
    new = draw(st.integers(0, different))
    n_clusters = len(set(labels.tolist()) - {-1}) + new
    if not n_clusters:
        labels[:] = 4
        n_clusters = 1
    centres = features[random.integers(0, samples, n_clusters)] + (0 if ties else random.normal(size=width) / 2)
    return features, labels, n_clusters, np.asarray(centres, dtype=np.float64)


@settings(deadline=None)
@given(problems())
def test_equals_loops_over_samples(problem):
    features, labels, n_clusters, centres = problem
    found = semi_kmeans(features, labels, n_clusters, initial_centres=centres)
    expected = naive(features.tolist(), labels.tolist(), centres.tolist())
    assert_array_equal(found.labels, expected.labels)
    assert_allclose(found.centres, expected.centres, rtol=0, atol=1e-12)
    assert found.inertia == pytest.approx(expected.inertia, rel=1e-12, abs=1e-12)
    assert found.iterations == expected.iterations


# Properties.


@settings(deadline=None)
@given(problems(), st.integers(0, 9), st.booleans())
def test_labelled_samples_stay_and_everything_is_in_range(problem, seed, own_start):
    features, labels, n_clusters, centres = problem
    found = semi_kmeans(
        features, labels, n_clusters, seed=seed, starts=2, initial_centres=None if own_start else centres
    )  # fmt: skip
    classes = np.unique(labels[labels >= 0])
    assert_array_equal(found.labels[labels >= 0], np.searchsorted(classes, labels[labels >= 0]))
    assert found.labels.min() >= 0
    assert found.labels.max() < n_clusters
    assert found.centres.shape == (n_clusters, features.shape[1])
    assert np.isfinite(found.centres).all()
    assert 0 <= found.inertia < np.inf
    for j in set(found.labels.tolist()):
        assert_allclose(found.centres[j], features[found.labels == j].mean(axis=0, dtype=float), rtol=0, atol=1e-12)


@settings(deadline=None)
@given(problems())
def test_inertia_never_rises(problem):
    features, labels, n_clusters, centres = problem
    runs = [
        semi_kmeans(features, labels, n_clusters, initial_centres=centres, tolerance=0, max_iterations=most)
        for most in range(1, 8)
    ]
    assert (np.diff([run.inertia for run in runs]) <= 1e-12 * (1 + runs[0].inertia)).all()


@settings(deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_another_order_of_samples_gives_the_same_clusters(problem, random):
    features, labels, n_clusters, centres = problem
    order = np.array(random.sample(range(len(features)), len(features)))
    with pytest.MonkeyPatch.context() as patch:
        refill, calls = module._moved_to_farthest, []
        patch.setattr(module, "_moved_to_farthest", lambda *given: calls.append(given) or refill(*given))
        found = semi_kmeans(features, labels, n_clusters, initial_centres=centres)
    assume(not calls)  # an empty cluster takes the first of equally far samples: any two are, around their mean
    shuffled = semi_kmeans(features[order], labels[order], n_clusters, initial_centres=centres)
    assert_array_equal(shuffled.labels, found.labels[order])
    assert_allclose(shuffled.centres, found.centres, rtol=0, atol=1e-12)
    assert shuffled.inertia == pytest.approx(found.inertia, rel=1e-12, abs=1e-12)


@settings(deadline=None)
@given(problems(), st.integers(1, 40))
def test_size_of_blocks_does_not_matter(problem, size):
    features, labels, n_clusters, centres = problem
    with pytest.MonkeyPatch.context() as patch:
        whole = semi_kmeans(features, labels, n_clusters, initial_centres=centres)
        patch.setattr(module, "BLOCK", size)
        parts = semi_kmeans(features, labels, n_clusters, initial_centres=centres)
    assert_array_equal(parts.labels, whole.labels)
    assert_allclose(parts.centres, whole.centres, rtol=0, atol=1e-12)
    assert parts.inertia == pytest.approx(whole.inertia, rel=1e-12, abs=1e-12)


# Precision.


def brute_force(features, centres):
    return np.array([np.square(x.astype(np.float64) - centres).sum(axis=1).argmin() for x in features])


@pytest.mark.parametrize("offset", [0.0, 1.0, 3000.0])
@pytest.mark.parametrize("apart", [1.0, 1e-4, 1e-7, 0.0])
@pytest.mark.parametrize("scale", [1e-25, 1e-21, 1.0, 1e11])
def test_near_ties_are_settled_in_double_precision(offset, apart, scale):
    random = np.random.default_rng(0)
    features = ((random.normal(size=(400, 96)) + offset) * scale).astype(np.float32)
    centres = (random.normal(size=96) + apart * random.normal(size=(9, 96)) + offset) * scale
    found = semi_kmeans(features, [-1] * 400, 9, initial_centres=centres, max_iterations=1)
    if apart:
        assert_array_equal(found.labels, brute_force(features, centres))
    assert np.isfinite(found.centres).all()


def test_one_far_centre_does_not_blur_the_others():
    random = np.random.default_rng(1)
    features = random.normal(size=(300, 20)).astype(np.float32)
    features[7] = 1e12
    centres = np.concatenate([random.normal(size=(5, 20)), features[[7]]])
    found = semi_kmeans(features, [-1] * 300, 6, initial_centres=centres, max_iterations=1)
    assert_array_equal(found.labels, brute_force(features, centres))


def groups(samples=600, width=24, classes=12, dtype=np.float32):
    """Loose groups on the sphere, half of the first third labelled."""
    random = np.random.default_rng(5)
    targets = random.integers(0, classes, samples)
    features = random.normal(size=(classes, width))[targets] + random.normal(size=(samples, width))
    features = (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(dtype)
    return features, np.where((targets < classes // 3) & (random.random(samples) < 0.5), targets, -1)


def test_the_same_features_give_the_same_answer_in_any_type_and_layout():
    features, labels = groups(dtype=np.float16)
    first = features[:12].astype(np.float64)
    found = semi_kmeans(features, labels, 12, initial_centres=first)
    for other in (features.astype(np.float32), features.astype(np.float64), np.asfortranarray(features)):
        same(semi_kmeans(other, labels, 12, initial_centres=first), found)


def test_the_number_of_threads_does_not_matter():
    features, labels = groups(samples=4000, width=64)
    with threadpool_limits(1):
        one = semi_kmeans(features, labels, 12, starts=1)
    with threadpool_limits(2):
        same(semi_kmeans(features, labels, 12, starts=1), one)


# Starts.


def test_the_seed_decides_and_nothing_else():
    features, labels = groups()
    np.random.seed(0)
    found = semi_kmeans(features, labels, 12, seed=4)
    np.random.seed(1)
    same(semi_kmeans(features, labels, 12, seed=4), found)
    inertias = {semi_kmeans(features, labels, 12, seed=seed, starts=1).inertia for seed in range(5)}
    assert len(inertias) > 1


def test_inputs_are_left_alone():
    features, labels = groups()
    first = features[:12].astype(np.float64)
    copies = features.copy(), labels.copy(), first.copy()
    for array in (features, labels, first):
        array.flags.writeable = False
    semi_kmeans(features, labels, 12, initial_centres=first)
    semi_kmeans(features, labels, 12, starts=1)
    for array, copy in zip((features, labels, first), copies, strict=True):
        assert_array_equal(array, copy)


def test_each_group_gets_its_cluster():
    features = np.repeat(np.eye(6), 5, axis=0) + np.tile(np.linspace(0, 0.01, 5), 6)[:, None]
    labels = np.full(30, -1)
    labels[[0, 10]] = 90, 20
    found = semi_kmeans(features, labels, 6)
    assert found.labels[[0, 10]].tolist() == [1, 0]
    assert sorted(np.bincount(found.labels)) == [5] * 6
    assert all(len(set(found.labels[5 * j : 5 * j + 5])) == 1 for j in range(6))


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_samples_on_a_centre_are_never_drawn(number):
    assert module._drawn(np.array([0.0, 0.1, 0.0, 0.7, 0.0]), number) in (1, 3)
    assert module._drawn(np.zeros(5), number) in range(5)


def test_as_many_clusters_as_labelled_classes_need_no_draw():
    found = semi_kmeans([[0.0], [1.0], [0.4]], [0, 1, -1], 2)
    assert found.labels.tolist() == [0, 1, 0]
    found = semi_kmeans([[0.0], [1.0], [0.4]], [2, 1, 2], 2)
    assert found.labels.tolist() == [1, 0, 1]
    assert found.centres.tolist() == [[1.0], [0.2]]
    assert found.iterations == 1


# Empty clusters.


def test_an_empty_cluster_moves_to_the_farthest_unlabelled_sample():
    features = np.array([[0.0], [0.1], [0.2], [7.0], [-9.0]])
    found = semi_kmeans(features, [-1, -1, -1, -1, 0], 3, initial_centres=[[0.0], [0.1], [99.0]])
    assert found.labels.tolist() == [1, 1, 1, 2, 0]
    assert_allclose(found.centres[:, 0], [-9.0, 0.1, 7.0])


def test_several_empty_clusters_spread():
    features = np.array([[0.0], [0.1], [7.0], [7.1], [-5.0]])
    found = semi_kmeans(features, [-1] * 5, 3, initial_centres=[[0.0], [99.0], [99.0]])
    assert found.labels.tolist() == [0, 0, 1, 1, 2]
    once = semi_kmeans(features, [-1] * 5, 3, initial_centres=[[0.0], [99.0], [99.0]], max_iterations=1)
    assert np.bincount(once.labels, minlength=3).all()


def test_a_cluster_nobody_can_fill_stays_empty_and_finite():
    found = semi_kmeans([[0.0], [2.0], [1.0]], [0, 0, -1], 2)
    assert found.labels.tolist() == [0, 0, 0]
    assert found.centres.tolist() == [[1.0], [1.0]]
    assert found.inertia == 2.0


def test_as_many_clusters_as_samples():
    features, _ = groups(samples=30)
    found = semi_kmeans(features, [-1] * 30, 30, starts=1)
    assert sorted(found.labels.tolist()) == list(range(30))
    assert found.inertia == 0.0


def test_copies_do_no_harm():
    features = np.repeat([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]], 20, axis=0)
    found = semi_kmeans(features, [-1] * 60, 3)
    assert found.inertia == 0.0
    assert np.bincount(found.labels).tolist() == [20] * 3


# Memory and mistakes.


def test_memory_is_a_few_blocks(monkeypatch):
    features, labels = groups(samples=20_000, width=128)  # 10 MB
    monkeypatch.setattr(module, "BLOCK", 2**15)
    tracemalloc.start()
    semi_kmeans(features, labels, 40, starts=1, max_iterations=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6


FEATURES, LABELS = np.arange(12.0).reshape(6, 2), np.array([0, 5, -1, -1, -1, -1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros(6)}, r"features must be a table .* found shape \(6,\)"),
        ({"features": np.zeros((0, 2)), "labels": []}, r"found shape \(0, 2\)"),
        ({"features": np.where(FEATURES == 5, np.nan, FEATURES)}, "finite and at most 1e.15 in size; row 2 is not"),
        ({"features": FEATURES * 1e18}, "row 0 is not"),
        ({"labels": LABELS[:5]}, r"each of 6 samples; found shape \(5,\)"),
        ({"labels": LABELS / 1}, "whole numbers, -1 for unlabelled; found type float64"),
        ({"labels": LABELS - 1}, "found -2"),
        ({"n_clusters": 1}, "at least the 2 labelled classes; found 1"),
        ({"n_clusters": 0}, "n_clusters must be a whole number, 1 or more; found 0"),
        ({"n_clusters": 2.5}, "found 2.5"),
        ({"n_clusters": 7}, "7 clusters with 2 labelled classes need 5 different unlabelled samples; found 4"),
        ({"features": FEATURES * 0, "n_clusters": 4}, "need 2 different unlabelled samples; found 1"),
        ({"starts": 0}, "starts must be a whole number, 1 or more; found 0"),
        ({"max_iterations": 0}, "max_iterations must be"),
        ({"tolerance": -1.0}, "tolerance must be 0 or more; found -1.0"),
        ({"tolerance": np.nan}, "tolerance must be 0 or more; found nan"),
        ({"initial_centres": np.zeros((2, 2))}, r"must have shape \(3, 2\); found \(2, 2\)"),
        ({"initial_centres": np.full((3, 2), np.inf)}, "initial_centres must be finite"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        semi_kmeans(**({"features": FEATURES, "labels": LABELS, "n_clusters": 3} | change))


def test_signs_of_zero_do_not_count_as_different():
    with pytest.raises(ValueError, match="found 1"):
        semi_kmeans([[0.0], [-0.0]], [-1, -1], 2)
