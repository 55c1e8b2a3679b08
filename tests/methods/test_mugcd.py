import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helping.contract import new_journal
from helping.groups import SOURCE, N
from helping.tasks import adapted, decided_for, fitted, new_task
from newfound.methods import gcd, mugcd
from newfound.methods.gcd import GCD
from newfound.methods.mugcd import mugcd_losses
from newfound.runs.tensor_files import load_tensors
from newfound.settings import Training
from newfound.sources.vectors import Embeddings
from newfound.training.heads import CosineClassifier
from newfound.training.loop import train
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


# Whole runs


class Watching(mugcd.MeanTeacher):
    """Keeps student and teacher as they are before the first step and after each one."""

    def begin(self, task):
        super().begin(task)
        self.seen = [self._both()]

    def after_step(self, batch, kept):
        super().after_step(batch, kept)
        self.seen.append(self._both())

    def _both(self):
        return copy.deepcopy(self.student.state_dict()), copy.deepcopy(self.teacher.state_dict())


def second_phase(**changes):
    """Its trained learner, and what the training came to."""
    settings = decided_for("mugcd", epochs=2, **changes)
    task = new_task(settings)
    learner = Watching(task, settings.method, train(task, GCD(task, gcd.Settings(), starts=1)))
    return learner, train(task, learner, stage=2)


def equal(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_the_first_phase_is_gcd_to_the_bit(monkeypatch):
    phases = []

    def watched(*about, **how):
        trained = train(*about, **how)
        phases.append((trained.prediction, copy.deepcopy(trained.predictor.tail.state_dict())))
        return trained

    monkeypatch.setattr(mugcd, "train", watched)
    how = {"supervised_weight": 0.6, "info_nce_temperature": 0.5, "sup_con_temperature": 0.2, "seed": 3}
    fitted(decided_for("mugcd", **how))
    alone = fitted(decided_for("gcd", **how))
    (first, tail), (second, _) = phases
    assert torch.equal(first.features, alone.prediction.features)
    assert equal(tail, alone.predictor.tail.state_dict())
    assert not torch.equal(second.features, first.features)


def test_without_momentum_the_teacher_is_the_student_after_every_step():
    learner, _ = second_phase(momentum_start=0.0, momentum_end=0.0)
    assert len(learner.seen) == 1 + 2 * (N // 48)
    assert all(equal(student, teacher) for student, teacher in learner.seen)
    assert not equal(learner.seen[0][0], learner.seen[-1][0])


def test_with_full_momentum_the_teacher_never_changes():
    learner, trained = second_phase(momentum_start=1.0, momentum_end=1.0)
    first = learner.seen[0][1]
    assert all(equal(teacher, first) for _, teacher in learner.seen)
    assert not equal(learner.seen[-1][0], first)  # the student does
    predictor, (student, _) = trained.predictor, learner.seen[0]
    assert equal({f"tail.{n}": t for n, t in predictor.tail.state_dict().items()}, only(student, "tail."))
    assert torch.equal(predictor.classifier.weight, student["classifier.weight"])


def only(tensors, prefix):
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def test_with_full_momentum_its_predictions_are_the_same_after_every_epoch():
    predictions = []

    class Asking(mugcd.MeanTeacher):
        def between_epochs(self, epoch, prediction):
            predictions.append(prediction)
            return super().between_epochs(epoch, prediction)

    settings = decided_for("mugcd", epochs=3, momentum_start=1.0, momentum_end=1.0)
    task = new_task(settings)
    first = train(task, GCD(task, gcd.Settings(), starts=1))
    last = train(task, Asking(task, settings.method, first), stage=2).prediction
    assert predictions[0] is None
    assert len(predictions) == 3
    assert all(torch.equal(prediction.probabilities, last.probabilities) for prediction in predictions[1:])
    assert torch.equal(last.features, first.prediction.features)


@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_between_these_the_teacher_follows_once_per_step(rho):
    learner, _ = second_phase(momentum_start=0.5, momentum_end=0.9, rho=rho)
    steps = len(learner.seen) - 1
    for step, ((_, before), (student, after)) in enumerate(pairwise(learner.seen)):
        momentum = teacher_momentum(step, steps, 0.5, 0.9)
        for name, tensor in after.items():
            expected = momentum * before[name] + (1 - momentum) * student[name]
            torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)


def test_the_teacher_is_in_the_checkpoint_and_in_no_group(tmp_path):
    settings, journal = decided_for("mugcd", epochs=2), new_journal(tmp_path)
    fitted(settings, journal=journal)
    tensors, _ = load_tensors(tmp_path / "checkpoint" / "stage2.safetensors")
    of_teacher, of_student = (
        {name.removeprefix(f"model.{who}.") for name in tensors if name.startswith(f"model.{who}.")}
        for who in ("teacher", "student")
    )
    assert of_teacher == of_student
    assert {"tail.up.weight", "classifier.weight"} <= of_teacher
    of_optimiser = {name for name in tensors if name.startswith("optimiser.")}
    assert len(of_optimiser) == 5  # momentum of two layers of the tail and of the classifier
    assert all(".student." in name for name in of_optimiser)

    learner, _ = second_phase()
    grouped = {id(p) for group in learner.groups(Training.of(settings)) for p in group["params"]}
    assert grouped == {id(p) for p in learner.student.parameters()}
    assert not any(p.requires_grad or p.grad is not None for p in learner.teacher.parameters())


@pytest.mark.parametrize("who", ["teacher", "student"])
def test_the_one_that_was_asked_for_predicts(who):
    learner, trained = second_phase(predict_with=who)
    (student, teacher), predictor = learner.seen[-1], trained.predictor
    chosen, other = (teacher, student) if who == "teacher" else (student, teacher)
    assert torch.equal(predictor.classifier.weight, chosen["classifier.weight"])
    assert not torch.equal(predictor.classifier.weight, other["classifier.weight"])
    assert equal({f"tail.{n}": t for n, t in predictor.tail.state_dict().items()}, only(chosen, "tail."))
    predictor.tail.eval()
    with torch.inference_mode():
        features = predictor.features(SOURCE.evaluation(range(N)))
        torch.testing.assert_close(trained.prediction.features, features)
        torch.testing.assert_close(trained.prediction.probabilities, predictor.probabilities(features))


def test_the_first_views_are_strong_in_the_second_phase_alone():
    asked = []

    class Listening(Embeddings):
        def read_pair(self, *about, strong, **how):
            asked.append(strong)
            return super().read_pair(*about, strong=strong, **how)

    fitted(decided_for("mugcd", epochs=2), adapted(Listening(SOURCE.evaluation(range(N)).numpy())))
    assert asked == [False] * 2 * (N // 48) + [True] * 2 * (N // 48)
