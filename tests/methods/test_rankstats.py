import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helping.contract import new_journal
from helping.groups import CLASSES, LABELS
from helping.tasks import batch_of, decided_for, fitted, new_task
from newfound.errors import SettingError
from newfound.losses import labelled_cross_entropy
from newfound.methods import rankstats
from newfound.methods.rankstats import (
    RankStats,
    consistency,
    largest_dimensions,
    pair_loss,
    ramped_weight,
    rankstats_losses,
    same_class,
    stepped_rate,
)
from newfound.training.start import ROW_LENGTH

CASES = ["rankstats_losses_00", "rankstats_losses_01"]  # 01: nothing is labelled


def loaded(golden, case):
    data = np.load(golden / "peers" / f"{case}.npz", allow_pickle=False)
    return {name: torch.tensor(data[name]) for name in data.files}


def unlabelled(count):
    return torch.full((count,), -1)


def same(features, strongest=5):
    return same_class(features, unlabelled(len(features)), strongest)[0]


# The golden files: the released implementation in double precision.


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("variant", "labels_decide"), [("meant", True), ("script", False)])
def test_parts_and_gradients_match_the_released_implementation(golden, case, variant, labels_decide):
    data = loaded(golden, case)
    features, weight, bias = (data[name].requires_grad_() for name in ("features", "weight", "bias"))
    rows, k = features.flatten(0, 1), int(data["topk"])
    parts = rankstats_losses(
        rows.detach(), rows @ weight.T + bias, data["labels"], consistency_weight=float(data["consistency_weight"]),
        strongest=k, labels_decide=labels_decide,
    )  # fmt: skip
    names = {"pairs": "bce", "cross_entropy": "cross_entropy", "consistency": "consistency", "total": "total"}
    assert parts.keys() == names.keys() | {"positive_pairs"}
    for ours, theirs in names.items():
        assert parts[ours].item() == pytest.approx(data[f"{variant}_{theirs}"].item(), abs=1e-10), ours
    pairs, _ = same_class(features[0], data["labels"], k, labels_decide=labels_decide)
    assert torch.equal(pairs, data[f"{variant}_pairs"] > 0)
    parts["total"].backward()
    for tensor, name in ((features, "features"), (weight, "weight"), (bias, "bias")):
        np.testing.assert_allclose(tensor.grad, data[f"{variant}_grad_{name}"], atol=1e-8, rtol=0)


def test_with_two_heads_and_unlabelled_pairs_it_is_the_released_step(golden):
    data = loaded(golden, "rankstats_ncd_00")
    features, w_known, w_new = (data[name].requires_grad_() for name in ("features", "w_known", "w_new"))
    labels = data["labels"]
    known, new = features @ w_known.T + data["b_known"], features @ w_new.T + data["b_new"]  # 2×B×K each
    free = labels < 0
    pairs = same(features[0][free], int(data["topk"]))
    assert torch.equal(pairs, data["pairs"] > 0)
    parts = {
        "cross_entropy": labelled_cross_entropy(known[0].log_softmax(dim=1), labels),
        "bce": pair_loss(*new[:, free].softmax(dim=2), pairs),
        "consistency": consistency(*known.softmax(dim=2)) + consistency(*new.softmax(dim=2)),
    }
    weight = ramped_weight(int(data["epoch"]), float(data["coefficient"]), int(data["ramp_length"]))
    assert weight == pytest.approx(data["consistency_weight"].item(), abs=1e-10)
    for name, part in parts.items():
        assert part.item() == pytest.approx(data[name].item(), abs=1e-10), name
    total = parts["cross_entropy"] + parts["bce"] + weight * parts["consistency"]
    assert total.item() == pytest.approx(data["total"].item(), abs=1e-10)
    total.backward()
    for tensor, name in ((features, "features"), (w_known, "w_known"), (w_new, "w_new")):
        np.testing.assert_allclose(tensor.grad, data[f"grad_{name}"], atol=1e-8, rtol=0)


@pytest.mark.parametrize("case", [0, 1])
def test_schedules_match_the_released_ones(golden, case):
    data = np.load(golden / "peers" / "rankstats_schedule_00.npz", allow_pickle=False)
    epochs, coefficient, length, step = data[f"epochs_coefficient_length_step_{case}"].tolist()
    weights = [ramped_weight(e, coefficient, length) for e in range(epochs)]
    np.testing.assert_allclose(weights, data[f"consistency_weight_{case}"], atol=1e-10, rtol=0)
    rates = np.array([stepped_rate(e, 1.0, step, as_run=True) for e in range(epochs)])
    stored = data[f"rate_script_{case}"]
    np.testing.assert_allclose(rates, stored / stored[0], atol=1e-10, rtol=0)
    assert np.flatnonzero(np.diff(rates)).tolist() == [84, 169]


