import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from helping.contract import assert_same, new_journal, run
from helping.groups import CLASSES
from helping.tasks import Interrupted, decided_for, fitted, new_task, stopping_after
from newfound.losses import simgcd_losses
from newfound.methods import legogcd
from newfound.methods.legogcd import (
    confident_known,
    known_entropy,
    legogcd_losses,
    updated_mean_prediction,
    view_divergence,
)
from newfound.runs.tensor_files import load_tensors
from newfound.training.loop import train

CASES = ["legogcd_losses_00", "legogcd_losses_01", "legogcd_losses_02"]  # plain, uneven mean prediction, none selected
HOW = {"teacher_temperature": 0.05, "entropy_weight": 2.0}
EVEN = torch.tensor([0.5, 0.5], dtype=torch.float64)


def loaded(golden, case, dtype=torch.float64):
    data = np.load(golden / "peers" / f"{case}.npz", allow_pickle=False)
    projections = torch.tensor(data["projections"], dtype=dtype, requires_grad=True)
    logits = torch.tensor(data["logits"], dtype=dtype, requires_grad=True)
    return data, projections, logits, torch.tensor(data["labels"])


def losses_of(data, projections, logits, labels, epoch):
    """At one of the recorded epochs."""
    return legogcd_losses(
        projections, logits, labels, torch.tensor(data["log_q_used"][epoch]).exp().to(logits.dtype),
        n_known=int(data["num_known"]), threshold=float(data["threshold"]),
        known_entropy_weight=float(data["ler_weight"]),
        teacher_temperature=float(data["teacher_temperature"][epoch]), entropy_weight=float(data["entropy_weight"]),
    )  # fmt: skip


def batch(seed, images=6, classes=4):
    random = torch.Generator().manual_seed(seed)
    projections = torch.randn(2 * images, 8, generator=random, dtype=torch.float64)
    logits = torch.rand(2 * images, classes, generator=random, dtype=torch.float64)
    mean_prediction = F.softmax(torch.randn(classes, generator=random, dtype=torch.float64), dim=0)
    labels = torch.randint(-1, 2, (images,), generator=random)
    return projections.requires_grad_(), logits.requires_grad_(), labels, mean_prediction


# The golden files: the released implementation in double precision, and once more in single.


