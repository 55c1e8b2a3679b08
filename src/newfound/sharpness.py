"""The loss sharpness penalty (METHOD: LSP): step with the gradient found uphill, so that sharp minima do not hold.

One step of SAM around any torch optimiser: from the weights w up along the gradient to w + ρ·g/‖g‖, where everything is
computed again on the same batch and views; back to w, from a copy; and the optimiser steps with the second gradient.
Momentum and weight decay see only that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class SharpnessAware:
    """Around an optimiser; ``rho`` 0 is the optimiser itself, bit for bit."""

    def __init__(self, optimiser: torch.optim.Optimizer, rho: float) -> None:
        self.optimiser, self.rho = optimiser, rho
        self.skipped_steps = 0  # the gradient was not finite

    def step(self, gradients: Callable[[], T]) -> T | None:
        """One step. ``gradients`` clears the gradients, computes the loss and goes backward; its first answer returns,
        or None if the step was skipped.

        >>> w = torch.nn.Parameter(torch.tensor([3.0]))
        >>> descent = SharpnessAware(torch.optim.SGD([w], lr=0.1), rho=0.5)
        >>> def gradients():
        ...     w.grad = 2 * w.detach()  # of w squared
        >>> descent.step(gradients)
        >>> round(w.item(), 4)  # 3 - 0.1 * 2 * (3 + 0.5)
        2.3
        """
        answer = gradients()
        if self.rho == 0:
            self.optimiser.step()
            return answer
        moved = [p for group in self.optimiser.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in moved]))  # one norm over every tensor
        if not bool(norm.isfinite()):
            self.skipped_steps += 1
            return None
        weights = self._climb(moved, norm)
        try:
            gradients()
        finally:
            with torch.no_grad():
                for parameter, before in zip(moved, weights, strict=True):
                    parameter.copy_(before)  # from a copy: adding and subtracting would leave rounding behind
        self.optimiser.step()
        return answer

    @torch.no_grad()
    def _climb(self, moved: list[Tensor], norm: Tensor) -> list[Tensor]:
        """Move uphill by rho in all; the weights as they were."""
        before = [parameter.detach().clone() for parameter in moved]
        for parameter in moved:
            assert parameter.grad is not None
            parameter.add_(parameter.grad, alpha=(self.rho / (norm + 1e-12)).item())
        return before
