"""A training shares the machine with other programs: how its threads wait for each other, and how soon they resume.

Threads that divide a matrix product between them meet a thousand times a second. GNU OpenMP lets the one that is early
spin for milliseconds, which is the fastest way to wait where nothing else runs. Where other programs want the processor
too, it spins away its own share of time while the thread it waits for is in the queue. So a training checks twice a
second how long its threads have queued for a processor, and while that is more than a little, they sleep at once
instead of spinning. On Linux they also ask for short turns, which come sooner. Neither changes a result.

GNU OpenMP reads how long to spin when it is loaded, and offers no function to change that. But it hardly spins while it
manages more threads than there are processors. So an extra team of threads is kept, which does nothing but make the
number larger.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
PERIOD = 0.5  # seconds between two checks
CROWDED, QUIET = 0.3, 0.2  # seconds of queueing per second, all threads together: alone 0.02, beside two programs 1
TURN = 100_000  # nanoseconds, the shortest that Linux grants
GET_AND_SET = {"x86_64": (315, 314), "aarch64": (275, 274)}  # numbers of the system calls, which libc does not name
ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
ORDINARY = (0, 3)  # the policies SCHED_OTHER and SCHED_BATCH, in which runtime is the length of a turn
OWN_THREADS = Path("/proc/self/task")


# Spin or sleep


def adapt_waiting() -> None:
    """To be called often, after every step of a training: has threads sleep while other programs want the processor,
    and spin again afterwards. Does nothing where the user has chosen, or where there is no GNU OpenMP."""
    adaptation = _adaptation()
    if adaptation is not None:
        adaptation.check()


@cache
def _adaptation() -> Adaptation | None:
    import torch

    chosen = any(name in os.environ for name in CHOSEN_BY_USER)
    if chosen or torch.get_num_threads() == 1 or not any(OWN_THREADS.glob("*/schedstat")):
        return None
    start_team = openmp_of_torch()
    return None if start_team is None else Adaptation(ExtraThreads(start_team, torch.get_num_threads()))


class Adaptation:
    """Follows how long the threads of this process queue, and decides when they sleep."""

    def __init__(
        self,
        extra: ExtraThreads,
        clock: Callable[[], float] = time.monotonic,
        queued: Callable[[], dict[str, int]] | None = None,
    ) -> None:
        self._extra, self._clock, self._queued = extra, clock, queued or nanoseconds_queued
        self._checked, self._before = clock(), self._queued()

    def check(self) -> None:
        """At most once per period."""
        now = self._clock()
        if now - self._checked < PERIOD:
            return
        queued = self._queued()
        more = sum(time - self._before.get(thread, 0) for thread, time in queued.items())
        share = more / 1e9 / (now - self._checked)
        self._checked, self._before = now, queued
        if share > CROWDED:
            self._extra.start()
        elif share < QUIET:
            self._extra.end()


def nanoseconds_queued() -> dict[str, int]:
    """How long each thread of this process was ready to run and had no processor, since it was started."""
    threads = ((thread.name, _read_queued(thread)) for thread in OWN_THREADS.glob("*"))
    return {name: queued for name, queued in threads if queued is not None}


def _read_queued(thread: Path) -> int | None:
    try:
        return int((thread / "schedstat").read_text().split()[1])
    except OSError:  # it has ended meanwhile
        return None


class ExtraThreads:
    """A team of OpenMP's threads that has nothing to do; it sleeps until it is ended."""

    def __init__(self, start_team: Any, threads_in_use: int) -> None:
        self._start_team = start_team
        self._size = max(2, _processors() - threads_in_use + 2)  # one more than there are processors, all together
        self._end: threading.Event | None = None

    def start(self) -> None:
        """Has OpenMP's threads sleep rather than spin; does nothing the second time."""
        if self._end is not None:
            return
        self._end, ready = threading.Event(), threading.Event()
        threading.Thread(target=self._keep_team, args=(ready, self._end), daemon=True).start()
        ready.wait()

    def end(self) -> None:
        """Has them spin again."""
        if self._end is not None:
            self._end.set()
            self._end = None

    def _keep_team(self, ready: threading.Event, end: threading.Event) -> None:
        """A team lives as long as the thread that made it."""
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of a null pointer: no work
        self._start_team(nothing, None, ctypes.c_uint(self._size), ctypes.c_uint(0))
        ready.set()
        end.wait()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def openmp_of_torch() -> Any | None:
    """The function of OpenMP, as torch uses it, that starts a team; None where torch was built without."""
    import torch

    library = ctypes.CDLL(
        torch._C.__file__
    )  # finds what it depends on as well; other packages bring copies of their own
    return getattr(library, "GOMP_parallel", None)


# Turns


def take_short_turns() -> bool:
    """For the threads of this process, those that OpenMP has started already among them, and all that they start from
    now on. False where the system has no such thing, which is no harm: Linux before 6.12 takes the wish and does
    nothing, other systems are not asked."""
    numbers = GET_AND_SET.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        return False
    threads = [int(task.name) for task in OWN_THREADS.glob("*")] or [0]  # 0 is the one that asks
    granted = [_shorten_turns(thread, *numbers) for thread in threads]
    return any(granted)


def _shorten_turns(thread: int, get: int, set_: int) -> bool:
    """False where it is not to be had, or where the thread has ended meanwhile."""
    call = ctypes.CDLL(None).syscall
    found = ctypes.create_string_buffer(ATTRIBUTES.size)
    if call(get, thread, found, ATTRIBUTES.size, 0) != 0:
        return False
    _, policy, flags, nice, priority, _, deadline, period = ATTRIBUTES.unpack(found.raw)
    if policy not in ORDINARY:  # whoever chose another one has reasons
        return False
    wanted = ATTRIBUTES.pack(ATTRIBUTES.size, policy, flags, nice, priority, TURN, deadline, period)
    return bool(call(set_, thread, ctypes.create_string_buffer(wanted, ATTRIBUTES.size), 0) == 0)
