"""The command `newfound`: parse, run, stop."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import reduce
from importlib.metadata import version
from operator import or_
from typing import Annotated, Any

import tyro

from newfound.app.command import Command
from newfound.app.commands import COMMANDS
from newfound.errors import LostProcess, UserError
from newfound.screen import Screen, shown
from newfound.text import did_you_mean


def main() -> None:
    """Entry point; errors a person can fix are one sentence, never a traceback."""
    try:
        _run_or_stop()
    except KeyboardInterrupt:  # another one, while the first was being answered
        sys.exit(130)


def _run_or_stop() -> None:
    command: Command | None = None
    try:
        command = parsed(sys.argv[1:]) if not _by_torchrun() else _parsed_once(sys.argv[1:])
        _run(command)
    except LostProcess as error:
        _stop(f"{error}. {_after_stop(command)}", 1)
    except UserError as error:
        _stop(str(error), 2, of_first=error.of_first)
    except BrokenPipeError:  # `newfound ... | head` has seen enough; standard output must not be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _stop(f"{error}. What was written before is kept. {_after_stop(command)}".rstrip(), 2)
    except KeyboardInterrupt as stop:
        _stop(f"{str(stop) or 'stopped'}. {_after_stop(command)}".rstrip(), 130)


def _after_stop(command: Command | None) -> str:
    return "" if command is None else command.after_stop()


def parsed(words: Sequence[str]) -> Command:
    """The command that these words mean; where they mean none, leave with help or with what is wrong."""
    if words and words[0] == "--version":
        print(f"newfound {version('newfound')}")
        sys.exit(0)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]].parsed(words[1:], prog=f"newfound {words[0]}")
    if words and not words[0].startswith("-"):
        there = f"{did_you_mean(words[0], COMMANDS)}; there are {', '.join(COMMANDS)}"
        raise UserError(f"there is no command {words[0]}{there}. newfound COMMAND --help shows the options of one.")
    overview: Any = reduce(or_, (_in_short(name, kind) for name, kind in COMMANDS.items()))
    command: Command = tyro.cli(
        overview, prog="newfound", description="newfound finds the categories nobody has named yet.", args=words
    )
    return command


def _in_short(name: str, kind: type[Command]) -> Any:
    first_paragraph = (kind.__doc__ or "").partition("\n\n")[0]
    return Annotated[kind, tyro.conf.subcommand(name, description=first_paragraph)]


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _parsed_once(words: Sequence[str]) -> Command:
    """The same in each of several processes; the first one alone shows --help and typing slips."""
    from newfound.app.print_once import first_has_printed, wait_for_first

    if os.environ["RANK"] == "0":
        try:
            return parsed(words)
        except SystemExit:
            first_has_printed()
            raise
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return parsed(words)
        except SystemExit:
            wait_for_first()
            raise


def _run(command: Command) -> None:
    """Alone, or as one of several processes that torchrun has started; the first one prints for all."""
    if not _by_torchrun():
        command.run(Screen())
        return
    from newfound.distributed import is_first, joined

    if command.torchrun_device is None:
        raise UserError("torchrun is for newfound discover, resume, bench and study")
    with joined(command.torchrun_device):
        command.run(Screen(quiet=not is_first()))
    sys.stdout.flush()
    os._exit(0)  # all is written; threads of the processes' connections may abort an orderly end


def _stop(message: str, status: int, *, of_first: bool = False) -> None:
    """Leave with a message; of several processes one prints it, the first one where it is ``of_first``."""
    if _by_torchrun():
        from newfound.app.print_once import print_once, wait_for_first

        wait_for_first() if of_first and os.environ["RANK"] != "0" else print_once(shown(message))
    else:
        print(f"newfound: {shown(message)}", file=sys.stderr)
    sys.exit(status)
