import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.methods.mugcd import mugcd_losses
from newfound.training.heads import CosineClassifier
from newfound.training.teacher import ema_, frozen_copy, teacher_momentum


def batch(seed=0, images=7, classes=5):
    random = torch.Generator().manual_seed(seed)
    student, teacher = torch.rand(2, images, classes, generator=random, dtype=torch.float64) * 2 - 1
    labels = torch.randint(-1, classes, (images,), generator=random)
    return student.clone().requires_grad_(), teacher.clone(), labels


# The golden files: an independent program in double precision (there is no released implementation).


@pytest.mark.parametrize("case", ["mugcd_losses_00", "mugcd_losses_01"])  # 01: nothing is labelled
def test_parts_and_gradients_match_the_reference(golden, case):
    data = np.load(golden / "peers" / f"{case}.npz", allow_pickle=False)
    student, labels = torch.tensor(data["student"], requires_grad=True), torch.tensor(data["labels"])
    for i, (temperature, entropy_weight, supervised_weight) in enumerate(data["cases"].tolist()):
        parts = mugcd_losses(
            student, torch.tensor(data["teacher"]), labels, teacher_temperature=temperature,
            entropy_weight=entropy_weight, supervised_weight=supervised_weight,
        )  # fmt: skip
        assert list(parts) == ["distillation", "cross_entropy", "mean_entropy", "total"]
        for name, part in parts.items():
            assert part.item() == pytest.approx(float(data[f"{name}_{i}"]), abs=1e-10), name
        gradient = torch.autograd.grad(parts["total"], student)[0]
        np.testing.assert_allclose(gradient, data[f"grad_student_{i}"], atol=1e-8, rtol=0)


def test_steps_of_student_and_teacher_match_the_reference(golden):
    """Loss, step, then the teacher follows the student's new weights; the rows are averaged raw, not normalised."""
    data = np.load(golden / "peers" / "mugcd_steps_00.npz", allow_pickle=False)
    names = ["teacher_temperature", "entropy_weight", "supervised_weight"]
    student = CosineClassifier(8, 5).double()
    student.load_state_dict({"weight": torch.tensor(data["weight"])})
    teacher = frozen_copy(student)
    optimiser = torch.optim.SGD(
        student.parameters(), float(data["rate"]), float(data["momentum"]), weight_decay=float(data["weight_decay"])
    )
    for step, (views, labels) in enumerate(zip(data["features"], data["labels"], strict=True)):
        first, second = torch.tensor(views)
        parts = mugcd_losses(
            student(first), teacher(second), torch.tensor(labels), **{name: float(data[name]) for name in names}
        )
        optimiser.zero_grad()
        parts["total"].backward()
        optimiser.step()
        ema_(teacher, student, teacher_momentum(step, int(data["steps_in_all"]), 0.7, 0.999))
        assert parts["total"].item() == pytest.approx(data["totals"][step], abs=1e-10)
        np.testing.assert_allclose(student.weight.detach(), data["student_after"][step], atol=1e-8, rtol=0)
        np.testing.assert_allclose(teacher.weight, data["teacher_after"][step], atol=1e-8, rtol=0)


# Limits and examples by hand.


def test_by_hand():
    student = torch.tensor([[0.1, 0.0]], dtype=torch.float64)
    how = {"teacher_temperature": 0.04, "entropy_weight": 1.0}
    parts = mugcd_losses(student, torch.zeros(1, 2, dtype=torch.float64), torch.tensor([-1]), **how)
    assert parts["distillation"].item() == pytest.approx(math.log(1 + math.e) - 0.5, abs=1e-12)
    assert parts["distillation"].item() == pytest.approx(0.813262, abs=1e-6)
    assert parts["mean_entropy"].item() == pytest.approx(0.110944, abs=1e-6)
    assert parts["cross_entropy"].item() == 0.0
    assert parts["total"].item() == pytest.approx(0.65 * 0.813262 + 0.110944, abs=1e-6)


def test_all_supervised_the_teacher_does_not_matter():
    student, teacher, labels = batch()
    how = {"teacher_temperature": 0.05, "entropy_weight": 0.0, "supervised_weight": 1.0}
    one, two = (mugcd_losses(student, t, labels, **how)["total"] for t in (teacher, -teacher))
    plain = F.cross_entropy(student / 0.1, labels, ignore_index=-1)
    for total in (one, two):
        assert total.item() == pytest.approx(plain.item(), abs=1e-12)
        gradients = [torch.autograd.grad(loss, student, retain_graph=True)[0] for loss in (total, plain)]
        np.testing.assert_allclose(*gradients, atol=1e-12)


def test_a_student_like_its_teacher_has_its_own_entropy_as_distillation():
    student, _, labels = batch()
    parts = mugcd_losses(student, student.detach(), labels, teacher_temperature=0.1, entropy_weight=1.0)
    p = F.softmax(student / 0.1, dim=1)
    assert parts["distillation"].item() == pytest.approx(-(p * p.log()).sum(dim=1).mean().item(), abs=1e-12)


def test_no_gradient_reaches_the_teacher_whose_graph_changes_nothing():
    student, teacher, labels = batch()
    layer = nn.Linear(5, 5).double()  # a teacher that, by mistake, keeps its graph
    how = {"teacher_temperature": 0.05, "entropy_weight": 1.0}
    with_graph = mugcd_losses(student, layer(teacher), labels, **how)["total"]
    without = mugcd_losses(student, layer(teacher).detach(), labels, **how)["total"]
    assert torch.equal(*(torch.autograd.grad(total, student, retain_graph=True)[0] for total in (with_graph, without)))
    with_graph.backward()
    assert layer.weight.grad is None


def test_probability_zero_gives_no_nan():
    student = torch.tensor([[1.0, -1e4], [1.0, -1e4]], requires_grad=True)
    parts = mugcd_losses(student, student, torch.tensor([0, -1]), teacher_temperature=0.04, entropy_weight=1.0)
    assert parts["total"].isfinite()
    assert torch.autograd.grad(parts["total"], student)[0].isfinite().all()


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"each of 3 images; found shapes \(3, 2\) and \(6, 2\)"):
        mugcd_losses(
            torch.zeros(3, 2), torch.zeros(6, 2), torch.tensor([0, 1, -1]), teacher_temperature=0.04, entropy_weight=1.0
        )
