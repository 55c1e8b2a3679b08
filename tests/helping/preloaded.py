"""Programs in processes of their own that start at once: forked from a process that has imported torch and newfound.

Importing both takes several seconds, and tests start dozens of processes; Python's fork server imports them once per
worker of the suite. What `python -m newfound` and torchrun do before that is tested in tests/app/test_main.py and
tests/test_distributed.py, which start the real ones.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from helping.doubles import SMALL_WIDTH
from helping.patience import PATIENCE
from newfound.app.main import main
from newfound.settings import DEFAULTS

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch._dynamo", "sklearn.cluster", "sklearn.manifold", "newfound.discovery", "newfound.report",
     "newfound.review", "newfound.app.main", "newfound.methods.sdas"]
)  # fmt: skip
FOLDER = tempfile.TemporaryDirectory()  # removed when this process ends


class Printed:
    """Where a program's output goes: two files, which several programs may share."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
        for name in ("out", "err"):
            (self.folder / name).touch()

    def text(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8", "backslashreplace")


class Program:
    """A function at work in a process of its own, with the manners of `subprocess.Popen`. It must be one that a module
    holds; the process ends as with `sys.exit`, in status and output."""

    def __init__(
        self,
        function: Callable[..., object],
        *args: object,
        env: Mapping[str, str] | None = None,
        printed: Printed | None = None,
    ) -> None:
        self._printed = printed or Printed()
        how = os.getcwd(), {**os.environ, **(env or {})}, self._printed
        self._process = CONTEXT.Process(target=_become, args=(function, args, *how))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its status, None while it runs; negative if a signal ended it."""
        return self._process.exitcode

    def join(self, seconds: float) -> None:
        """Wait for its end, but no longer than this."""
        self._process.join(seconds)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def output(self) -> str:
        """What it has printed so far."""
        return self._printed.text("out")

    def communicate(self) -> tuple[str, str]:
        """Wait for its end: what it has printed to standard output and standard error."""
        self.join(PATIENCE)
        assert self.poll() is not None, f"it does not end: {self.output()[-500:]}"
        return self._printed.text("out"), self._printed.text("err")


def _become(
    function: Callable[..., object],
    args: tuple[object, ...],
    place: str,
    environment: Mapping[str, str],
    printed: Printed,
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    for handle, name in ((1, "out"), (2, "err")):
        file = os.open(printed.folder / name, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, handle)
        os.close(file)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    function(*args)


def newfound(*words: str) -> None:
    """The command, as `python -m newfound` runs it."""
    sys.argv = ["newfound", *words]
    main()


def small_newfound(*words: str) -> None:
    """The same with a small projector, which trains quickly."""
    DEFAULTS["projector_width"] = SMALL_WIDTH
    newfound(*words)


class Ranks:
    """Processes of one job, each told its place as torchrun tells it. The store is here, as it is in torchrun."""

    def __init__(self, count: int, function: Callable[..., object], *args: object) -> None:
        self._store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port), "WORLD_SIZE": str(count),
               "LOCAL_WORLD_SIZE": str(count), "TORCHELASTIC_RUN_ID": "tests", "TORCHELASTIC_RESTART_COUNT": "0",
               "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}  # fmt: skip
        self._printed = Printed()
        self.programs = [
            Program(function, *args, env={**job, "RANK": str(rank), "LOCAL_RANK": str(rank)}, printed=self._printed)
            for rank in range(count)
        ]

    def poll(self) -> int | None:
        """As torchrun's: None while all run; 0 if all have ended well; 1 once any has not."""
        statuses = [program.poll() for program in self.programs]
        if any(statuses):
            return 1
        return None if None in statuses else 0

    def communicate(self) -> tuple[str, str]:
        """Wait for all: what they have printed. Where one has failed, torchrun tells the others to end."""
        while self.poll() is None:
            for program in self.programs:
                program.join(0.02)
        for program in self.programs:
            program.send_signal(signal.SIGTERM)  # to those that still run: none, unless one has failed
        return [program.communicate() for program in self.programs][-1]
