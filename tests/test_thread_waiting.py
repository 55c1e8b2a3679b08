"""While other programs want the processor, the threads of a training sleep instead of spinning."""

import ctypes
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from helping.patience import PATIENCE
from newfound import thread_waiting as sharing

has_threads = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="only Linux lists the threads of a process"
)


class Team:
    """In place of OpenMP's extra threads."""

    def __init__(self):
        self.is_there = False

    def start(self):
        self.is_there = True

    def end(self):
        self.is_there = False


class Machine:
    """A clock, and the time that threads have spent in the queue."""

    def __init__(self):
        self.seconds, self.queued = 100.0, {"1": 7 * 10**9}
        self.team = Team()
        self.adaptation = sharing.Adaptation(self.team, lambda: self.seconds, lambda: dict(self.queued))

    def run(self, seconds, **queueing):
        """Let time pass, in which threads queue for these shares of it."""
        self.seconds += seconds
        for thread, share in queueing.items():
            name = thread.removeprefix("thread_")
            self.queued[name] = self.queued.get(name, 0) + int(share * seconds * 1e9)
        self.adaptation.check()
        return self.team.is_there


def test_threads_sleep_while_they_queue_and_spin_afterwards():
    machine = Machine()
    assert not machine.run(1, thread_1=0.02)
    assert machine.run(1, thread_1=0.5, thread_2=0.5)
    assert machine.run(1, thread_1=0.25)  # between the two limits all stays as it is
    assert not machine.run(1, thread_1=0.02)
    assert not machine.run(1, thread_1=0.25)


def test_a_check_that_follows_soon_does_nothing():
    machine = Machine()
    assert not machine.run(0.1, thread_1=1.0)
    assert machine.run(sharing.PERIOD, thread_1=1.0)
    assert machine.run(0.1)


def test_a_thread_that_ends_takes_nothing_with_it():
    machine = Machine()
    machine.run(1, thread_1=0.5, thread_2=0.5)
    del machine.queued["1"]  # seven seconds of it
    assert machine.run(1, thread_2=0.5)


@has_threads
def test_extra_threads_come_and_leave():
    """With the OpenMP that torch uses."""
    start_team = sharing.openmp_of_torch()
    if start_team is None:
        pytest.skip("this build of torch does not use OpenMP")
    extra, before = sharing.ExtraThreads(start_team, threads_in_use=sharing._processors()), threads_now()
    extra.start()
    extra.start()  # once is enough
    assert len(threads_now() - before) == 2  # who keeps the team, and one more
    extra.end()
    extra.end()
    give_up = time.monotonic() + PATIENCE
    while not threads_now() <= before:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def threads_now() -> set[str]:
    return {path.name for path in sharing.OWN_THREADS.glob("*")}


@has_threads
def test_time_in_the_queue_is_read():
    queued = sharing.nanoseconds_queued()
    assert str(threading.get_native_id()) in queued
    assert min(queued.values()) >= 0


SAID = (
    "from newfound import thread_waiting; import torch; torch.set_num_threads(2); print(thread_waiting._adaptation())"
)


@has_threads
@pytest.mark.parametrize(
    ("chosen", "adapts"), [({}, True), ({"GOMP_SPINCOUNT": "77"}, False), ({"OMP_WAIT_POLICY": "ACTIVE"}, False)]
)
def test_what_the_user_has_chosen_stays(chosen, adapts):
    inherited = {name: value for name, value in os.environ.items() if name not in sharing.CHOSEN_BY_USER}
    ended = subprocess.run(
        [sys.executable, "-c", SAID], env={**inherited, **chosen}, capture_output=True, text=True, check=True
    )
    assert ("Adaptation" in ended.stdout) == adapts


has_turns = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in sharing.GET_AND_SET, reason="Linux on x86-64 or ARM has turns"
)


def attributes(thread: int = 0) -> tuple[int, ...]:
    """How the system schedules a thread."""
    get, _ = sharing.GET_AND_SET[platform.machine()]
    found = ctypes.create_string_buffer(sharing.ATTRIBUTES.size)
    assert ctypes.CDLL(None).syscall(get, thread, found, sharing.ATTRIBUTES.size, 0) == 0
    return sharing.ATTRIBUTES.unpack(found.raw)


@has_turns
def test_turns_are_short_and_nothing_else_changes():
    before = attributes()
    assert sharing.take_short_turns()
    after = attributes()
    assert after[:5] == before[:5]  # policy and nice among them
    assert after[5] in (sharing.TURN, before[5])  # Linux before 6.12 has no turns of one's own


@has_turns
def test_turns_are_short_in_threads_that_were_there_before(monkeypatch):
    """As OpenMP's are, once a bank was built."""
    monkeypatch.setattr(sharing, "TURN", 2 * sharing.TURN)  # no other test leaves that to a thread it starts
    done = threading.Event()
    worker = threading.Thread(target=done.wait)
    worker.start()
    try:
        sharing.take_short_turns()
        assert worker.native_id is not None
        assert attributes(worker.native_id) == attributes()
    finally:
        done.set()
        worker.join()


def test_another_system_is_not_asked(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not sharing.take_short_turns()
