"""An epoch of training beside other busy processes, as on a laptop with a browser open.

How the threads of a training wait for each other decides what a busy machine costs. Each way of waiting has a process
of its own, which trains an epoch whenever it is asked to. Busy loops are let run and held in turn, so that a slow
moment of the machine meets every side.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import mean

from benchmarks.timing import Row

SPINNING = {"GOMP_SPINCOUNT": "300000"}  # GNU OpenMP's own way: several milliseconds
OURS: dict[str, str] = {}  # whatever newfound sets
LOADS = (0, 2, 4)  # busy processes beside it
GOALS = {0: 1.03, 2: 2.3, 4: 3.5}
IMAGES, DIM, VIEWS, CLASSES, KNOWN = 3044, 1280, 8, 39, 20
SETTING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "OMP_PROC_BIND")


class Training:
    """In a process of its own, started with this in its environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in SETTING}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.busy", "train"],
            env={**inherited, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.epoch()  # the first one also makes memory and threads

    def epoch(self) -> float:
        """Seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def busy_loops(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that compute without end, held at first."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        _send(loops, signal.SIGSTOP)
        yield loops
    finally:
        _send(loops, signal.SIGKILL)
        for loop in loops:
            loop.wait()


def _send(loops: Sequence[subprocess.Popen[bytes]], what: signal.Signals) -> None:
    for loop in loops:
        loop.send_signal(what)


def measured(sides: Mapping[str, Mapping[str, str]], instances: int, rounds: int) -> dict[tuple[str, int], float]:
    """The mean seconds of an epoch by side and number of busy processes beside it.

    Processes of one side differ by a tenth among themselves, by where their memory and threads happen to lie: several
    are started, and each trains ``rounds`` epochs with every load.
    """
    taken: dict[tuple[str, int], list[float]] = {(name, load): [] for name in sides for load in LOADS}
    with busy_loops(max(LOADS)) as loops:
        for _ in range(instances):
            trainings = {name: Training(environment) for name, environment in sides.items()}
            for name, load in [*taken] * rounds:
                _send(loops[:load], signal.SIGCONT)
                trainings[name].epoch()  # until it has noticed who else is there
                taken[name, load].append(trainings[name].epoch())
                _send(loops, signal.SIGSTOP)
            for training in trainings.values():
                training.close()
    return {key: mean(seconds) for key, seconds in taken.items()}


def busy_rows(instances: int, rounds: int) -> list[Row]:
    found = measured({"usual": SPINNING, "ours": OURS}, instances, rounds)
    rows = [Row("an epoch alone", "threads that spin", found["usual", 0], found["ours", 0], GOALS[0])]
    for load in LOADS[1:]:
        note = f"threads that spin: {found['usual', load] / found['usual', 0]:.1f} times"
        rows.append(
            Row(f"an epoch beside {load} busy processes", "the same epoch alone", found["ours", 0],
                found["ours", load], GOALS[load], note)
        )  # fmt: skip
    return rows


def _train_when_asked() -> None:
    """SimGCD on features like EfficientNet's, an epoch for each line that comes in."""
    import newfound  # noqa: F401, I001 - before torch, as every program of ours does

    import numpy as np

    from benchmarks.tasks import decided, task_of
    from newfound.backbones.adapter import AdapterTail
    from newfound.methods.simgcd import fit
    from newfound.runs.journal import MemoryJournal
    from newfound.sources.vectors import Embeddings
    from newfound.training.task import Pretrained

    random = np.random.default_rng(0)
    groups = random.integers(CLASSES, size=IMAGES)
    labels = np.where((groups < KNOWN) & (random.random(IMAGES) < 0.5), groups, -1)
    source = Embeddings(random.standard_normal((IMAGES, 1 + VIEWS, DIM), dtype=np.float32))
    settings = decided(CLASSES, KNOWN, IMAGES, epochs=1, rho=0.0, start="random")
    task = task_of(settings, Pretrained(source, lambda: AdapterTail(DIM), DIM), labels)
    assert isinstance(task.journal, MemoryJournal)
    for _ in sys.stdin:
        fit(task, settings.method)  # type: ignore[arg-type]
        print(task.journal.entries[-1]["seconds"], flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        _train_when_asked()
    else:
        for row in busy_rows(instances=2, rounds=2):
            print(f"{row.name}: {row.seconds:.2f} s, {row.ratio:.2f} times {row.baseline}. {row.note}".rstrip())
