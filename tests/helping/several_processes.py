"""The work of one of three processes: what several processes compute together is what one computes alone."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from newfound.distributed import (
    asked_of_first,
    done_by_first,
    from_first,
    gathered,
    is_first,
    joined,
    processes,
    share,
    sum_gradients,
    whole_batch,
)
from newfound.errors import UserError
from newfound.losses import simgcd_losses
from newfound.sharpness import SharpnessAware
from newfound.training.heads import CosineClassifier, Projector

B, DIM, STEPS = 7, 5, 3  # 7 images among 3 processes: shares of 2, 2 and 3


class Model(torch.nn.Module):
    """SimGCD's parts, small and in float64."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tail, self.projector = torch.nn.Linear(DIM, DIM), Projector(DIM, hidden_dim=16)
        self.classifier = CosineClassifier(DIM, 4)
        self.double()

    def loss(self, tokens, labels):
        features = self.tail(tokens)
        projections, logits = (whole_batch(head(features), B) for head in (self.projector, self.classifier))
        return simgcd_losses(projections, logits, labels, teacher_temperature=0.05, entropy_weight=1.0)["total"]


def trained(tokens, labels, part):
    """A few steps with the sharpness penalty on this part of each batch."""
    model = Model()
    descent = SharpnessAware(torch.optim.SGD(model.parameters(), 0.1, 0.9), rho=0.05)

    def gradients():
        model.zero_grad()
        mine = tokens.view(2, B, DIM)[:, part].flatten(0, 1)
        descent.backward(model.loss(mine, labels))
        sum_gradients(model)

    for _ in range(STEPS):
        descent.step(gradients)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def main():
    torch.manual_seed(1)
    tokens, labels = torch.randn(2 * B, DIM, dtype=torch.float64), torch.tensor([0, -1, 1, -1, -1, 0, -1])
    alone = trained(tokens, labels, slice(None))
    with joined("cpu"):
        assert processes() == 3
        together = trained(tokens, labels, share(B))
        assert torch.allclose(together, alone, rtol=0, atol=1e-13), (together - alone).abs().max()
        everyone = [torch.empty_like(together) for _ in range(3)]
        dist.all_gather(everyone, together)
        assert all(torch.equal(theirs, together) for theirs in everyone)  # the same bits: nobody drifts away

        rows = torch.arange(20.0).view(10, 2)
        assert torch.equal(gathered(rows[share(10)], 10), rows)
        assert torch.equal(gathered(rows[:2][share(2)], 2), rows[:2])  # one of three has none

        asked, done = [], []
        assert from_first(lambda: asked.append(1) or {"rank": dist.get_rank(), "alone": processes()}) == {
            "rank": 0,
            "alone": 1,
        }
        done_by_first(lambda: done.append(1))()
        assert asked == done == ([1] if is_first() else [])
        nested = asked_of_first(lambda: from_first(lambda: np.arange(3)))
        assert nested().tolist() == [0, 1, 2]

        def fails():
            raise UserError("no such file")

        with pytest.raises(UserError, match="no such file"):
            from_first(fails)
    assert processes() == 1
