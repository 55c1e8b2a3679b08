"""What the live page has beyond the report."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

SCRIPTS = ("asking.js", "saving.js", "selecting.js", "review.js")  # in this order, one scope


@cache
def script() -> str:
    """All scripts as one."""
    return "\n".join(_read(name) for name in SCRIPTS)


@cache
def style() -> str:
    """The style sheet."""
    return _read("review.css")


def _read(name: str) -> str:
    return (files("newfound") / "review" / "static" / name).read_text("utf-8")
