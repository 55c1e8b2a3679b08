import math
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helping.densities import naive_density_order, near_duplicates
from newfound import anchors, cluster_density
from newfound.anchors import calibrate, densest, most_confident, select_anchors

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(GOLDEN.glob("das_*.npz"))
CALIBRATED = [case for case in CASES if "nonovel" not in case.name]
SHARES = ("omega", "gamma", "beta", "k")


def same(one, two):
    assert one.index.tolist() == two.index.tolist()
    assert one.label.tolist() == two.label.tolist()
    assert one.eta == two.eta
    assert one.threshold == pytest.approx(two.threshold, abs=1e-12, nan_ok=True)


# The golden files: an independent program, written from the method's text alone.


def test_all_golden_cases_are_here():
    assert len(CASES) == 8


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_selection_matches_the_reference_exactly(case, convert):
    data = np.load(case, allow_pickle=False)
    probabilities, features = convert(data["probs"]), convert(data["features"])
    for i, shares in enumerate(data["configs"].tolist()):
        chosen = select_anchors(
            probabilities, features, int(data["num_old"]), **dict(zip(SHARES, shares, strict=True))
        )  # fmt: skip
        assert chosen.index.tolist() == data[f"anchors_{i}"].tolist()
        assert chosen.label.tolist() == data[f"anchor_labels_{i}"].tolist()
        assert chosen.eta == data["eta"][i]
        assert chosen.threshold == pytest.approx(data["threshold"][i], abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("case", CALIBRATED, ids=lambda path: path.stem)
def test_calibration_matches_the_reference(case):
    data = np.load(case, allow_pickle=False)
    probabilities, features, n_known = data["probs"], data["features"], int(data["num_old"])

    def eta(omega, gamma):
        return select_anchors(probabilities, features, n_known, omega=omega, gamma=gamma, beta=0.5, k=0.5).eta

    for target, mode, low, high, smallest_gamma, reached, *_ in data["calibration"].tolist():
        omega, gamma = calibrate(probabilities, n_known, target)
        assert eta(omega, gamma) == reached
        if mode == 0:
            assert low <= omega < high
            assert omega == pytest.approx(high, abs=1e-9)
            assert gamma == 0.5
        else:
            assert omega == 0.0
            assert gamma == pytest.approx(smallest_gamma, abs=1e-12)
        if mode == 1:
            assert eta(0.0, gamma) >= target
            assert eta(0.0, gamma + 1e-6) >= target
            assert eta(0.0, gamma - 1e-6) < target
        if mode == 2:
            assert (omega, gamma) == (0.0, 1.0)
            assert reached < target


# The method once more, one Python number at a time.


def naive_clusters(probabilities, n_known):
    clusters = {j: [] for j in range(n_known, len(probabilities[0]) if probabilities else n_known)}
    for i, row in enumerate(probabilities):
        if row.index(max(row)) >= n_known:
            clusters[row.index(max(row))].append(i)
    return clusters


def naive_eta(probabilities, n_known, omega, gamma):
    clusters = naive_clusters(probabilities, n_known)
    new = [max(probabilities[i]) for members in clusters.values() for i in members]
    if not new:
        return 0, math.nan
    mean = math.fsum(new) / len(new)
    threshold = max(new) if omega == 1 else mean + omega * (max(new) - mean)
    counts = sorted(sum(max(probabilities[i]) > threshold for i in members) for members in clusters.values())
    position = Fraction(str(gamma)) * (len(counts) - 1)
    below, above = counts[math.floor(position)], counts[math.ceil(position)]
    return math.floor(below + (position - math.floor(position)) * (above - below)), threshold


def naive_select(probabilities, features, n_known, *, omega, gamma, beta, k):
    eta, threshold = naive_eta(probabilities, n_known, omega, gamma)
    index, label = [], []
    for j, members in naive_clusters(probabilities, n_known).items():
        if len(members) >= 2:
            peak = naive_density_order(features, members, k)[0]
            others = sorted((math.dist(features[peak], features[i]), i) for i in members if i != peak)
            size = max(1, round(Fraction(str(beta)) * len(members)))  # Python rounds half to even
            candidates = [peak] + [i for _, i in others[: size - 1]]
            chosen = sorted(candidates, key=lambda i: (-max(probabilities[i]), i))[:eta]
            index += chosen
            label += [j] * len(chosen)
    return anchors.Anchors(np.array(index), np.array(label), eta, threshold)


def naive_top(probabilities, n_known, count, ranked):
    """The first ``count`` of each cluster's ranking, most confident first."""
    index, label = [], []
    for j, members in naive_clusters(probabilities, n_known).items():
        if len(members) >= 2:
            chosen = sorted(ranked(members)[:count], key=lambda i: (-max(probabilities[i]), i))
            index += chosen
            label += [j] * len(chosen)
    return anchors.Anchors(np.array(index), np.array(label), count, math.nan)


@st.composite
def outputs(draw, ties=True):
    """Probabilities, features and n_known; with ``ties``, on so coarse a grid that most things tie."""
    samples, classes, width = draw(st.integers(1, 24)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if ties:
        probabilities = random.integers(0, 9, (samples, classes)) / 8
        features = random.integers(-2, 3, (samples, width)) / 4
    else:
        probabilities = random.dirichlet(np.ones(classes), samples)
        features = random.normal(size=(samples, width))
    return probabilities, features, draw(st.integers(0, classes))


share = st.sampled_from([0.0, 0.1, 0.25, 0.29, 0.3, 0.5, 0.575, 0.7, 0.75, 0.8, 0.9, 1.0])
shares = st.fixed_dictionaries(dict.fromkeys(SHARES, share))


@settings(max_examples=150, deadline=None)
@given(output=outputs() | outputs(ties=False), shares=shares)
def test_selection_equals_a_naive_loop(output, shares):
    probabilities, features, n_known = output
    chosen = select_anchors(probabilities, features, n_known, **shares)
    same(chosen, naive_select(probabilities.tolist(), features.tolist(), n_known, **shares))


@settings(max_examples=60, deadline=None)
@given(output=outputs() | outputs(ties=False), count=st.integers(0, 8), k=share)
def test_the_simpler_rules_equal_a_naive_loop(output, count, k):
    probabilities, features, n_known = output
    table, points = probabilities.tolist(), features.tolist()
    by_confidence = naive_top(table, n_known, count, lambda m: sorted(m, key=lambda i: (-max(table[i]), i)))
    by_density = naive_top(table, n_known, count, lambda m: naive_density_order(points, m, k))
    same(most_confident(probabilities, n_known, count=count), by_confidence)
    same(densest(probabilities, features, n_known, count=count, k=k), by_density)


# Properties.


@settings(max_examples=40, deadline=None)
@given(output=outputs(ties=False), shares=shares, data=st.data())
def test_order_of_samples_does_not_matter(output, shares, data):
    probabilities, features, n_known = output
    shares["k"] = 1.0  # with fewer neighbours, two mutually nearest samples tie
    assume(features.shape[1] > 1)  # on a line, the two samples in the middle tie
    assume(2 not in np.bincount(probabilities.argmax(axis=1)))  # a cluster's only two samples are equally dense
    order = np.array(data.draw(st.permutations(range(len(probabilities)))))
    one = select_anchors(probabilities, features, n_known, **shares)
    two = select_anchors(probabilities[order], features[order], n_known, **shares)
    assert order[two.index].tolist() == one.index.tolist()
    assert two.label.tolist() == one.label.tolist()


@settings(max_examples=60, deadline=None)
@given(output=outputs(), shares=shares)
def test_anchors_lie_in_their_cluster_and_are_few_enough(output, shares):
    probabilities, features, n_known = output
    chosen = select_anchors(probabilities, features, n_known, **shares)
    assert (probabilities.argmax(axis=1)[chosen.index] == chosen.label).all()
    assert (chosen.label >= n_known).all()
    assert len(set(chosen.index.tolist())) == len(chosen.index)
    assert np.bincount(chosen.label, minlength=1).max() <= chosen.eta
    assert chosen.index.dtype == chosen.label.dtype == np.int64


@settings(max_examples=60, deadline=None)
@given(output=outputs(), unit=st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted), fixed=share)
def test_eta_falls_with_omega_and_rises_with_gamma(output, unit, fixed):
    def eta(**shares):
        return select_anchors(*output, beta=0.5, k=0.5, **shares).eta

    assert eta(omega=unit[0], gamma=fixed) >= eta(omega=unit[1], gamma=fixed)
    assert eta(omega=fixed, gamma=unit[0]) <= eta(omega=fixed, gamma=unit[1])


@settings(max_examples=60, deadline=None)
@given(output=outputs() | outputs(ties=False), target=st.floats(0.01, 8))
def test_calibration_reaches_the_target_by_the_smallest_means(output, target):
    probabilities, _, n_known = output
    table = probabilities.tolist()
    omega, gamma = calibrate(probabilities, n_known, target)
    eta = select_anchors(*output, omega=omega, gamma=gamma, beta=0.5, k=0.5).eta
    if gamma == 0.5:
        assert eta >= target
        assert naive_eta(table, n_known, omega + 1e-9, 0.5)[0] < target
    else:
        assert omega == 0.0
        assert naive_eta(table, n_known, 0.0, 0.5)[0] < target
        assert eta >= target or gamma == 1.0
        assert naive_eta(table, n_known, 0.0, gamma - 1e-6)[0] < target


# Kinds of input.


def small_output(seed=0, samples=60):
    random = np.random.default_rng(seed)
    probabilities = torch.tensor(random.dirichlet(np.ones(6), samples))
    return probabilities, torch.nn.functional.normalize(torch.tensor(random.normal(size=(samples, 8))), dim=1)


DEFAULTS = {"omega": 0.1, "gamma": 0.5, "beta": 0.5, "k": 0.5}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_precision_is_read_exactly(dtype):
    probabilities, features = (table.to(dtype) for table in small_output())
    doubles = probabilities.double().numpy(), features.double().numpy()
    same(select_anchors(probabilities, features, 2, **DEFAULTS), select_anchors(*doubles, 2, **DEFAULTS))
    same(densest(probabilities, features, 2, count=3, k=0.5), densest(*doubles, 2, count=3, k=0.5))
    same(most_confident(probabilities, 2, count=3), most_confident(doubles[0], 2, count=3))
    assert calibrate(probabilities, 2, 2.5) == calibrate(doubles[0], 2, 2.5)


@pytest.mark.parametrize("scale", [1e-100, 1e-42, 1e-22, 1e-5, 1e5, 1e19, 3e37, 1e150])
def test_the_scale_of_features_does_not_matter(scale):
    probabilities, features = (table.numpy() for table in small_output())
    for kind in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            rows = (features * scale).astype(kind)
        if np.isfinite(rows).all() and rows.any():
            exact = rows.astype(np.longdouble) / np.longdouble(scale)  # back where doubles are far from their ends
            for count in (1, 3):
                same(densest(probabilities, rows, 2, count=count, k=0.5),
                     densest(probabilities, exact.astype(np.float64), 2, count=count, k=0.5))  # fmt: skip
            same(select_anchors(probabilities, rows, 2, **DEFAULTS),
                 select_anchors(probabilities, exact.astype(np.float64), 2, **DEFAULTS))  # fmt: skip


@pytest.mark.parametrize("kind", [np.longdouble, ">f8", ">f4", np.int64])
def test_every_kind_of_number_is_taken(kind):
    features = (2**30 + np.array([[0], [30], [31], [33], [60], [90]])).astype(kind)
    expected = [0, 1] if np.dtype(kind).itemsize == 4 else [2, 3]  # four bytes hold multiples of 64 there
    assert densest([[0.1, 0.9]] * 6, features, 1, count=2, k=0.5).index.tolist() == expected


def test_half_precision_arrays_lists_and_gradients_are_fine():
    probabilities, features = (table.half().numpy() for table in small_output())
    expected = select_anchors(probabilities, features, 2, **DEFAULTS)
    same(select_anchors(probabilities.tolist(), features.tolist(), 2, **DEFAULTS), expected)
    tracked = torch.tensor(probabilities, requires_grad=True), torch.tensor(features, requires_grad=True)
    same(select_anchors(*tracked, 2, **DEFAULTS), expected)


def test_inputs_are_neither_changed_nor_warned_about():
    probabilities, features = (table.numpy().copy() for table in small_output())
    for table in (probabilities, features):
        table.setflags(write=False)  # as a memory-mapped file would be
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        select_anchors(probabilities, features, 2, **DEFAULTS)
    tensors = small_output()
    select_anchors(*tensors, 2, **DEFAULTS)
    assert all(torch.equal(one, two) for one, two in zip(tensors, small_output(), strict=True))


# Edges.


def test_no_samples_no_new_classes_or_nothing_predicted_new_give_no_anchors():
    known = np.array([[0.9, 0.1], [0.8, 0.2]])
    for probabilities, n_known in ((np.empty((0, 3)), 1), (known, 2), (known, 1)):
        chosen = select_anchors(probabilities, np.ones((len(probabilities), 4)), n_known, **DEFAULTS)
        assert (len(chosen.index), len(chosen.label), chosen.eta) == (0, 0, 0)
        assert chosen.index.dtype == chosen.label.dtype == np.int64
        assert math.isnan(chosen.threshold)
        assert not len(most_confident(probabilities, n_known, count=3).index)
        assert not len(densest(probabilities, np.ones((len(probabilities), 4)), n_known, count=3, k=0.5).index)
        assert calibrate(probabilities, n_known, 1.0) == (0.0, 1.0)


def test_single_member_and_empty_clusters_give_no_anchors():
    probabilities = np.array([[0.1, 0.9, 0.0, 0.0], [0.2, 0.0, 0.8, 0.0], [0.3, 0.0, 0.7, 0.0]])
    features = np.eye(3)
    assert select_anchors(probabilities, features, 1, **{**DEFAULTS, "gamma": 1.0}).label.tolist() == [2]
    assert most_confident(probabilities, 1, count=5).index.tolist() == [1, 2]
    assert densest(probabilities, features, 1, count=5, k=0.5).index.tolist() == [1, 2]


def test_no_confidence_exceeds_the_highest_one_or_their_mean_where_all_are_equal():
    for seed in range(100):
        uneven = np.random.default_rng(seed).uniform(0.1, 1, 7) ** 3  # mean + (highest − mean) may round down
        for confidence, omega in ((uneven, 1.0), (np.full(7, uneven[0]), 0.0)):
            probabilities = np.stack([np.zeros(7), confidence], axis=1)
            assert select_anchors(probabilities, np.ones((7, 1)), 1, omega=omega, gamma=1.0, beta=1.0, k=1.0).eta == 0


def test_shares_mean_the_decimal_number_they_are_written_as():
    counts = np.arange(101)
    assert 0.29 * 100 < 29
    assert anchors._floored_quantile(counts, 0.29) == 29


def test_first_of_several_maxima_is_the_prediction():
    probabilities = torch.full((40, 7), 1 / 7)
    assert not len(most_confident(probabilities, 1, count=9).index)
    assert (most_confident(probabilities, 0, count=9).label == 0).all()


# Distances: exact where it matters, in little memory.


@pytest.mark.parametrize("spread", [2.0**-40, 2.0**-30, 2.0**-20, 2.0**-3])
@pytest.mark.parametrize("k", [0.1, 0.5, 1.0])
def test_near_duplicates_are_distinguished(spread, k):
    features = near_duplicates(spread)
    probabilities = np.tile([0.1, 0.9], (len(features), 1))
    table, points = probabilities.tolist(), features.tolist()
    for count in (1, 7, len(points)):
        chosen = densest(probabilities, features, 1, count=count, k=k)
        same(chosen, naive_top(table, 1, count, lambda m: naive_density_order(points, m, k)))


def test_a_cluster_of_duplicates_takes_one_exact_pass(monkeypatch):
    passes = []
    distances_from = cluster_density._distances_from
    monkeypatch.setattr(cluster_density, "_distances_from", lambda *args: passes.append(1) or distances_from(*args))
    features = torch.full((3000, 12), 0.1)
    probabilities = torch.tensor([[0.1, 0.9]]).expand(3000, 2)
    assert densest(probabilities, features, 1, count=5, k=0.5).index.tolist() == [0, 1, 2, 3, 4]
    assert len(passes) == 1


@pytest.mark.parametrize("block", [1, 50, 700, 4096])
def test_size_of_blocks_does_not_matter(monkeypatch, block):
    data = np.load(GOLDEN / "das_04_ties_N500.npz", allow_pickle=False)
    table, features, n_known = data["probs"], data["features"], int(data["num_old"])
    close = near_duplicates(2.0**-30)
    one_cluster = np.tile([0.1, 0.9], (len(close), 1))

    def everything():
        yield select_anchors(table, features, n_known, **DEFAULTS)
        yield densest(table, features, n_known, count=9, k=0.3)
        yield densest(one_cluster, close, 1, count=9, k=0.3)

    expected = list(everything())
    monkeypatch.setattr(cluster_density, "BLOCK", block)
    for ours, theirs in zip(everything(), expected, strict=True):
        same(ours, theirs)


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numbers = max(self.numbers, *sizes, 0)
        return result


def test_a_large_cluster_never_needs_its_square(monkeypatch):
    monkeypatch.setattr(cluster_density, "BLOCK", 5000)
    random = np.random.default_rng(0)
    features = random.normal(size=(1000, 4)).repeat([1, 2] * 500, axis=0)[:1200]  # some duplicates
    probabilities = np.tile([0.1, 0.9], (1200, 1))
    with Largest() as largest:
        select_anchors(probabilities, torch.tensor(features), 1, **DEFAULTS)
        densest(probabilities, torch.tensor(features), 1, count=40, k=0.5)
    assert 1200 * 4 <= largest.numbers <= 5000


# Mistakes.


def test_mistakes_are_named():
    probabilities, features = np.full((3, 4), 0.25), np.eye(3)

    def select(table=probabilities, rows=features, n_known=2, **changes):
        return select_anchors(table, rows, n_known, **{**DEFAULTS, **changes})

    with pytest.raises(ValueError, match=r"samples by classes; found shape \(4,\)"):
        select(probabilities[0])
    with pytest.raises(ValueError, match=r"found shape \(3, 0\)"):
        select(probabilities[:, :0])
    with pytest.raises(ValueError, match=r"each of 3 samples; found shape \(2, 3\)"):
        select(rows=features[:2])
    with pytest.raises(ValueError, match="between 0 and the 4 classes of probabilities; found 5"):
        select(n_known=5)
    with pytest.raises(ValueError, match="of probabilities; found -1"):
        select(n_known=-1)
    for share in SHARES:
        for value in (-0.1, 1.1, math.nan):
            with pytest.raises(ValueError, match=f"{share} must lie between 0 and 1; found {value}"):
                select(**{share: value})
    for count in (-1, 2.5):
        with pytest.raises(ValueError, match=f"0 or more; found {count}"):
            most_confident(probabilities, 2, count=count)
    for target in (0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"positive number of anchors per class; found {target}"):
            calibrate(probabilities, 2, target)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_numbers_that_are_none_are_found(monkeypatch, bad, convert):
    monkeypatch.setattr(cluster_density, "BLOCK", 4)
    good, broken = np.full((5, 3), 0.5), np.full((5, 3), 0.5)
    broken[3, 1] = bad
    with pytest.raises(ValueError, match="probabilities must be finite; found NaN or infinity in row 3"):
        most_confident(convert(broken), 1, count=1)
    with pytest.raises(ValueError, match="features must be finite; found NaN or infinity in row 3"):
        select_anchors(convert(good), convert(broken), 1, **DEFAULTS)
