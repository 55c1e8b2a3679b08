"""The work of one of several processes: every one has the same to say, and takes its time."""

import os
import sys
import time
from typing import TextIO

from newfound.app.print_once import print_once


class Slow:
    """Standard error of a machine that is very busy."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        time.sleep(0.5)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def main() -> None:
    sys.stderr = Slow(sys.stderr)
    print_once("something is wrong")
    os.write(2, f"{os.environ['RANK']} left\n".encode())  # in one piece: the others write there, too
