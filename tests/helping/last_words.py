"""Started several times over by test_distributed: every process has the same to say, and takes its time."""

import os
import sys
import time

from newfound.app.print_once import print_once


class Slow:
    """Standard error of a machine that is very busy."""

    def write(self, text: str) -> int:
        time.sleep(0.5)
        return sys.__stderr__.write(text)

    def flush(self) -> None:
        sys.__stderr__.flush()


if __name__ == "__main__":
    sys.stderr = Slow()
    print_once("something is wrong")
    os.write(1, f"{os.environ['RANK']} left\n".encode())  # in one piece: the others write there, too
