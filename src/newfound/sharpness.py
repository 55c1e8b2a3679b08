"""The loss sharpness penalty (LSP): step with the gradient found uphill, so that sharp minima do not hold.

One step of SAM around any torch optimiser: from the weights w up along the gradient to w + ρ·g/‖g‖, where everything is
computed again on the same batch and views; back to w, exactly; and the optimiser steps with the second gradient.
Momentum and weight decay see only that one.

With a gradient scaler (float16 on a GPU) both losses are scaled before they go backward. The climb does not depend on
the scale; the scaler itself unscales the second gradient, steps, and adapts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class SharpnessAware:
    """Around an optimiser; ``rho`` 0 is the optimiser itself, bit for bit.

    A gradient that is not finite, at either point, skips the step: the weights stay and ``skipped_steps`` counts it.
    (With ``rho`` 0 and no scaler nothing is checked, as in the optimiser itself.)
    """

    def __init__(
        self, optimiser: torch.optim.Optimizer, rho: float, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        self.optimiser, self.rho = optimiser, rho
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.skipped_steps = 0
        self._places: dict[Tensor, Tensor] = {}  # to climb to, by parameter; kept, since memory is slow to allocate

    def backward(self, loss: Tensor) -> None:
        """What ``gradients`` calls in place of ``loss.backward()``."""
        loss = loss if self.scaler is None else self.scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, gradients: Callable[[], T]) -> T | None:
        """One step. ``gradients`` clears the gradients, computes the loss and goes ``backward``; its first answer
        returns, or None if the step was skipped.

        >>> w = torch.nn.Parameter(torch.tensor([3.0]))
        >>> descent = SharpnessAware(torch.optim.SGD([w], lr=0.1), rho=0.5)
        >>> def gradients():
        ...     w.grad = None
        ...     descent.backward((w**2).sum())
        >>> descent.step(gradients)
        >>> round(w.item(), 4)  # 3 - 0.1 * 2 * (3 + 0.5)
        2.3
        """
        answer = gradients()
        if self.rho > 0:
            moved, norm = self._gradient()
            if not bool(norm.isfinite()):
                self._skip()
                return None
            with self._uphill(moved, norm):
                gradients()
        if (self.rho > 0 or self.scaler) and not bool(self._gradient()[1].isfinite()):
            self._skip()
            return None
        self._descend()
        return answer

    def _gradient(self) -> tuple[list[Tensor], Tensor]:
        """What has a gradient, and the one norm over all of it."""
        moved = [p for group in self.optimiser.param_groups for p in group["params"] if p.grad is not None]
        return moved, torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in moved]))

    @contextmanager
    def _uphill(self, moved: list[Tensor], norm: Tensor) -> Iterator[None]:
        """Weights that lie higher by rho in all, then the same ones again: they are not touched, but put aside."""
        tiny = 1e-12 * (1.0 if self.scaler is None else self.scaler.get_scale())
        pace = (self.rho / (norm + tiny)).item()
        before = [parameter.data for parameter in moved]
        try:
            for parameter in moved:
                assert parameter.grad is not None
                if parameter not in self._places:
                    self._places[parameter] = torch.empty_like(parameter.data)
                parameter.data = torch.add(parameter.data, parameter.grad, alpha=pace, out=self._places[parameter])
            yield
        finally:
            for parameter, weights in zip(moved, before, strict=True):
                parameter.data = weights

    def _descend(self) -> None:
        if self.scaler is None:
            self.optimiser.step()
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()

    def _skip(self) -> None:
        self.skipped_steps += 1
        if self.scaler is not None:
            self.scaler.update(self.scaler.get_scale() * self.scaler.get_backoff_factor())
