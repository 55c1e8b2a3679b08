"""A benchmark as the rest of newfound takes it: a table of images, and its truth apart from it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL.Image import Image

from newfound.distributed import from_first
from newfound.errors import UserError
from newfound.images import ImageTable
from newfound.research.datasets.benchmark import Benchmark
from newfound.runs.scoring import Truth


@dataclass(frozen=True, eq=False)
class BenchmarkTable(ImageTable):
    """Images in the data set's native order; known classes in published order."""

    benchmark: Benchmark

    def open(self, index: int, shorter_side: int | None = None) -> Image:
        """Image number `index`, as long as it is still the one that was looked at."""
        image, digest = self.benchmark.open_with_digest(index, shorter_side)
        if digest != self.digests[index]:
            raise UserError(
                f"{self.files[index]} in {self.root} has changed since the data set was read. "
                "Restore it, or start again with the data set as it is."
            )
        return image


def table_of(benchmark: Benchmark, root: Path, on_progress: Callable[[int, int], None] | None = None) -> BenchmarkTable:
    """Reads every image once, for its digest: banks go by content."""
    digests = from_first(lambda: _digests(benchmark, on_progress))
    return BenchmarkTable(
        root=root,
        files=benchmark.files,
        labels=benchmark.labels(),
        class_names=tuple(benchmark.class_names[k] for k in benchmark.known),
        digests=tuple(digests),
        skipped=(),
        warnings=(),
        benchmark=benchmark,
    )


def _digests(benchmark: Benchmark, on_progress: Callable[[int, int], None] | None) -> list[str]:
    digests = []
    with ThreadPoolExecutor(2) as pool:
        for digest in pool.map(benchmark.digest, range(len(benchmark))):
            digests.append(digest)
            if on_progress is not None:
                on_progress(len(digests), len(benchmark))
    return digests


def truth_of(benchmark: Benchmark) -> Truth:
    """The true classes of the unlabelled images, for scoring only."""
    unlabelled = np.flatnonzero(benchmark.labels() < 0)
    classes = benchmark.targets()[unlabelled]
    return Truth(
        images=unlabelled,
        classes=classes,
        known=classes < len(benchmark.known),
        without_truth=0,
        names=tuple(benchmark.class_names[k] for k in (*benchmark.known, *benchmark.new)),
    )
