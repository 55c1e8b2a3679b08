"""How threads wait is settled before torch loads, unless the user has settled it."""

import ctypes
import os
import platform
import re
import subprocess
import sys
import threading

import pytest

from newfound import thread_waiting as sharing

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def what_openmp_reads() -> dict[str, str]:
    """What GNU OpenMP says of itself when a program imports newfound, then torch."""
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment = {**inherited, "OMP_DISPLAY_ENV": "VERBOSE"}
    words = [sys.executable, "-c", "import newfound, torch"]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return dict(re.findall(r"(\w+) = '?(\w+)'?", ended.stderr))


def test_threads_spin_briefly():
    read = what_openmp_reads()
    if "GOMP_SPINCOUNT" not in read:
        pytest.skip("this build of torch does not use GNU OpenMP")
    assert read["GOMP_SPINCOUNT"] == str(sharing.SPINS)


@pytest.mark.parametrize("chosen", [{"GOMP_SPINCOUNT": "77"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_what_the_user_has_set_stays(monkeypatch, chosen):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    sharing.spin_briefly()
    assert {name: os.environ[name] for name in SETTINGS if name in os.environ} == chosen


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
