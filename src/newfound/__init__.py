"""newfound finds the categories nobody has named yet."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from newfound.errors import UserError

if TYPE_CHECKING:
    from newfound.discovery import discover
    from newfound.estimator import CategoryDiscovery
    from newfound.finished import Discovery
    from newfound.runs.results import read_results
    from newfound.screen import Screen
    from newfound.settings import Settings

__version__ = version("newfound")
__all__ = [
    "CategoryDiscovery", "Discovery", "Screen", "Settings", "UserError", "__version__", "discover", "read_results",
]  # fmt: skip
LOADED_WHEN_ASKED_FOR = {
    "CategoryDiscovery": "newfound.estimator",
    "Discovery": "newfound.finished",
    "Screen": "newfound.screen",
    "Settings": "newfound.settings",
    "discover": "newfound.discovery",
    "read_results": "newfound.runs.results",
}


def __getattr__(name: str) -> Any:
    """`discover` brings torch with it; whoever only asks for --help, or for the losses, need not wait for all that."""
    if name not in LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module 'newfound' has no attribute {name!r}")
    return getattr(import_module(LOADED_WHEN_ASKED_FOR[name]), name)
