"""Several processes that train as one: `torchrun` starts them, each takes its share, the first one speaks and writes.

All run the same program. What can be shared out (building the bank, a batch, an evaluation pass) is, and put together
again in order; what must be one (choosing anchors, matching, the run folder) is asked of the first process, and the
others are told. Without torchrun there is one process, and everything here is the identity.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from newfound.errors import LostProcess, UserError

PATIENCE = timedelta(days=7)  # with a process that reads or builds for long: torchrun notices at once if one dies

P = ParamSpec("P")
T = TypeVar("T")


class _Place:
    """Which of how many processes this is."""

    rank, size = 0, 1


def is_first() -> bool:
    """Is this the process that speaks and writes?"""
    return _Place.rank == 0


def processes() -> int:
    """How many are at work together, now."""
    return _Place.size


def is_restarted() -> bool:
    """Has torchrun started the same command before (--max-restarts)? Then it continues what that one began."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Meet the other processes, if torchrun has started several; ``device`` is what the user asked for."""
    if not dist.is_available() or not dist.is_torchelastic_launched() or int(os.environ["WORLD_SIZE"]) == 1:
        yield
        return
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"several processes need --device cpu, or --device cuda and one GPU each; found {device}")
    backend = "gloo"
    if device != "cpu" and torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(_own_gpu())
    signal.signal(signal.SIGTERM, _end)
    with _company():
        dist.init_process_group(backend, timeout=PATIENCE)
    _Place.rank, _Place.size = dist.get_rank(), dist.get_world_size()
    yield
    wait_for_all()  # nobody hangs up while another one is still reading
    dist.destroy_process_group()
    _Place.rank, _Place.size = 0, 1


def _end(*_: object) -> None:
    raise KeyboardInterrupt("ended by torchrun, which does so when another process of the run has died")


def _own_gpu() -> int:
    number, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= gpus:
        raise UserError(f"there are more processes than GPUs here: use --nproc-per-node {gpus}")
    return number


@contextmanager
def _company() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostProcess(f"another process of this run has ended or cannot be reached ({error})") from error


# One process for all


def from_first(make: Callable[[], T]) -> T:
    """What the first process makes, in all of them. Meanwhile it works alone; an error of the user's ends all."""
    if processes() == 1:
        return make()
    outcome: list[Any] = [None, None]
    if is_first():
        try:
            with _alone():
                outcome[0] = make()
        except UserError as error:
            outcome[1] = error
    with _company():
        dist.broadcast_object_list(outcome)
    if outcome[1] is not None:
        outcome[1].of_first = not is_first()
        raise outcome[1]
    answer: T = outcome[0]
    return answer


def asked_of_first(method: Callable[P, T]) -> Callable[P, T]:
    """The answer is the first process's, in all of them."""

    @functools.wraps(method)
    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        return from_first(lambda: method(*args, **kwargs))

    return ask


def done_by_first(method: Callable[P, None]) -> Callable[P, None]:
    """Only the first process does it; the others continue without it."""

    @functools.wraps(method)
    def do(*args: P.args, **kwargs: P.kwargs) -> None:
        if is_first():
            with _alone():
                method(*args, **kwargs)

    return do


@contextmanager
def _alone() -> Iterator[None]:
    size, _Place.size = _Place.size, 1
    try:
        yield
    finally:
        _Place.size = size


# All for one


def share(n: int, rank: int | None = None) -> slice:
    """Which of n items are this process's, or another one's: as many as the others have, or one more or less."""
    rank = _Place.rank if rank is None else rank
    return slice(0, n) if processes() == 1 else slice(n * rank // processes(), n * (rank + 1) // processes())


def wait_for_all() -> None:
    """Until every process has come here."""
    if processes() > 1:
        with _company():
            dist.barrier()


@torch.no_grad()
def gathered(rows: Tensor, n: int) -> Tensor:
    """All n rows, in order, given each process's share of them."""
    if processes() == 1:
        return rows
    shares = [share(n, rank) for rank in range(processes())]
    most = max(part.stop - part.start for part in shares)
    padded = rows.new_zeros(most, *rows.shape[1:])  # a collective operation moves equal sizes
    padded[: len(rows)] = rows
    received = [torch.empty_like(padded) for _ in shares]
    with _company():
        dist.all_gather(received, padded)
    return torch.cat([block[: part.stop - part.start] for block, part in zip(received, shares, strict=True)])


class _WholeBatch(torch.autograd.Function):
    """Everyone computes the same loss of all rows, so the gradient of one's own rows is complete without asking."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, n: int) -> Tensor:
        ctx.n = n
        return gathered(rows, n)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient[share(ctx.n)], None


def whole_batch(rows: Tensor, n: int) -> Tensor:
    """2b×d of this process's images to 2n×d of all images of the batch: all first views, then all second views.

    The gradient flows to this process's rows; ``sum_gradients`` completes that of the parameters.
    """
    if processes() == 1:
        return rows
    pairs = rows.view(2, len(rows) // 2, -1).transpose(0, 1)  # b×2×d
    everyone: Tensor = _WholeBatch.apply(pairs, n)  # type: ignore[no-untyped-call]
    return everyone.transpose(0, 1).flatten(0, 1)


class _Summed(torch.autograd.Function):
    """Each process's result acts on its own rows only, so the gradient of the sum is the sum of all their gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        return _sum_of_all(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _sum_of_all(gradient)


def _sum_of_all(part: Tensor) -> Tensor:
    whole = part.detach().clone(memory_format=torch.contiguous_format)
    with _company():
        dist.all_reduce(whole)
    return whole


def summed(part: Tensor) -> Tensor:
    """The sum of what all processes hold, in each of them; the gradient comes back from all of them, too.

    For what each process then applies to its own rows, such as the mean of a batch. In a loss that every process
    computes of all rows, the gradient would count once per process.
    """
    if processes() == 1:
        return part
    whole: Tensor = _Summed.apply(part)  # type: ignore[no-untyped-call]
    return whole


@torch.no_grad()
def begin_alike(model: nn.Module) -> None:
    """The first process's weights for all: other processors may have drawn or averaged them with other last bits."""
    if processes() > 1:
        with _company():
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)


def sum_gradients(model: nn.Module) -> None:
    """After ``backward``: every process's gradient becomes that of the whole batch."""
    if processes() == 1:
        return
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    with _company():
        dist.all_reduce(flat)
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
