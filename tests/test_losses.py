import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.losses import simgcd_losses

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(GOLDEN.glob("losses_*.npz"))
WITH_LABELS = [case for case in CASES if "none" not in case.name]
# golden name -> ours
PARTS = {"cls": "cross_entropy", "nce": "info_nce", "supcon": "sup_con", "me": "mean_entropy"}


def load(case, dtype):
    data = np.load(case, allow_pickle=False)
    projections = torch.tensor(data["projections"], dtype=dtype, requires_grad=True)
    logits = torch.tensor(data["logits"], dtype=dtype, requires_grad=True)
    labels = torch.tensor(np.where(data["mask_labelled"], data["labels"], -1))
    return data, projections, logits, labels


def test_all_golden_cases_are_here():
    assert len(CASES) == 9


@pytest.mark.parametrize("case", WITH_LABELS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("dtype", "suffix", "tolerance"), [(torch.float64, "f64", 1e-9), (torch.float32, "f32", 1e-5)])
def test_values_match_the_released_implementation(case, dtype, suffix, tolerance):
    data, projections, logits, labels = load(case, dtype)
    for e, temperature in enumerate(data["teacher_temp"]):
        for w, weight in enumerate(data["memax_weights"]):
            parts = simgcd_losses(
                projections, logits, labels,
                teacher_temperature=float(temperature), entropy_weight=float(weight),
                supervised_weight=float(data["sup_weight"]),
            )  # fmt: skip
            for theirs, ours in PARTS.items():
                assert parts[ours].item() == pytest.approx(float(data[f"{theirs}_{suffix}"]), abs=tolerance)
            assert parts["distillation"].item() == pytest.approx(data[f"distill_{suffix}"][e], abs=tolerance)
            assert parts["total"].item() == pytest.approx(data[f"total_{suffix}"][e, w], abs=2 * tolerance)


@pytest.mark.parametrize("case", WITH_LABELS, ids=lambda path: path.stem)
def test_gradients_match_the_released_implementation(case):
    data, projections, logits, labels = load(case, torch.float64)
    temperature_at = dict(zip(data["epochs"], data["teacher_temp"], strict=True))
    for i, (epoch, weight) in enumerate(zip(data["grad_combo_epoch"], data["grad_combo_memax"], strict=True)):
        parts = simgcd_losses(
            projections, logits, labels,
            teacher_temperature=float(temperature_at[epoch]), entropy_weight=float(weight),
            supervised_weight=float(data["sup_weight"]),
        )  # fmt: skip
        by_projection, by_logits = torch.autograd.grad(parts["total"], (projections, logits))
        np.testing.assert_allclose(by_projection, data["grad_projections_f64"], atol=1e-7, rtol=0)
        np.testing.assert_allclose(by_logits, data["grad_logits_f64"][i], atol=1e-7, rtol=0)


def test_batch_without_labelled_images_has_zero_supervised_parts():
    data, projections, logits, labels = load(GOLDEN / "losses_08_none_B12_K10.npz", torch.float64)
    assert (labels == -1).all()
    parts = simgcd_losses(projections, logits, labels, teacher_temperature=0.07, entropy_weight=1.0)
    assert parts["cross_entropy"].item() == 0.0
    assert parts["sup_con"].item() == 0.0
    assert parts["mean_entropy"].item() == pytest.approx(float(data["me_f64"]), abs=1e-9)
    assert parts["info_nce"].item() == pytest.approx(float(data["nce_f64"]), abs=1e-9)
    for weight, expected in zip(data["memax_weights"], data["cluster_epoch0_f64"], strict=True):
        cluster = parts["distillation"] + float(weight) * parts["mean_entropy"]
        assert cluster.item() == pytest.approx(expected, abs=1e-9)
    for gradient in torch.autograd.grad(parts["total"], (projections, logits)):
        assert gradient.isfinite().all()