def test_as_published_the_rate_falls_once():
    rates = [stepped_rate(e, 0.1, 170) for e in range(200)]
    assert rates[:170] == [0.1] * 170
    assert rates[170:] == pytest.approx([0.01] * 30)


@given(weight=st.floats(0, 100), length=st.integers(1, 50))
def test_the_weight_of_the_consistency_rises_to_its_full_value(weight, length):
    weights = [ramped_weight(e, weight, length) for e in range(length + 3)]
    assert weights[0] == pytest.approx(weight * math.exp(-5))
    assert weights[length:] == [weight] * 3
    assert weights == sorted(weights)
    assert ramped_weight(0, weight, 0) == weight


# Pairs


def rows(seed, images=6, dim=7):
    return torch.randn(images, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_worked_example():
    features = torch.tensor([[9.0, 8, 1, 0], [5, 6, 0, 1], [0, 9, 8, 1]])
    assert same(features, 2).int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


@given(seed=st.integers(0, 1000), strongest=st.integers(1, 7))
def test_pairs_are_symmetric_and_every_image_is_like_itself(seed, strongest):
    pairs = same(rows(seed), strongest)
    assert torch.equal(pairs, pairs.T)
    assert pairs.diagonal().all()


@given(seed=st.integers(0, 1000), more=st.integers(0, 3))
def test_with_all_dimensions_all_pairs_are_positive(seed, more):
    assert same(rows(seed), 7 + more).all()


@given(seed=st.integers(0, 1000), strongest=st.integers(1, 3))
def test_only_the_order_within_a_row_matters(seed, strongest):
    features = rows(seed, images=12, dim=4)
    pairs = same(features, strongest)
    assert not pairs.all()
    assert pairs.sum() > len(pairs)  # some images are alike
    scale = torch.rand(12, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    assert torch.equal(same(features * scale, strongest), pairs)
    rising = torch.stack([row.exp() if i % 2 else row.pow(3) for i, row in enumerate(features)])
    assert torch.equal(same(rising, strongest), pairs)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(4))
    assert torch.equal(same(features[:, order], strongest), pairs)


def test_the_largest_are_not_those_of_largest_absolute_value_and_of_equals_the_first():
    features = torch.tensor([[-9.0, 1, 2, 0], [2, 2, 2, 2], [1, 2, 2, 1]])
    assert largest_dimensions(features, 2).int().tolist() == [[0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0]]
    assert largest_dimensions(features, 3).int().tolist() == [[0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 0]]


def test_labels_decide_about_two_labelled_images_alone():
    features = torch.eye(4)[[0, 1, 0, 1, 0]]
    labels = torch.tensor([0, 0, 1, -1, -1])
    by_ranking, none = same_class(features, labels, 1, labels_decide=False)
    pairs, decided = same_class(features, labels, 1)
    assert not none.any()
    assert decided.int().tolist() == [[1, 1, 1, 0, 0]] * 3 + [[0] * 5] * 2
    assert pairs[:3, :3].int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert torch.equal(pairs[~decided], by_ranking[~decided])


def test_the_share_of_positive_pairs_is_of_those_that_ranking_decides():
    features, logits = torch.eye(4)[[0, 1, 0, 1, 0]].repeat(2, 1), torch.zeros(10, 3)
    labels = torch.tensor([0, 0, 0, -1, -1])
    share = rankstats_losses(features, logits, labels, consistency_weight=0.0, strongest=1)["positive_pairs"]
    assert share.item() == pytest.approx(6 / 14)  # 0 and 4, 1 and 3, 2 and 4, in both orders; of 20 less 6 by labels
    one = rankstats_losses(features[:2], logits[:2], labels[:1], consistency_weight=0.0)
    assert one["positive_pairs"].item() == 0.0  # an image alone has no pair


# The loss


def test_certain_predictions():
    one_hot = torch.eye(3, dtype=torch.float64)
    everywhere = torch.ones(3, 3, dtype=torch.bool)
    equal = one_hot[[0, 0, 0]]
    assert pair_loss(equal, equal, everywhere).item() == pytest.approx(-math.log(1 + 1e-7), abs=1e-12)
    assert pair_loss(one_hot, one_hot, torch.eye(3, dtype=torch.bool)).item() == pytest.approx(0, abs=1.1e-7)
    single = one_hot.float()
    assert pair_loss(single, single, ~torch.eye(3, dtype=torch.bool)).isfinite()


def test_rounding_above_one_gives_no_nan():
    prediction = torch.tensor([[1.0 + 2e-7, 0.0]], requires_grad=True)
    loss = pair_loss(prediction, prediction, torch.tensor([[False]]))
    loss.backward()
    assert loss.isfinite()
    assert prediction.grad.isfinite().all()


def test_rows_are_second_views_and_columns_first_ones():
    first, second = torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    pairs = torch.tensor([[True, False], [True, True]])
    expected = 0.0
    for i in range(2):
        for j in range(2):
            p = float(second[i] @ first[j])
            expected -= math.log(p + 1e-7 if pairs[i, j] else 1 - p + 1e-7) / 4
    assert pair_loss(first, second, pairs).item() == pytest.approx(expected, rel=1e-6)


def test_the_second_view_of_a_labelled_image_gets_no_cross_entropy():
    logits = torch.zeros(4, 1, dtype=torch.float64).repeat(1, 3).requires_grad_()
    parts = rankstats_losses(rows(0, 4), logits, torch.tensor([0, 1]), consistency_weight=0.0)
    by_pairs, by_all = (torch.autograd.grad(parts[p], logits, retain_graph=True)[0] for p in ("pairs", "total"))
    gradient = by_all - by_pairs
    assert gradient[:2].abs().min() > 0.1
    assert not gradient[2:].any()


def test_without_labelled_images_the_cross_entropy_is_zero():
    logits = rows(1, 6, 3).requires_grad_()
    parts = rankstats_losses(rows(0, 6), logits, unlabelled(3), consistency_weight=1.0)
    assert parts["cross_entropy"].item() == 0.0
    assert torch.autograd.grad(parts["total"], logits)[0].isfinite().all()


# Whole runs


def test_presets_have_the_published_values():
    values = {}
    for preset in ("cifar10", "cifar100", "cub", "generic", "fine-grained"):
        s = decided_for("rankstats", preset=preset, epochs=200)
        own = s.method
        values[preset] = (s.learning_rate, s.weight_decay, own.consistency_weight, own.ramp * 200, own.start)
    assert values == {
        "cifar10": (0.1, 1e-4, 5, 50, "random"),
        "cifar100": (0.1, 1e-4, 50, 150, "random"),
        "cub": (0.001, 1e-4, 50, 150, "random"),
        "generic": (0.1, 1e-4, 50, 150, "clusters"),
        "fine-grained": (0.001, 1e-4, 50, 150, "clusters"),
    }


@pytest.mark.parametrize(("name", "value"), [("strongest", 0), ("ramp", 1.5), ("consistency_weight", -1.0)])
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        decided_for("rankstats", **{name: value})


def test_it_starts_at_clusters_or_as_a_linear_layer_does():
    for start in ("clusters", "random"):
        settings = decided_for("rankstats", start=start)
        task = new_task(settings)
        learner = RankStats(task, settings.method)
        learner.begin(task)
        lengths = learner.classifier.weight.norm(dim=1)
        at_clusters = torch.allclose(lengths, torch.full((CLASSES,), ROW_LENGTH))
        assert at_clusters == (start == "clusters")
        assert bool(learner.classifier.bias.any()) == (start == "random")


def test_the_log_has_weight_rate_and_share_of_pairs(tmp_path):
    journal = new_journal(tmp_path)
    fitted(decided_for("rankstats", epochs=8, learning_rate=0.1, consistency_weight=3.0, ramp=0.5), journal=journal)
    log = journal.log()
    assert [entry["consistency_weight"] for entry in log] == [ramped_weight(e, 3.0, 4.0) for e in range(8)]
    assert [entry["learning_rate"] for entry in log] == pytest.approx([0.1] * 7 + [0.01])
    assert all(0 <= entry["positive_pairs"] <= 1 for entry in log)


def test_what_labels_decide_reaches_the_loss():
    settings = decided_for("rankstats")
    images = np.flatnonzero(LABELS >= 0)[:40]
    losses = {}
    for labelled_pairs in ("labels", "ranking"):
        task = new_task(settings)
        learner = RankStats(task, rankstats.Settings(**{**vars(settings.method), "labelled_pairs": labelled_pairs}))
        losses[labelled_pairs] = learner.losses(batch_of(task, images)).parts
    assert losses["labels"]["cross_entropy"] == losses["ranking"]["cross_entropy"]
    assert losses["labels"]["pairs"] != losses["ranking"]["pairs"]
    assert losses["labels"]["positive_pairs"] == 0  # ranking decides none
