"""Samples in six groups, three of them half-labelled: small, quick, and easy enough to be found."""

import numpy as np

from newfound.runs.scoring import Truth
from newfound.screen import Screen
from newfound.sources.vectors import Embeddings

N, DIM, CLASSES, KNOWN = 240, 16, 6, 3
QUIET = Screen(quiet=True)


def groups(seed=0, spread=2.5):
    """Six groups, three of them half-labelled; four views of each sample."""
    random = np.random.default_rng(seed)
    true = np.repeat(np.arange(CLASSES), N // CLASSES)
    centres = random.normal(size=(CLASSES, DIM)) * spread
    views = centres[true][:, None] + random.normal(size=(N, 4, DIM))
    labels = np.where((true < KNOWN) & (np.arange(N) % 2 == 0), true, -1)
    return Embeddings(views), labels, true


SOURCE, LABELS, TRUE = groups()
UNLABELLED = np.flatnonzero(LABELS < 0)
REFEREE = Truth(UNLABELLED, TRUE[UNLABELLED], TRUE[UNLABELLED] < KNOWN, 0, tuple("abcdef"))