def naive_losses(z, logits, labels, teacher, student=0.1, t_nce=1.0, t_sup=0.07):
    """The table of the method, one Python number at a time."""
    z, logits, labels = z.tolist(), logits.tolist(), labels.tolist() * 2
    n, images = len(z), len(z) // 2

    def softmax(row, temperature):
        top = max(row)
        exps = [math.exp((x - top) / temperature) for x in row]
        return [e / sum(exps) for e in exps]

    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))

    p = [softmax(row, student) for row in logits]
    q = [softmax(row, teacher) for row in logits]
    labelled = [i for i in range(n) if labels[i] >= 0]
    ce = [-math.log(p[i][labels[i]]) for i in labelled]
    distil = [-sum(a * math.log(b) for a, b in zip(q[(i + images) % n], p[i], strict=True)) for i in range(n)]
    mean = [sum(row[k] for row in p) / n for k in range(len(p[0]))]
    nce, sup = [], []
    for i in range(n):
        others = [math.exp(cosine(z[i], z[j]) / t_nce) for j in range(n) if j != i]
        nce.append(-math.log(math.exp(cosine(z[i], z[(i + images) % n]) / t_nce) / sum(others)))
    for i in labelled:
        others = [j for j in labelled if j != i]
        total = sum(math.exp(cosine(z[i], z[j]) / t_sup) for j in others)
        positives = [j for j in others if labels[j] == labels[i]]
        sup.append(-sum(math.log(math.exp(cosine(z[i], z[j]) / t_sup) / total) for j in positives) / len(positives))
    return {
        "cross_entropy": sum(ce) / max(len(ce), 1),
        "distillation": sum(distil) / n,
        "mean_entropy": math.log(len(mean)) + sum(m * math.log(m) for m in mean),
        "info_nce": sum(nce) / n,
        "sup_con": sum(sup) / max(len(sup), 1),
    }


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), images=st.integers(1, 6), classes=st.integers(1, 5))
def test_parts_equal_a_naive_loop(seed, images, classes):
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(2 * images, 4, generator=random, dtype=torch.float64)
    logits = torch.rand(2 * images, classes, generator=random, dtype=torch.float64) * 2 - 1
    labels = torch.randint(-1, classes, (images,), generator=random)
    parts = simgcd_losses(z, logits, labels, teacher_temperature=0.05, entropy_weight=2.0)
    for name, expected in naive_losses(z, logits, labels, teacher=0.05).items():
        assert parts[name].item() == pytest.approx(expected, abs=1e-9), name


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_order_of_images_does_not_matter(seed):
    random = torch.Generator().manual_seed(seed)
    z, logits = torch.randn(12, 5, generator=random).double(), torch.rand(12, 4, generator=random).double()
    labels = torch.randint(-1, 4, (6,), generator=random)
    order = torch.randperm(6, generator=random)
    rows = torch.cat([order, order + 6])
    one = simgcd_losses(z, logits, labels, teacher_temperature=0.04, entropy_weight=1.0)
    two = simgcd_losses(z[rows], logits[rows], labels[order], teacher_temperature=0.04, entropy_weight=1.0)
    for name in one:
        assert one[name].item() == pytest.approx(two[name].item(), abs=1e-10)


def test_probability_zero_gives_no_nan():
    logits = torch.tensor([[1.0, -1e4], [1.0, -1e4]], requires_grad=True)
    z = torch.randn(2, 8, requires_grad=True)
    parts = simgcd_losses(z, logits, torch.tensor([0]), teacher_temperature=0.04, entropy_weight=1.0)
    assert parts["total"].isfinite()
    assert torch.autograd.grad(parts["total"], logits)[0].isfinite().all()


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="6 rows of projections"):
        simgcd_losses(
            torch.zeros(4, 8), torch.zeros(6, 2), torch.tensor([0, 1, -1]), teacher_temperature=0.04, entropy_weight=1.0
        )
