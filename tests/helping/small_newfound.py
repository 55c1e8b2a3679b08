"""The command with a small projector, for processes that no fixture reaches."""

from helping.doubles import SMALL_WIDTH
from newfound.app import main as cli
from newfound.settings import DEFAULTS

if __name__ == "__main__":
    DEFAULTS["projector_width"] = SMALL_WIDTH
    cli.main()
