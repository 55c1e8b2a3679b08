"""The command `newfound`: parse, run, stop."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version

from newfound.app.command import Command
from newfound.app.commands import COMMANDS
from newfound.app.overview import overview
from newfound.errors import LostProcess, UserError, for_the_command_line
from newfound.screen import Screen, shown
from newfound.text import did_you_mean


def main() -> None:
    """Entry point; errors a person can fix are one sentence, never a traceback."""
    try:
        with for_the_command_line():
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
        _stop(f"{error}. Files already written are kept. {_after_stop(command)}".rstrip(), 2)
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
        with _coloured_if_wanted():
            return COMMANDS[words[0]].parsed(words[1:], prog=f"newfound {words[0]}")
    if words and not words[0].startswith("-"):
        there = f"{did_you_mean(words[0], COMMANDS)}; there are {', '.join(COMMANDS)}"
        raise UserError(f"there is no command {words[0]}{there}. newfound --help describes them.")
    if words and words[0] not in ("-h", "--help"):
        raise UserError(
            f"{words[0]} must follow a command: newfound COMMAND {words[0]}. newfound --help lists the commands."
        )
    print(overview(COMMANDS), file=sys.stdout if words else sys.stderr)
    sys.exit(0 if words else 2)


@contextmanager
def _coloured_if_wanted() -> Iterator[None]:
    """NO_COLOR is not known to the library that shows --help, but a terminal without colours is."""
    if not os.environ.get("NO_COLOR"):
        yield
        return
    terminal = os.environ.get("TERM", "")
    os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        os.environ["TERM"] = terminal


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
        raise UserError("torchrun works with newfound discover, resume, bench and study only")
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
