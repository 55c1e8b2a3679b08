"""How well known classes with hardly any label are learnt, and what they take in of new ones.

    python -m benchmarks.few_labels flowers --root FLOWERS --image-size 160 --epochs 30

Some of the known classes keep only so many of their labels; their other images are to be sorted. A line per number of
labels goes to standard output.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound import Screen, Settings, fitting
from newfound.evaluate import cluster_accuracy
from newfound.research.datasets.image_table import truth_of
from newfound.research.run_bench import prepare
from newfound.runs.journal import MemoryJournal
from newfound.settings import DataFacts
from newfound.training.opened_images import OpenedImages

CHOSEN = 12  # classes that lose labels


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("dataset")
    arguments.add_argument("--root", type=Path, required=True)
    arguments.add_argument("--lists", type=Path)
    arguments.add_argument("--method", default="simgcd")
    arguments.add_argument("--image-size", type=int, default=224)
    arguments.add_argument("--epochs", type=int)
    arguments.add_argument("--labels", type=int, nargs="+", default=[1, 2, 5])
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    chosen = Settings(method=options.method, image_size=options.image_size, epochs=options.epochs, seed=options.seed)
    benchmark, table, settings = prepare(options.dataset, options.root, options.lists, chosen, (0,), Screen(quiet=True))
    given, truth = table.seen_classes()[0], truth_of(benchmark)
    true = given.copy()
    true[truth.images] = truth.classes
    opened = OpenedImages(table, settings, Screen())
    random = np.random.default_rng(100 + options.seed)
    few = random.choice(table.n_known, CHOSEN, replace=False)
    for count in options.labels:
        labels = fewer_labels(given, few, count, random)
        print(f"{count} labels:", learnt(settings, opened, labels, true, few), flush=True)


def fewer_labels(
    given: NDArray[np.int64], few: NDArray[np.int64], count: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """The same labels, but so many in each of the ``few`` classes."""
    labels = given.copy()
    for k in few:
        labels[random.permutation(np.flatnonzero(labels == k))[count:]] = -1
    return labels


def learnt(
    settings: Settings, opened: OpenedImages, labels: NDArray[np.int64], true: NDArray[np.int64], few: NDArray[np.int64]
) -> str:
    """A training with these labels, and how it went for the ``few`` classes and for all."""
    assert settings.classes is not None
    n_known = int(labels.max()) + 1
    facts = DataFacts(len(labels), n_known, int((labels >= 0).sum()), n_known, settings.classes)
    decided = fitting.decided(settings, facts, Screen(quiet=True))
    found = fitting.fit(decided, facts, opened.pretrained, labels, MemoryJournal(), Screen(), fewest=2)
    to_sort = np.flatnonzero(labels < 0)
    truth, predicted = true[to_sort], found.prediction.classes.numpy()[to_sort]
    known, theirs, there = truth < n_known, np.isin(truth, few), np.isin(predicted, few)
    right, score = predicted == truth, cluster_accuracy(truth, predicted, known)
    found_share, right_share = (100 * float(right[images].mean()) for images in (theirs, there))
    scores = " / ".join(f"{100 * share:.1f}" for share in (score.all, score.old, score.new))
    return (
        f"{found_share:.1f} % of their images found; of {there.sum()} put there {right_share:.1f} % right, "
        f"{(there & ~known).sum()} of new classes; all {scores}"
    )


if __name__ == "__main__":
    main()
