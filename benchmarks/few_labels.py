"""How well known classes with hardly any label are learnt, and what they take in of new ones.

    python -m benchmarks.few_labels flowers --root FLOWERS --image-size 160 --epochs 30 --balance 0 0.5 1 --seeds 0 1 2

Some of the known classes keep only so many of their labels; their other images are to be sorted. Which classes and
which labels depends on the seed alone, and the labels of a smaller number are among those of a larger one. With
`--labels uneven` every known class keeps a number of its own, from 1 to all of them, smaller ones more often. A line
per training goes to standard output, in the end a table.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newfound import Screen, Settings, fitting
from newfound.evaluate import cluster_accuracy
from newfound.research.datasets.image_table import truth_of
from newfound.research.markdown import table as markdown_table
from newfound.research.run_bench import prepare
from newfound.research.seed_statistics import deviation, mean_text, over_seeds
from newfound.runs.journal import MemoryJournal
from newfound.settings import DataFacts
from newfound.settings.presets import PRESETS
from newfound.training.opened_images import OpenedImages

CHOSEN = 12  # classes that lose labels
UNEVEN = "uneven"
HEADER = ["labels, balance", "their images found, %", "put there", "of these right, %", "of new classes", "All", "Old",
          "New"]  # fmt: skip

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Of a data set, ready for training."""

    opened: OpenedImages
    given: Labels
    true: Labels
    n_known: int


@dataclass(frozen=True)
class Outcome:
    """Of a training: how it went for the classes that lost labels, and for all."""

    found: float  # of their images, in per cent
    there: int  # images put into them
    right: float  # of those, in per cent
    of_new: int  # of those, images of new classes
    all: float
    old: float
    new: float

    def __str__(self) -> str:
        return (
            f"{self.found:.1f} % of their images found; of {self.there} put there {self.right:.1f} % right, "
            f"{self.of_new} of new classes; all {self.all:.1f} / {self.old:.1f} / {self.new:.1f}"
        )


def main() -> None:
    options = parsed()
    chosen = Settings(
        method=options.method, preset=options.preset, image_size=options.image_size, epochs=options.epochs
    )
    benchmark, table, settings = prepare(
        options.dataset, options.root, options.lists, chosen, options.seeds, Screen(quiet=True)
    )
    given, truth = table.seen_classes()[0], truth_of(benchmark)
    true = given.copy()
    true[truth.images] = truth.classes
    images = Images(OpenedImages(table, settings, Screen()), given, true, table.n_known)
    outcomes: dict[tuple[str, float], list[Outcome]] = {}
    for seed, count, balance in product(options.seeds, options.labels, options.balance):
        few, labels = uneven_labels(images, seed) if count == UNEVEN else few_labels(images, seed, int(count))
        outcome = trained(replace(settings, seed=seed, label_balance=balance), images, labels, few)
        outcomes.setdefault((count, balance), []).append(outcome)
        print(f"seed {seed}, {count} labels, balance {balance:g}: {outcome}", flush=True)
    print(f"\n{over_seeds(options.seeds)}\n\n{markdown_table(HEADER, rows(outcomes))}", flush=True)


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("dataset")
    arguments.add_argument("--root", type=Path, required=True)
    arguments.add_argument("--lists", type=Path)
    arguments.add_argument("--method", default="simgcd")
    arguments.add_argument("--preset", choices=PRESETS, help="default: as in newfound bench")
    arguments.add_argument("--image-size", type=int, default=224)
    arguments.add_argument("--epochs", type=int)
    arguments.add_argument("--labels", nargs="+", default=["1", "2", "5"], metavar=f"N|{UNEVEN}")
    arguments.add_argument("--balance", type=float, nargs="+", default=[0.0])
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0])
    return arguments.parse_args()


def few_labels(images: Images, seed: int, count: int) -> tuple[Labels, Labels]:
    """The classes that keep at most ``count`` labels, and what is labelled then."""
    random = np.random.default_rng(100 + seed)
    few = random.choice(images.n_known, CHOSEN, replace=False)
    return few, fewer(images.given, few, [count] * len(few), random)


def uneven_labels(images: Images, seed: int) -> tuple[Labels, Labels]:
    """All known classes, and what is labelled if each keeps a number drawn evenly on a logarithmic scale."""
    random = np.random.default_rng(200 + seed)
    classes = np.arange(images.n_known)
    most = np.bincount(images.given[images.given >= 0], minlength=images.n_known)
    counts = np.exp(random.uniform(0, np.log(most + 1))).astype(int)
    return classes, fewer(images.given, classes, counts.tolist(), random)


def fewer(given: Labels, classes: Labels, counts: Sequence[int], random: np.random.Generator) -> Labels:
    """The same labels, but at most so many in each of the classes.

    >>> fewer(np.array([0, 0, 1, 1]), np.array([1]), [1], np.random.default_rng(0)).tolist()
    [0, 0, 1, -1]
    """
    labels = given.copy()
    for k, count in zip(classes, counts, strict=True):
        labels[random.permutation(np.flatnonzero(given == k))[count:]] = -1
    return labels


def trained(settings: Settings, images: Images, labels: Labels, few: Labels) -> Outcome:
    """A training with these labels."""
    assert settings.classes is not None
    facts = DataFacts(len(labels), images.n_known, int((labels >= 0).sum()), images.n_known, settings.classes)
    decided = fitting.decided(settings, facts, Screen(quiet=True))
    found = fitting.fit(decided, facts, images.opened.pretrained, labels, MemoryJournal(), Screen(), fewest=2)
    to_sort = np.flatnonzero(labels < 0)
    truth, predicted = images.true[to_sort], found.prediction.classes.numpy()[to_sort]
    known, theirs, there = truth < images.n_known, np.isin(truth, few), np.isin(predicted, few)
    right, score = predicted == truth, cluster_accuracy(truth, predicted, known)
    return Outcome(
        found=100 * float(right[theirs].mean()),
        there=int(there.sum()),
        right=100 * float(right[there].mean()) if there.any() else float("nan"),
        of_new=int((there & ~known).sum()),
        **{group: 100 * getattr(score, group) for group in ("all", "old", "new")},
    )


def rows(outcomes: dict[tuple[str, float], list[Outcome]]) -> Iterator[list[str]]:
    """Of the table: one for each number of labels and balance."""
    for (count, balance), each in outcomes.items():
        numbers = ([float(getattr(outcome, name)) for outcome in each] for name in Outcome.__dataclass_fields__)
        cells = [mean_text(statistics.fmean(values), deviation(values)) for values in numbers]
        yield [f"{count}, {balance:g}", *cells]


if __name__ == "__main__":
    main()
