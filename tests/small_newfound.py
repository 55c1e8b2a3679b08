"""The command with a small projector, for processes that no fixture reaches."""

from doubles import SMALL_PROJECTOR
from newfound import cli
from newfound.heads import Projector

if __name__ == "__main__":
    Projector.__init__.__defaults__ = SMALL_PROJECTOR
    cli.main()
