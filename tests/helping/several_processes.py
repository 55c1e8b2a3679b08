"""The work of one of three processes: what several processes compute together is what one computes alone."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

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
    summed,
    whole_batch,
)
from newfound.errors import UserError
from newfound.losses import simgcd_losses
from newfound.sharpness import SharpnessAware
from newfound.training.classifiers import PrototypeHead
from newfound.training.heads import CosineClassifier, Projector
from newfound.training.learner import Batch

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


class WithBatchNorm(Model):
    """The same with a classifier whose hidden layer is normalised by the batch: each row depends on all others."""

    def __init__(self):
        super().__init__()
        self.classifier = PrototypeHead(DIM, 4, hidden_dim=6, out_dim=3).double()

    def loss(self, tokens, labels):
        batch = Batch(tokens, torch.arange(B), labels, epoch=0, step=0, steps=1, seed=0, stage=1)
        features = self.tail(tokens)
        embedded, moments = self.classifier.embedded(features, batch.mean)
        self.classifier.norm.follow(moments, B)
        logits = F.linear(F.normalize(embedded, dim=1), self.classifier.prototypes.weight)
        projections, logits = batch.everyone(self.projector(features)), batch.everyone(logits)
        return simgcd_losses(projections, logits, labels, teacher_temperature=0.05, entropy_weight=1.0)["total"]


def trained(kind, tokens, labels, part):
    """A few steps with the sharpness penalty on this part of each batch: all parameters and buffers."""
    model = kind()
    descent = SharpnessAware(torch.optim.SGD(model.parameters(), 0.1, 0.9), rho=0.05)

    def gradients():
        model.zero_grad()
        mine = tokens.view(2, B, DIM)[:, part].flatten(0, 1)
        descent.backward(model.loss(mine, labels))
        sum_gradients(model)

    for _ in range(STEPS):
        descent.step(gradients)
    return torch.cat([tensor.flatten() for tensor in model.state_dict().values()])


def main():
    torch.manual_seed(1)
    tokens, labels = torch.randn(2 * B, DIM, dtype=torch.float64), torch.tensor([0, -1, 1, -1, -1, 0, -1])
    alone = {kind: trained(kind, tokens, labels, slice(None)) for kind in (Model, WithBatchNorm)}
    with joined("cpu"):
        assert processes() == 3
        for kind, expected in alone.items():
            together = trained(kind, tokens, labels, share(B))
            # 1e-12 with batch normalisation: it divides by the spread of seven rows
            assert torch.allclose(together, expected, rtol=0, atol=1e-13 if kind is Model else 1e-12), kind
            everyone = [torch.empty_like(together) for _ in range(3)]
            dist.all_gather(everyone, together)
            assert all(torch.equal(theirs, together) for theirs in everyone)  # the same bits: nobody drifts away

        part = torch.full((2,), 1.0 + dist.get_rank(), requires_grad=True)
        assert summed(part).tolist() == [6.0, 6.0]
        (summed(part) * (10.0 ** dist.get_rank())).sum().backward()
        assert part.grad.tolist() == [111.0, 111.0]  # each process's use of the sum counts

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
