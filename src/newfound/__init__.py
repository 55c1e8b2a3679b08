"""newfound finds the categories nobody has named yet."""

from importlib.metadata import version

__version__ = version("newfound")
