"""Independent tasks on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def single_threaded_pool() -> Iterator[ThreadPoolExecutor]:
    """A pool of as many workers as torch has threads, in which each task computes with one thread.

    How torch divides one image among threads changes the last bits of its features; so a bank is the same whether a
    laptop or a server filled it, and many cores are used better this way too.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the workers' setting holds for some of the libraries below in all threads


def prefetched(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """``map`` in the pool, in order, never more than ``ahead`` results waiting."""
    waiting: list[Future[R]] = []
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > ahead:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()
