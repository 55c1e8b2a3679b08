"""The work of one of two processes: each method alone, then by both; prints how far their features are apart."""

import json

from helping.contract import run, settings_of
from helping.wrong_methods import ACTS_BEHIND_EVERYONE
from newfound.distributed import is_first, joined
from newfound.methods import METHODS, load

METHODS_AND_WRONG = [*map(load, METHODS), ACTS_BEHIND_EVERYONE]


def learnt(found):
    """The trained features; clusterings of them may turn on their last digits."""
    return found.prediction.features.double()


def main():
    quick = {method.NAME: settings_of(method, **({"epochs": 2} if method.NEEDS.training else {}))
             for method in METHODS_AND_WRONG}  # fmt: skip
    alone = {name: learnt(run(settings)) for name, settings in quick.items()}
    with joined("cpu"):
        together = {name: learnt(run(settings)) for name, settings in quick.items()}
        if is_first():
            apart = {name: float((alone[name] - together[name]).abs().max()) for name in quick}
            print(json.dumps(apart))
