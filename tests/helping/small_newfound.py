"""The command with a small projector, for processes that no fixture reaches."""

from helping.doubles import SMALL_PROJECTOR
from newfound.app import main as cli
from newfound.training.heads import Projector

if __name__ == "__main__":
    Projector.__init__.__defaults__ = SMALL_PROJECTOR
    cli.main()
