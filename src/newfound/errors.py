"""The exceptions a user is meant to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MUST = "{name} must be {what}; found {value}"
NO_VALUE = object()


class UserError(Exception):
    """Something the person running newfound can fix; its text says what was found and what to do.

    The command line prints the text alone and exits with status 2; Python callers catch it like any exception.
    """

    of_first = False  # of several processes: True where this one was only told of the first one's error


class LostProcess(UserError):
    """Another process of a run of several has ended."""


def as_option(name: str, value: object = NO_VALUE) -> str:
    """A setting as the command line spells it, with its value or without.

    >>> as_option("learning_rate"), as_option("views", "fresh"), as_option("resume", True)
    ('--learning-rate', '--views fresh', '--resume')
    """
    option = f"--{name.replace('_', '-')}"
    return option if value is NO_VALUE or value is True else f"{option} {value}"


def as_keyword(name: str, value: object = NO_VALUE) -> str:
    """The same as Python spells it.

    >>> as_keyword("learning_rate"), as_keyword("views", "fresh"), as_keyword("out", Path("run"))
    ('learning_rate=', "views='fresh'", "out='run'")
    """
    if value is NO_VALUE:
        return f"{name}="
    return f"{name}={(str(value) if isinstance(value, Path) else value)!r}"


class _Reader:
    """Who reads the messages of this process: callers from Python, unless the command line is at work."""

    at_command_line = False


@contextmanager
def for_the_command_line() -> Iterator[None]:
    """Messages speak of options in here, of keywords elsewhere."""
    before, _Reader.at_command_line = _Reader.at_command_line, True
    try:
        yield
    finally:
        _Reader.at_command_line = before


def at_command_line() -> bool:
    """Is it somebody at the command line who reads?"""
    return _Reader.at_command_line


def option(name: str, value: object = NO_VALUE) -> str:
    """A setting as whoever reads the message would write it.

    >>> with for_the_command_line():
    ...     option("resume", True), option("out")
    ('--resume', '--out')
    >>> option("resume", True), option("out")
    ('resume=True', 'out=')
    """
    return (as_option if _Reader.at_command_line else as_keyword)(name, value)


class SettingError(UserError):
    """A setting that cannot be used, in the words of whoever reads it.

    >>> str(SettingError("beta", 2, "is above 1"))
    'beta=2 is above 1'
    >>> str(SettingError("epochs", "ten", "a whole number", MUST))
    "epochs must be a whole number; found epochs='ten'"
    >>> with for_the_command_line():
    ...     str(SettingError("beta", 2, "is above 1")), str(SettingError("compile", True, "is for a GPU"))
    ('--beta 2 is above 1', '--compile is for a GPU')
    >>> SettingError("beta", 2, "is above 1").phrased(str)
    'beta 2 is above 1'
    """

    def __init__(self, name: str, value: object, what: str, pattern: str = "{name} {value} {what}") -> None:
        super().__init__(name, value, what, pattern)  # all of them: an exception travels to other processes
        self.name, self.value, self.what, self.pattern = name, value, what, pattern

    def phrased(self, spelt: Callable[[str], str]) -> str:
        """In one sentence, with the name as ``spelt`` gives it."""
        pattern = self.pattern.replace("{name} {value}", "{name}") if self.value is True else self.pattern
        return pattern.format(name=spelt(self.name), value=self.value, what=self.what)

    def __str__(self) -> str:
        if _Reader.at_command_line:
            return self.phrased(as_option)
        pattern = self.pattern.replace("{name} {value}", "{value}")
        return pattern.format(name=self.name, value=as_keyword(self.name, self.value), what=self.what)


def require(name: str, value: object, holds: bool, what: str) -> None:
    """Raise unless it ``holds``: NAME must be WHAT; found VALUE."""
    if not holds:
        raise SettingError(name, value, what, MUST)


def as_path(name: str, value: object) -> Path:
    """What was given as a path: a string will do.

    >>> as_path("out", 5)
    Traceback (most recent call last):
    newfound.errors.SettingError: out must be a path: a string, or a pathlib.Path; found out=5
    """
    if not isinstance(value, str | os.PathLike):
        raise SettingError(name, value, "a path: a string, or a pathlib.Path", MUST)
    return Path(value)