@pytest.mark.parametrize("case", CASES)
def test_parts_match_the_released_implementation(golden, case):
    data, *tensors = loaded(golden, case)
    same = ["cross_entropy", "distillation", "mean_entropy", "info_nce", "sup_con", "total"]
    names = {"divergence": "dkl", "known_entropy": "ler"} | {name: name for name in same}
    for e in range(len(data["epochs"])):
        parts = losses_of(data, *tensors, e)
        assert parts.keys() == names.keys() | {"selected"}
        assert parts["selected"].item() == pytest.approx(data["selected"].mean())
        for ours, theirs in names.items():
            assert parts[ours].item() == pytest.approx(data[theirs][e], abs=1e-9), ours


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_the_released_implementation(golden, case):
    data, projections, logits, labels = loaded(golden, case)
    for e in range(len(data["epochs"])):
        total = losses_of(data, projections, logits, labels, e)["total"]
        by_projection, by_logits = torch.autograd.grad(total, (projections, logits))
        np.testing.assert_allclose(by_projection, data["grad_projections"], atol=1e-7, rtol=0)  # stored in single
        np.testing.assert_allclose(by_logits, data["grad_logits"][e], atol=1e-7, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_single_precision_matches_too(golden, case):
    data, *tensors = loaded(golden, case, torch.float32)
    for e in range(len(data["epochs"])):
        parts = losses_of(data, *tensors, e)
        for ours, theirs in {"divergence": "dkl", "known_entropy": "ler", "total": "total"}.items():
            assert parts[ours].item() == pytest.approx(data[f"{theirs}_f32"][e], abs=1e-5), ours


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_released_views_are_selected(golden, case, dtype):
    data, _, logits, labels = loaded(golden, case, dtype)
    known, threshold = int(data["num_known"]), float(data["threshold"])
    found = confident_known(F.softmax(logits / 0.1, dim=1), labels, n_known=known, threshold=threshold)
    assert found.tolist() == data["selected"].tolist() == data["selected_f32"].tolist()


@pytest.mark.parametrize("case", CASES)
def test_mean_prediction_matches_the_released_implementation(golden, case):
    """The same batch once per epoch: after epoch e there have been e + 1 updates."""
    data, _, logits, _ = loaded(golden, case)
    q = torch.tensor(data["q_start"], dtype=torch.float64)
    before, after = {}, {}
    for epoch in range(int(data["epochs"].max()) + 1):
        before[epoch], q = q, updated_mean_prediction(q, logits)
        after[epoch] = q
    assert not q.requires_grad
    for e, epoch in enumerate(data["epochs"].tolist()):
        np.testing.assert_allclose(before[epoch].log(), data["log_q_used"][e], atol=1e-9, rtol=0)
        np.testing.assert_allclose(after[epoch], data["q_after"][e], atol=1e-9, rtol=0)


# Limits and examples by hand.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_both_terms_it_is_simgcd_bit_for_bit(golden, dtype):
    projections, logits, labels = loaded(golden, "legogcd_losses_00", dtype)[1:]
    q = torch.full((logits.shape[1],), 1 / logits.shape[1], dtype=dtype)
    ours = legogcd_losses(
        projections, logits, labels, q, n_known=6, threshold=0.7, known_entropy_weight=0.0, divergence_weight=0.0, **HOW
    )
    theirs = simgcd_losses(projections, logits, labels, **HOW)
    assert ours["known_entropy"] > 0
    assert ours["divergence"] != 0
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for mine, simgcds in zip(
        torch.autograd.grad(ours["total"], (projections, logits)),
        torch.autograd.grad(theirs["total"], (projections, logits)),
        strict=True,
    ):
        assert torch.equal(mine, simgcds)


def test_weights_and_temperatures_reach_simgcd():
    how = {**HOW, "supervised_weight": 0.2, "student_temperature": 0.3, "sup_con_temperature": 0.5}
    projections, logits, labels, q = batch(0)
    ours = legogcd_losses(
        projections, logits, labels, q, n_known=2, threshold=0.4, known_entropy_weight=3.0, divergence_weight=5.0, **how
    )
    theirs = simgcd_losses(projections, logits, labels, **how)
    added = 0.8 * 5.0 * ours["divergence"] + 3.0 * ours["known_entropy"]
    assert ours["total"].item() == pytest.approx((theirs["total"] + added).item(), abs=1e-12)
    assert ours["divergence"].item() == pytest.approx(view_divergence(F.log_softmax(logits / 0.3, dim=1)).item())


def test_divergence_by_hand():
    logits = torch.tensor([[0.0, 0.0], [0.1, 0.0]], dtype=torch.float64)
    predictions = F.softmax(logits / 0.1, dim=1)
    b, rest = predictions[1].tolist()
    expected = -math.log(2) - 0.5 + math.log(math.exp(b) + math.exp(rest))
    assert expected == pytest.approx(0.026460, abs=1e-6)
    assert view_divergence(predictions.log()).item() == pytest.approx(expected, abs=1e-12)
    plain = 0.5 * math.log(0.5 / b) + 0.5 * math.log(0.5 / rest)
    assert view_divergence(predictions.log(), plain=True).item() == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize("plain", [False, True])
def test_views_alike_have_no_divergence_and_what_moves_both_no_gradient(plain):
    shared = torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
    divergence = view_divergence(F.log_softmax(shared.repeat(2, 1) / 0.1, dim=1), plain=plain)
    assert divergence.item() == 0.0
    np.testing.assert_allclose(torch.autograd.grad(divergence, shared)[0], 0.0, atol=1e-15)  # two halves that cancel


@pytest.mark.parametrize("plain", [False, True])
def test_divergence_has_a_direction(plain):
    log_predictions = F.log_softmax(batch(1)[1] / 0.1, dim=1)
    swapped = log_predictions.roll(6, dims=0)
    there, back = view_divergence(log_predictions, plain=plain), view_divergence(swapped, plain=plain)
    assert abs((there - back).item()) > 1e-3


@given(seed=st.integers(0, 10_000))
def test_the_plain_divergence_is_never_below_zero(seed):
    assert view_divergence(F.log_softmax(batch(seed)[1] / 0.1, dim=1), plain=True) >= 0


def test_known_entropy_by_hand():
    logits = torch.tensor([[0.2, 0.0], [0.2, 0.0]], dtype=torch.float64)
    predictions = F.softmax(logits / 0.1, dim=1)
    np.testing.assert_allclose(predictions[0], [0.880797, 0.119203], atol=1e-6)
    selected = confident_known(predictions, torch.tensor([-1]), n_known=1, threshold=0.7)
    assert selected.tolist() == [True, True]
    assert known_entropy(logits, selected, EVEN).item() == pytest.approx(0.090095, abs=1e-6)
    uneven = torch.tensor([0.9, 0.1], dtype=torch.float64)
    assert known_entropy(logits, selected, uneven).item() == pytest.approx(0.095329, abs=1e-6)


def test_only_confident_known_unlabelled_views_get_a_gradient():
    # image 0: labelled; 1: predicted new; 2: unsure; 3: taken; 4: one view taken, the other predicted new
    first = [[0.5, 0.0], [0.0, 0.5], [0.01, 0.0], [0.5, 0.0], [0.5, 0.0]]
    second = [*first[:4], [0.0, 0.5]]
    logits = torch.tensor(first + second, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, -1, -1, -1, -1])
    selected = confident_known(F.softmax(logits / 0.1, dim=1), labels, n_known=1, threshold=0.7)
    assert selected.nonzero().flatten().tolist() == [3, 4, 8]
    loss = known_entropy(logits, selected, EVEN)
    assert loss.item() == pytest.approx(3 * known_entropy(logits[3:4], selected[3:4], EVEN).item() / 10)  # all rows
    assert torch.autograd.grad(loss, logits)[0].any(dim=1).tolist() == selected.tolist()


