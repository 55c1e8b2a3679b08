"""The work of one of two processes: each method by the first alone, then by both; prints how far what they learnt is
apart."""

import json

import torch

from helping.contract import run, settings_of
from helping.wrong_methods import ACTS_BEHIND_EVERYONE
from newfound.distributed import from_first, is_first, joined
from newfound.methods import METHODS, load
from newfound.training.nearest_centre import NearestCentre

METHODS_AND_WRONG = [*map(load, METHODS), ACTS_BEHIND_EVERYONE]


def learnt(found):
    """The trained features and classifier; clusterings of features may turn on their last digits."""
    trained, classifier = [found.prediction.features], found.predictor.classifier
    if not isinstance(classifier, NearestCentre):
        trained += classifier.state_dict().values()
    return torch.cat([tensor.detach().double().flatten() for tensor in trained])


def main():
    quick = {method.NAME: settings_of(method, **({"epochs": 2} if method.NEEDS.training else {}))
             for method in METHODS_AND_WRONG}  # fmt: skip
    quick["whitened"] = settings_of(load("gcd"), epochs=2, whitening=0.5)
    with joined("cpu"):
        alone = from_first(lambda: {name: learnt(run(settings)) for name, settings in quick.items()})
        together = {name: learnt(run(settings)) for name, settings in quick.items()}
        if is_first():
            apart = {name: float((alone[name] - together[name]).abs().max()) for name in quick}
            print(json.dumps(apart))
