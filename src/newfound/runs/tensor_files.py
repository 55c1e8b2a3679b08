"""Files of tensors, whole or absent; no code in them is run."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from newfound.atomic import write_atomically
from newfound.errors import UserError

WRITE_AGAIN = "newfound resume RUN writes it again."


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write them."""
    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata)
    with write_atomically(path, "wb") as file:
        file.write(content)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file."""
    metadata = load_metadata(path)
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 - not a dict


def load_metadata(path: Path) -> dict[str, str]:
    """The metadata alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise damaged(path, error) from error


def damaged(path: Path, why: object) -> UserError:
    """The error for a file that is not as it was written."""
    what = WRITE_AGAIN
    if path.parent.name == "checkpoint":
        what = f"Delete it{' to train from the start.' if path.stem.startswith('stage') else ', and it is made again.'}"
    return UserError(f"{path} is damaged ({why}). {what}")
