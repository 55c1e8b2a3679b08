"""Where runs lie. It needs nothing but the file system: a command that was stopped while it loads can still ask."""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path

from newfound.errors import UserError, at_command_line, option

CONFIG = "config.toml"
ROUND = "round.json"
LAST_RESULTS = ("assignments.csv", "model.json")
NEARBY = 5  # runs in a message, at most


def run_place(folder: Path, after: Path | None, out: Path | None) -> Path:
    """The run folder of a command: ``out``, or a name made of the images' folder, or of the run that it continues."""
    return out or (default_out(folder) if after is None else next_out(after))


def default_out(folder: Path) -> Path:
    """Beside where the command is run, named after the images."""
    return Path(f"newfound-{folder.resolve().name}")


def next_out(run: Path) -> Path:
    """RUN-2 after a first run, one more after a run that itself continues one."""
    run = run if run.name not in ("", "..") else run.resolve()
    name, dash, number = run.name.rpartition("-")
    if (run / ROUND).is_file() and dash and number.isdecimal():
        return run.with_name(f"{name}-{int(number) + 1}")
    return run.with_name(f"{run.name}-2")


def seed_place(run: Path, seed: int) -> Path:
    """Where one of several seeds of a run lies."""
    return run / "seeds" / str(seed)


def is_begun(run: Path) -> bool:
    """Has a run begun here?"""
    return os.path.isfile(run / CONFIG)


def is_finished(run: Path) -> bool:
    """Are its results here?"""
    return is_begun(run) and all(os.path.isfile(run / name) for name in LAST_RESULTS)


def typed(command: str, run: Path) -> str:
    """What to type for a command on a run.

    >>> typed("review", Path("my run"))
    "newfound review 'my run'"
    """
    return f"newfound {command} {shlex.quote(str(run))}"


def resuming_words(run: Path) -> str:
    """What to type, or to pass, for a run to be resumed.

    >>> resuming_words(Path("run"))
    'discover with the same folder, resume=True'
    """
    return typed("resume", run) if at_command_line() else f"discover with the same folder, {option('resume', True)}"


def reviewing_words(run: Path) -> str:
    """What to type, or to write, to look through a finished run.

    >>> reviewing_words(Path("run"))
    "newfound.Discovery.load('run').review()"
    """
    return typed("review", run) if at_command_line() else f"newfound.Discovery.load({str(run)!r}).review()"


def no_run(run: Path, remedy: str) -> UserError:
    """The error where a run to resume is named and there is none; it names runs nearby."""
    nearby = runs_nearby(run)
    names = ", ".join(map(str, nearby[:NEARBY])) + (", …" if len(nearby) > NEARBY else "")
    parts = [f"{run}: there is no run to resume here.", f"Runs nearby: {names}." if nearby else "", remedy]
    return UserError(" ".join(filter(None, parts)))


def runs_nearby(run: Path) -> list[Path]:
    """Runs in the same folder, and in the current one; those of similar names first."""
    found = {path.resolve(): path for place in (Path(), run.parent) for path in _runs_in(place)}
    return sorted(found.values(), key=lambda path: -difflib.SequenceMatcher(None, path.name, run.name).ratio())


def _runs_in(place: Path) -> list[Path]:
    try:
        return [path for path in sorted(place.iterdir()) if is_begun(path) and (path / "checkpoint").is_dir()]
    except OSError:  # no such folder, or none that may be read
        return []
