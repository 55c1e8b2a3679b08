"""The command with a small projector, for processes that no fixture reaches."""

from newfound import cli
from newfound.heads import Projector

if __name__ == "__main__":
    Projector.__init__.__defaults__ = (64, 32, 3)
    cli.main()
