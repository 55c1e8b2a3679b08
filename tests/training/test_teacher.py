import numpy as np
import pytest
import torch
from torch import nn

from newfound.training.heads import parameter_groups
from newfound.training.teacher import ema_, frozen_copy, teacher_momentum


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def equal(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("i", [0, 1])
def test_momentum_matches_the_reference(golden, i):
    data = np.load(golden / "peers" / "mugcd_schedule_00.npz", allow_pickle=False)
    steps, start, end = data[f"steps_start_end_{i}"].tolist()
    ours = [teacher_momentum(step, int(steps), start, end) for step in range(int(steps))]
    np.testing.assert_allclose(ours, data[f"momentum_{i}"], atol=1e-12, rtol=0)


def test_momentum_begins_at_its_start_and_never_falls():
    momenta = [teacher_momentum(step, 20, 0.7, 0.999) for step in range(21)]
    assert momenta[0] == pytest.approx(0.7, abs=1e-15)
    assert momenta[-1] == 0.999
    assert momenta == sorted(momenta)


def test_copy_is_equal_independent_and_without_gradients():
    student = network()
    student[1](student[0](torch.randn(8, 3)))  # moves the running statistics
    teacher = frozen_copy(student)
    assert equal(teacher.state_dict().values(), student.state_dict().values())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert all(parameter.requires_grad for parameter in student.parameters())
    with torch.no_grad():
        student[0].weight.zero_()
    assert teacher[0].weight.any()
    assert parameter_groups(teacher, weight_decay=0.1)[0]["params"] == []  # no optimiser ever gets it


@pytest.mark.parametrize("training", [True, False])
def test_copy_keeps_the_mode(training):
    student = network().train(training)
    assert [module.training for module in frozen_copy(student).modules()] == [training] * 4


def test_parameters_are_averaged_and_buffers_copied():
    student, teacher = network(), frozen_copy(network())
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    with torch.no_grad():
        student[1].running_mean.fill_(3.0)
        student[1].num_batches_tracked.fill_(7)
    ema_(teacher, student, momentum=0.9)
    parameters = dict(student.named_parameters())
    for name, now in teacher.state_dict().items():
        theirs = student.state_dict()[name]
        if name in parameters:
            np.testing.assert_allclose(now, 0.9 * before[name] + 0.1 * theirs, atol=1e-6)  # single precision
        else:
            assert torch.equal(now, theirs)
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert all(parameter.grad is None for parameter in student.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_both_ends_are_exact(dtype):
    student, teacher = network().to(dtype), frozen_copy(network().to(dtype))
    before = [parameter.clone() for parameter in teacher.parameters()]
    ema_(teacher, student, momentum=1.0)
    assert equal(teacher.parameters(), before)
    ema_(teacher, student, momentum=0.0)
    assert equal(teacher.parameters(), student.parameters())


def test_a_student_in_half_precision_is_averaged_in_single():
    """bfloat16 cannot hold the mean, 1 + 1/1024."""
    teacher, student = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.constant_(teacher.weight, 1.0)
    nn.init.constant_(student.weight, 2.0)
    ema_(teacher, student, momentum=1 - 2**-10)
    assert teacher.weight.item() == 1 + 2**-10


def test_other_networks_are_refused():
    with pytest.raises(ValueError, match="zip"):
        ema_(frozen_copy(nn.Linear(2, 2)), nn.Linear(2, 2, bias=False), 0.5)
