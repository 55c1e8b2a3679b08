"""newfound finds the categories nobody has named yet."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from newfound.errors import UserError
from newfound.settings import Settings
from newfound.thread_waiting import spin_briefly

if TYPE_CHECKING:
    from newfound.discovery import Discovery, discover
    from newfound.estimator import CategoryDiscovery

__version__ = version("newfound")
spin_briefly()  # here, because torch must not be loaded yet
__all__ = ["CategoryDiscovery", "Discovery", "Settings", "UserError", "__version__", "discover"]


def __getattr__(name: str) -> Any:
    """`discover` brings torch with it; whoever only asks for --help need not wait for that."""
    if name in ("Discovery", "discover"):
        from newfound import discovery

        return getattr(discovery, name)
    if name == "CategoryDiscovery":
        from newfound.estimator import CategoryDiscovery

        return CategoryDiscovery
    raise AttributeError(f"module 'newfound' has no attribute {name!r}")
