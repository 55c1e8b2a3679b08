"""The command in a forked process, with something done to it when it is about to change a file.

This process imports newfound once and computes nothing itself, so a fork is safe and a command starts in no time. File
changes are seen by Python's audit events, which come just before the change: no line of newfound has to be known.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch._dynamo  # noqa: F401 - an optimiser imports it, which takes seconds

import newfound.discovery
import newfound.report
import newfound.review
import newfound.runs.checkpoints
import newfound.sources.bank
from helping.doubles import SMALL_WIDTH
from helping.patience import PATIENCE
from newfound.app import main as cli
from newfound.settings import DEFAULTS

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
PIPES = ("said", "complained", "changes")
At = int | Callable[[str], bool]


@dataclass(frozen=True)
class Ended:
    """How a command ended: status (negative: by that signal), its two outputs, the changes it began."""

    status: int
    said: str
    complained: str
    changes: tuple[str, ...]


class Forked:
    """A command at work in ``folder``. At change number ``at``, counted from 1, ``then`` is called in its process; or
    at the first change, such as "open run/log.jsonl", for which ``at`` is true.

    With ``pause`` 0 there is a checkpoint after each epoch, so that the same command makes the same changes each time.
    """

    def __init__(
        self,
        words: list[str],
        folder: Path,
        *,
        at: At = 0,
        then: Callable[[], object] | None = None,
        pause: float = 0.0,
    ) -> None:
        pipes = {name: os.pipe() for name in PIPES}  # a limit on files, or a full disk, does not concern them
        self.pid = os.fork()
        if self.pid == 0:
            newfound.runs.checkpoints.PAUSE = pause
            try:
                _become(words, folder, at, then or killed, {name: into for name, (_, into) in pipes.items()})
            finally:
                os._exit(70)  # not reached: the command ends by itself
        self._pipes = {name: out for name, (out, _) in pipes.items()}
        self._heard = {name: bytearray() for name in PIPES}
        for out, into in pipes.values():
            os.close(into)
            os.set_blocking(out, False)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def text(self, name: str) -> str:
        """What has come through one of the pipes so far."""
        try:
            while some := os.read(self._pipes[name], 1 << 16):
                self._heard[name] += some
        except BlockingIOError:
            pass  # nothing more for now
        return self._heard[name].decode("utf-8", "backslashreplace")

    def wait(self) -> Ended:
        until = time.monotonic() + PATIENCE
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                self.kill()
                os.waitpid(self.pid, 0)
                raise AssertionError(f"it does not end: {self.text('said')[-500:]}")
            for name in PIPES:
                self.text(name)  # a full pipe would hold it up
            time.sleep(0.01)
        said, complained, changes = (self.text(name) for name in PIPES)
        for out in self._pipes.values():
            os.close(out)
        return Ended(os.waitstatus_to_exitcode(ended[1]), said, complained, tuple(changes.splitlines()))


def run(
    words: list[str], folder: Path, *, at: At = 0, then: Callable[[], object] | None = None, pause: float = 0.0
) -> Ended:
    """The same, waited for."""
    return Forked(words, folder, at=at, then=then, pause=pause).wait()


def killed_after(seconds: float, words: list[str], folder: Path) -> Ended:
    """Killed at that time, unless it has ended before; with checkpoints as they are for everybody."""
    command = Forked(words, folder, pause=newfound.runs.checkpoints.PAUSE)
    time.sleep(seconds)
    command.kill()
    return command.wait()


def killed() -> None:
    """No handler, no cleaning up: as when the power fails, but for what the disk still held."""
    os.kill(os.getpid(), signal.SIGKILL)


def _become(words: list[str], folder: Path, at: At, then: Callable[[], object], pipes: dict[str, int]) -> None:
    newfound.sources.bank.SHARD_IMAGES = 8  # several shards of a few images
    DEFAULTS["projector_width"] = SMALL_WIDTH
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    folder = folder.resolve()
    os.chdir(folder)
    os.dup2(pipes["said"], 1)
    os.dup2(pipes["complained"], 2)
    count, busy = 0, False

    def seen(event: str, args: tuple[object, ...]) -> None:
        nonlocal count, busy
        if busy or (path := _changed(event, args, folder)) is None:
            return
        busy = True
        count += 1
        change = f"{event} {path}"
        os.write(pipes["changes"], f"{change}\n".encode("utf-8", "backslashreplace"))
        if at(change) if callable(at) else count == at:
            then()
        busy = False

    sys.addaudithook(seen)
    sys.argv = ["newfound", *words]
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    os._exit(status)


def _changed(event: str, args: tuple[object, ...], folder: Path) -> str | None:
    """The path that is about to change, if it lies in the folder."""
    if event == "open":
        path, mode, flags = args
        if not (flags & WRITING if isinstance(flags, int) else set(str(mode)) & set("wax+")):
            return None
    elif event in CHANGES:
        path = args[0]
    else:
        return None
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    full = os.path.join(os.fsencode(folder), os.fsencode(path))
    inside = os.fsencode(folder) + b"/"
    return os.fsdecode(full.removeprefix(inside)) if full.startswith(inside) else None
