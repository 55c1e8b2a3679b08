"""A training shares the machine with other programs: how its threads wait for each other, and how soon they resume.

Threads that divide a matrix product between them meet a thousand times a second. By default GNU OpenMP lets the one
that is early spin for milliseconds. Where other programs want the processor too, it spins away its own share of time
while the one it waits for is in the queue. So threads spin for a fraction of a millisecond, then sleep; and on Linux
they ask for short turns, which come sooner. Neither changes a result.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

SPINS = 10_000  # 0.2 to 0.5 ms, by the maker of the processor
TURN = 100_000  # nanoseconds, the shortest that Linux grants
GET_AND_SET = {"x86_64": (315, 314), "aarch64": (275, 274)}  # numbers of the system calls, which libc does not name
ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
ORDINARY = (0, 3)  # the policies SCHED_OTHER and SCHED_BATCH, in which runtime is the length of a turn


def spin_briefly() -> None:
    """Takes effect only before torch is loaded. Whoever has set how threads wait keeps it."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


def take_short_turns() -> bool:
    """For the threads of this process, those that OpenMP has started already among them, and all that they start from
    now on. False where the system has no such thing, which is no harm: Linux before 6.12 takes the wish and does
    nothing, other systems are not asked."""
    numbers = GET_AND_SET.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        return False
    threads = [int(task.name) for task in Path("/proc/self/task").glob("*")] or [0]  # 0 is the one that asks
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
