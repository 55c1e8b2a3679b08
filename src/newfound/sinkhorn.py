"""Sinkhorn-Knopp: from similarities to soft assignments that use every class about equally often."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def sinkhorn(logits: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assignments n×K whose rows sum to 1 and whose columns nearly sum to n/K, from ``logits`` n×K (Cuturi 2013).

    From exp(logits / ``epsilon``), each iteration divides every column (a class) by its sum, then every row (an image).
    It is done in logarithms, so that no exponential overflows. No rows give no rows.

    >>> sinkhorn(0.05 * torch.tensor([[3.0, 1.0], [1.0, 1.0]]).log(), iterations=1)
    tensor([[0.6000, 0.4000],
            [0.3333, 0.6667]])
    """
    log_shares = logits / epsilon
    for _ in range(iterations):
        for axis in (0, 1):  # classes, then images
            log_shares = log_shares - log_shares.logsumexp(dim=axis, keepdim=True)
    return log_shares.exp()
