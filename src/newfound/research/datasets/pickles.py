"""CIFAR's files are Python pickles, which may run any program when they are opened. Here nothing is run.

A pickle is a small program for a stack machine. This machine knows the few instructions that lists, texts, numbers
and arrays of bytes need, and refuses every other: it neither imports nor calls anything that a file names.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from newfound.errors import UserError

_TEXTS = {"SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "SHORT_BINUNICODE", "BINUNICODE"}
_NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NO_EFFECT = ("PROTO", "FRAME", "STOP")

# The names that a pickled array mentions. Each stands for what is done here, not for the function so called.
_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "kind of array",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}


class _Refused(Exception):
    """An instruction that a file of images has no need of."""


class _Name:
    """A function or class that the file mentions, by its meaning in `_NAMES`; not a thing that can be called."""

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning


class _Bytes:
    """The only dtype there is: unsigned bytes."""


class _Array:
    """An array of bytes; empty until its state is read."""

    def __init__(self) -> None:
        self.value: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(0, np.uint8)


def read_pickle(stream: BinaryIO, place: str) -> dict[str, Any]:
    """Read a dictionary of lists, texts, numbers and byte arrays from a pickle of protocol 2 to 4, safely.

    `place` names the file in errors. Anything that is not such data is a `UserError`.

    >>> import io, pickle
    >>> read_pickle(io.BytesIO(pickle.dumps({b"labels": [3, 1]}, protocol=2)), "a file")
    {'labels': [3, 1]}
    >>> class Trap:
    ...     def __reduce__(self):
    ...         return eval, ("1 / 0",)
    >>> read_pickle(io.BytesIO(pickle.dumps({"data": Trap()}, protocol=2)), "a file")
    Traceback (most recent call last):
    newfound.errors.UserError: a file: refused, as it is not plain data: it mentions __builtin__.eval; nothing was run
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.step(opcode.name, argument)
        return _plain(machine.stack.pop())
    except _Refused as refused:
        raise UserError(f"{place}: refused, as it is not plain data: it {refused}; nothing was run") from None
    except (MemoryError, RecursionError, OSError):
        raise
    except Exception as error:  # damaged bytes make the machine stumble in almost any way
        raise UserError(
            f"{place}: not a readable pickle ({type(error).__name__}: {error}); download it again"
        ) from error


def _plain(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Refused(f"holds a {type(value).__name__} where a dictionary should be")
    texts = {key.decode("latin-1") if isinstance(key, bytes) else key: entry for key, entry in value.items()}
    return {str(key): entry.value if isinstance(entry, _Array) else entry for key, entry in texts.items()}


class _Machine:
    """The stack, the marks on it, and the memo of values used again."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.other: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self.marks.append(len(self.stack)),
            "BINPUT": self.put,
            "LONG_BINPUT": self.put,
            "MEMOIZE": lambda _: self.put(len(self.memo)),
            "BINGET": lambda number: self.stack.append(self.memo[number]),
            "LONG_BINGET": lambda number: self.stack.append(self.memo[number]),
            "APPEND": lambda _: self.append(self.pop(1)),
            "APPENDS": lambda _: self.append(self.pop_to_mark()),
            "SETITEM": lambda _: self.set_items(self.pop(2)),
            "SETITEMS": lambda _: self.set_items(self.pop_to_mark()),
            "TUPLE": lambda _: self.stack.append(tuple(self.pop_to_mark())),
            "GLOBAL": self.mention,
            "STACK_GLOBAL": lambda _: self.mention(" ".join(self.pop(2))),
            "REDUCE": lambda _: self.reduce(*self.pop(2)),
            "BUILD": lambda _: self.build(*self.pop(1)),
        }

    def step(self, name: str, argument: Any) -> None:
        if name in _TEXTS or name in _NUMBERS:
            self.stack.append(argument)
        elif name in self.other:
            self.other[name](argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            self.stack.append(tuple(self.pop(_TUPLES[name])))
        elif name not in _NO_EFFECT:
            raise _Refused(f"has the instruction {name}")

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise _Refused("takes more than there is")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def pop_to_mark(self) -> list[Any]:
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def put(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def append(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _Refused("appends to what is not a list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise _Refused("sets entries of what is not a dictionary")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def mention(self, name: str) -> None:
        if name not in _NAMES:
            raise _Refused(f"mentions {name.replace(' ', '.')[:100]}")
        self.stack.append(_Name(_NAMES[name]))

    def reduce(self, function: Any, arguments: Any) -> None:
        """Where pickle would call a function: three calls are known, and answered without making them."""
        meaning = function.meaning if isinstance(function, _Name) else None
        if meaning == "array":
            self.stack.append(_Array())
        elif meaning == "dtype" and arguments[0] in ("u1", "|u1", b"u1", b"|u1"):
            self.stack.append(_Bytes())
        elif meaning == "encode" and arguments[1] == "latin1":
            self.stack.append(arguments[0].encode("latin-1"))
        else:
            raise _Refused(f"calls for {meaning or 'something'} other than an array of bytes")

    def build(self, state: Any) -> None:
        """Where pickle would set an object's state: arrays take theirs, and a dtype's says nothing new."""
        target = self.stack[-1]
        if isinstance(target, _Array):
            target.value = _array(*state)
        elif not isinstance(target, _Bytes):
            raise _Refused("sets the state of what is not an array")


def _array(version: int, shape: tuple[int, ...], dtype: object, by_column: bool, content: str | bytes) -> Any:
    if not isinstance(dtype, _Bytes) or by_column:
        raise _Refused("holds an array of another kind than rows of bytes")
    data = content.encode("latin-1") if isinstance(content, str) else content  # Python 2 wrote bytes as text
    if any(side < 0 for side in shape) or math.prod(shape) != len(data):
        raise _Refused(f"holds an array of {len(data):,} bytes that says its shape is {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape)
