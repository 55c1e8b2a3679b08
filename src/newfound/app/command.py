"""What every command has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import tyro

from newfound.app.options import description, with_present_names, without_the_rest_of_help
from newfound.screen import Screen


class Command(ABC):
    """A dataclass of options, and what they start.

    Heavy imports (torch and what needs it) belong inside `run`: ``--help`` and a typing slip answer at once.
    """

    examples: ClassVar[Mapping[str, str]] = {}  # what it is for: what one types
    former_names: ClassVar[Mapping[str, str]] = {}  # options that had another name, which is accepted without a word

    @classmethod
    def parsed(cls, words: Sequence[str], *, prog: str) -> Self:
        """The command with these options; leaves with help or with what is wrong."""
        words = without_the_rest_of_help(with_present_names(words, cls.former_names))
        return tyro.cli(cls, prog=prog, description=description(cls, cls.examples), args=words)

    @property
    def torchrun_device(self) -> str | None:
        """Where each of several processes computes; None: the command runs in one process only."""
        return None

    def after_stop(self) -> str:
        """How to continue, for whoever stopped it. Nothing heavy is imported: that may be what was stopped."""
        return ""

    @abstractmethod
    def run(self, screen: Screen) -> None:
        """Do it."""
