"""What a step of each method costs, as a ratio to a step of SimGCD: `python -m benchmarks.method_costs`.

Every method trains on the same features, like EfficientNet's, in turn; an epoch counts with everything that belongs to
it (new pseudo-labels, memories, the evaluation at its end). A method of two trainings has a line for each of them.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from benchmarks.__main__ import hardware
from benchmarks.tasks import decided, task_of
from newfound.backbones.adapter import AdapterTail
from newfound.methods import METHODS, load
from newfound.runs.journal import MemoryJournal
from newfound.sources.vectors import Embeddings
from newfound.training.task import Pretrained

IMAGES, DIM, VIEWS, CLASSES, KNOWN = 2048, 1280, 8, 40, 20
EPOCHS, ROUNDS = 3, 3
Part = tuple[str, int]  # a method, and which of its trainings


def epoch_seconds(method: str, source: Embeddings, labels: np.ndarray) -> dict[Part, float]:
    """Of an epoch of each of its trainings, neither the first nor the last: clusterings at the end are not steps."""
    settings = decided(CLASSES, KNOWN, IMAGES, method=method, epochs=EPOCHS, rho=0.0)
    task = task_of(settings, Pretrained(source, lambda: AdapterTail(DIM), DIM), labels)
    load(method).fit(task, settings.method)
    assert isinstance(task.journal, MemoryJournal)
    return {(method, entry["stage"]): entry["seconds"] for entry in task.journal.entries if entry["epoch"] == 2}


def main() -> None:
    random = np.random.default_rng(0)
    groups = random.integers(CLASSES, size=IMAGES)
    labels = np.where((groups < KNOWN) & (random.random(IMAGES) < 0.5), groups, -1)
    middles = random.standard_normal((CLASSES, 1, DIM))
    source = Embeddings((middles[groups] + random.standard_normal((IMAGES, 1 + VIEWS, DIM))).astype(np.float32))
    trained = [name for name in METHODS if load(name).NEEDS.training]
    taken: dict[Part, list[float]] = {}
    for _ in range(ROUNDS):
        for method in trained:
            for part, seconds in epoch_seconds(method, source, labels).items():
                taken.setdefault(part, []).append(seconds)
    usual = median(taken["simgcd", 1])
    print(f"{hardware()}; an epoch of SimGCD: {usual:.2f} s for {IMAGES:,} vectors of {DIM:,} numbers")
    for (method, stage), seconds in taken.items():
        which = f", training {stage}" if (method, 2) in taken else ""
        print(f"{method}{which}: {median(seconds) / usual:.2f}")


if __name__ == "__main__":
    main()
