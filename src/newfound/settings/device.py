"""Which device a run computes on."""

from __future__ import annotations

from newfound.errors import SettingError


def resolve_device(wanted: str) -> str:
    """The device that ``device`` means on this machine."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).item()  # a device without memory gives none back
    except (RuntimeError, AssertionError, TypeError) as error:
        raise SettingError("device", wanted, f"cannot be used here: {str(error).splitlines()[0]}") from error
    return wanted
