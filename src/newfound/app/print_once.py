"""The error that ends a job of several processes is printed once, whatever the timing.

Processes often fail together and for the same reason, and torchrun ends the others as soon as it sees one of them gone.
So before a process leaves with a message it claims the right to print in the store that torchrun keeps for the job.
Whoever is first prints; the others leave after that, so that nobody is ended in the middle of a sentence.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from datetime import timedelta

from torch._C._distributed_c10d import Store, TCPStore

PATIENCE = timedelta(minutes=5)  # with another process that has claimed the right to print, on a busy machine


def print_once(message: str) -> None:
    """Print to standard error, unless another process of the job has or does; return when it is printed."""
    _ignore_sigterm()
    rank = os.environ["RANK"]
    text = message if rank == "0" else f"process {rank} on {platform.node()}: {message}"
    try:
        store = _store()
        mine = store.add(_key("claimed"), 1) == 1
        if not mine:
            store.wait([_key("printed")], PATIENCE)
            return
    except RuntimeError:  # no store, or whoever claimed it died: better twice than never
        store = None
    print(f"newfound: {text}", file=sys.stderr, flush=True)
    if store is not None:
        _mark_printed(store)


def first_has_printed() -> None:
    """The first process has printed the message itself."""
    _ignore_sigterm()
    try:
        _mark_printed(_store())
    except RuntimeError:
        return  # nobody can be waiting for it


def wait_for_first() -> None:
    """Return when the first process has printed what this one would print, too."""
    _ignore_sigterm()
    try:
        _store().wait([_key("printed")], PATIENCE)
    except RuntimeError:
        return  # it died on the way, which torchrun reports


def _ignore_sigterm() -> None:
    """torchrun sends it when another process is gone, half a minute before it kills; this one is leaving by itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _mark_printed(store: Store) -> None:
    store.add(_key("claimed"), 1)
    store.set(_key("printed"), "yes")


def _store() -> Store:
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=30), wait_for_workers=False)


def _key(what: str) -> str:
    return f"newfound/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{what}"
