"""Started by torchrun with two processes: each method alone, then by both; prints how far their weights are apart."""

import json
import sys

import torch

from helping.contract import run, settings_of
from helping.wrong_methods import ACTS_BEHIND_EVERYONE
from newfound.distributed import is_first, joined
from newfound.methods import METHODS, load

METHODS_AND_WRONG = [*map(load, METHODS), ACTS_BEHIND_EVERYONE]


def weights(found):
    return torch.cat([t.flatten().double() for part in (found.predictor.tail, found.predictor.classifier)
                      for t in part.state_dict().values()])  # fmt: skip


def main():
    quick = {method.NAME: settings_of(method, **({"epochs": 2} if method.NEEDS.training else {}))
             for method in METHODS_AND_WRONG}  # fmt: skip
    alone = {name: weights(run(settings)) for name, settings in quick.items()}
    with joined("cpu"):
        together = {name: weights(run(settings)) for name, settings in quick.items()}
        if is_first():
            apart = {name: float((alone[name] - together[name]).abs().max()) for name in quick}
            print(json.dumps(apart), file=sys.stdout, flush=True)


if __name__ == "__main__":
    main()
