"""The exceptions a user is meant to read."""

from __future__ import annotations

from collections.abc import Callable


class UserError(Exception):
    """Something the person running newfound can fix; its text says what was found and what to do.

    The command line prints the text alone and exits with status 2; Python callers catch it like any exception.
    """

    of_first = False  # of several processes: True where this one was only told of the first one's error


class LostProcess(UserError):
    """Another process of a run of several has ended."""


def as_option(name: str) -> str:
    """A setting as the command line spells it.

    >>> as_option("learning_rate")
    '--learning-rate'
    """
    return f"--{name.replace('_', '-')}"


class SettingError(UserError):
    """A setting that cannot be used. Whoever shows it spells the setting's name.

    >>> str(SettingError("beta", 2, "is above 1"))
    '--beta 2 is above 1'
    >>> SettingError("beta", 2, "is above 1").phrased(str)
    'beta 2 is above 1'
    >>> str(SettingError("compile", True, "is for a GPU"))  # a switch has no value on the command line
    '--compile is for a GPU'
    """

    def __init__(self, name: str, value: object, what: str, pattern: str = "{name} {value} {what}") -> None:
        super().__init__(name, value, what, pattern)  # all of them: an exception travels to other processes
        self.name, self.value, self.what, self.pattern = name, value, what, pattern

    def phrased(self, spelt: Callable[[str], str]) -> str:
        """In one sentence, with the name as ``spelt`` gives it."""
        pattern = self.pattern.replace("{name} {value}", "{name}") if self.value is True else self.pattern
        return pattern.format(name=spelt(self.name), value=self.value, what=self.what)

    def __str__(self) -> str:
        return self.phrased(as_option)


def require(name: str, value: object, holds: bool, what: str) -> None:
    """Raise unless it ``holds``: NAME must be WHAT; found VALUE."""
    if not holds:
        raise SettingError(name, value, what, "{name} must be {what}; found {value}")
