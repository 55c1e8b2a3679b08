"""`python -m helping.small_newfound`: the command with a small projector, for torchrun."""

import sys

from helping.preloaded import small_newfound

if __name__ == "__main__":
    small_newfound(*sys.argv[1:])
