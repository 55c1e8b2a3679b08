"""Dense places by definition, and rows that make them hard to find."""

import math
from fractions import Fraction

import numpy as np


def naive_density_order(features, members, k):
    neighbours = min(max(math.floor(Fraction(str(k)) * len(members)), 1), len(members) - 1)

    def mean_distance(i):
        nearest = sorted(math.dist(features[i], features[j]) for j in members if j != i)
        return math.fsum(nearest[:neighbours]) / neighbours

    return sorted(members, key=lambda i: (mean_distance(i), i))


def near_duplicates(spread, samples=40, width=16, seed=0):
    """Points so close together, so far from the origin, that |a|² + |b|² − 2ab is mostly rounding."""
    random = np.random.default_rng(seed)
    points = 1.0 + spread * random.integers(-8, 9, (samples, width))
    return np.concatenate([points, points[: samples // 4], 1.0 + random.normal(size=(3, width))])
