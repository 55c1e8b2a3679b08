"""A mean teacher: a copy of a network that no gradient reaches, and whose weights follow the student's."""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """An exact copy without gradients, in training or evaluation mode as the original is.

    >>> teacher = frozen_copy(nn.Linear(2, 1))
    >>> [parameter.requires_grad for parameter in teacher.parameters()]
    [False, False]
    """
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def ema_(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Move the teacher: each parameter to ``momentum`` times its own value and the rest of the student's; buffers copy.

    To be called after the optimiser's step, with the student's new weights. The mean is taken in single precision, or
    in double where the parameters have it; at momentum 0 and 1 it is exactly the student's or the teacher's value.

    >>> teacher, student = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(teacher.weight, 4.0), nn.init.constant_(student.weight, 8.0)
    >>> ema_(teacher, student, momentum=0.75)
    >>> teacher.weight.item()
    5.0
    """
    for mean, now in zip(teacher.parameters(), student.parameters(), strict=True):
        wide = torch.promote_types(mean.dtype, torch.float32)
        mean.copy_(torch.lerp(mean.to(wide), now.to(wide), 1 - momentum))
    for held, given in zip(teacher.buffers(), student.buffers(), strict=True):
        held.copy_(given)


def teacher_momentum(step: int, steps: int, start: float, end: float) -> float:
    """Along a cosine from start towards end, reached only after the last step; steps count from 0 over all epochs.

    >>> [round(teacher_momentum(step, 4, 0.7, 0.999), 4) for step in range(5)]
    [0.7, 0.7438, 0.8495, 0.9552, 0.999]
    """
    return end - (end - start) * (math.cos(math.pi * step / steps) + 1) / 2