def test_a_confidence_of_exactly_the_threshold_is_enough():
    predictions = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
    labels = torch.tensor([-1])
    assert confident_known(predictions, labels, n_known=1, threshold=0.75).all()
    assert not confident_known(predictions, labels, n_known=1, threshold=0.7500001).any()


def test_nothing_selected_is_exactly_zero():
    logits = torch.rand(6, 3, requires_grad=True)
    loss = known_entropy(logits, torch.zeros(6, dtype=torch.bool), torch.full((3,), 1 / 3))
    assert loss.item() == 0.0
    assert not torch.autograd.grad(loss, logits)[0].any()


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_a_batch_repeated_has_the_same_terms(seed):
    _, logits, labels, q = batch(seed)
    twice = torch.cat([logits[:6], logits[:6], logits[6:], logits[6:]])

    def terms(rows, labels):
        log_predictions = F.log_softmax(rows / 0.1, dim=1)
        selected = confident_known(log_predictions.exp(), labels, n_known=2, threshold=0.6)
        return view_divergence(log_predictions).item(), known_entropy(rows, selected, q).item()

    assert terms(twice, labels.repeat(2)) == pytest.approx(terms(logits, labels), abs=1e-12)


def test_mean_prediction_stays_a_distribution_and_moves_at_temperature_one():
    q = torch.full((4,), 0.25)
    logits = torch.tensor([[math.log(5), 0.0, 0.0, 0.0]]).repeat(2, 1)  # softmax: 5/8, 1/8, 1/8, 1/8
    after = updated_mean_prediction(q, logits)
    np.testing.assert_allclose(after, [0.25 + 0.000375, *[0.25 - 0.000125] * 3], atol=1e-7)  # single precision
    assert after.sum().item() == pytest.approx(1.0, abs=1e-6)


def test_batches_without_labels_and_without_unlabelled_images_are_finite():
    projections, logits, _, q = batch(2)
    for labels in (torch.full((6,), -1), torch.zeros(6, dtype=torch.int64)):
        parts = legogcd_losses(
            projections, logits, labels, q, n_known=2, threshold=0.3, known_entropy_weight=2.0, **HOW
        )
        assert parts["total"].isfinite()
        assert (parts["known_entropy"] > 0) == (labels < 0).all()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(parts["total"], (projections, logits)))


# Whole runs


def test_without_its_terms_a_run_is_simgcd_to_the_bit():
    plain = run(decided_for("simgcd"))
    assert_same(plain, run(decided_for("legogcd", ler_weight=0.0, dkl_weight=0.0)))
    for own in ({"ler_weight": 0.0}, {"dkl_weight": 0.0, "ler_threshold": 0.2}):  # either term alone tells
        assert not torch.equal(run(decided_for("legogcd", **own)).prediction.features, plain.prediction.features)


def test_the_mean_prediction_survives_an_interruption(tmp_path):
    settings, means = decided_for("legogcd"), {}
    fitted(settings, journal=new_journal(tmp_path / "whole"))
    for epoch in (1, 3):
        with pytest.raises(Interrupted):
            fitted(settings, journal=new_journal(tmp_path / "stopped", stopping_after(epoch)))
    fitted(settings, journal=new_journal(tmp_path / "stopped"))
    for name in ("whole", "stopped"):
        tensors, _ = load_tensors(tmp_path / name / "checkpoint" / "stage1.safetensors")
        means[name] = tensors["model.memory.mean_prediction"]
    assert torch.equal(means["whole"], means["stopped"])
    assert means["whole"].sum().item() == pytest.approx(1, abs=1e-5)
    assert (means["whole"] - 1 / CLASSES).abs().max() > 1e-5


def test_the_mean_prediction_follows_each_step_once():
    """With the sharpness penalty, too, whose second pass does not count."""

    class Watching(legogcd.LegoGCD):
        def losses(self, batch):
            step = super().losses(batch)
            passes.append((batch.step, step.kept["logits"], self.memory["mean_prediction"].clone()))
            return step

    passes = []
    settings = decided_for("legogcd", epochs=1, rho=0.05)
    task = new_task(settings)
    learner = Watching(task, settings.method)
    train(task, learner)
    expected = torch.full((CLASSES,), 1 / CLASSES)
    for (step, logits, mean), (same, _, mean_uphill) in zip(passes[::2], passes[1::2], strict=True):
        assert step == same
        assert torch.equal(mean, expected)
        assert torch.equal(mean_uphill, expected)
        expected = updated_mean_prediction(expected, logits)
    assert torch.equal(learner.memory["mean_prediction"], expected)
