"""Pretrained weights: from a file or the Hugging Face hub, into a module."""

import argparse
import hashlib
import logging
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from newfound.errors import UserError, option

WRAPPERS = ("teacher", "student", "state_dict", "model")  # in order of preference
PREFIXES = ("module.", "backbone.", "encoder.")
NAMES_SHOWN = 6


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors or PyTorch file, without running any code the file may contain.

    A checkpoint of a whole training run is unwrapped (the teacher is preferred), and prefixes such as
    ``module.backbone.`` are taken off the names.
    """
    check_weights_file(path)
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    state = _strip_prefixes(_unwrap(content))
    if not state:
        raise UserError(f"The weights file {path} holds no named tensors. Give a file that a state_dict was saved to.")
    return state


def check_weights_file(path: Path) -> None:
    """Raise unless there is something in it."""
    if not path.is_file():
        raise UserError(f"There is no weights file at {path}. Check the path.")
    if path.stat().st_size == 0:
        raise UserError(f"The weights file {path} is empty. Download it again.")


def load_weights(
    module: nn.Module,
    state: Mapping[str, Tensor],
    *,
    source: str,
    ignore: tuple[str, ...] = (),
    hint: str = "",
) -> None:
    """Load `state` into `module`; every name and shape must agree, or a UserError lists what does not.

    Entries of `state` whose name starts with one of `ignore` are left out. `source` (where the weights came
    from) and `hint` (what may help) appear in that error. A module built on the meta device takes over the
    tensors of `state`; any other keeps its own device and precision and copies the values.
    """
    state = {name: tensor for name, tensor in state.items() if not name.startswith(ignore)}
    wanted = module.state_dict()
    complaints = {
        "missing": sorted(wanted.keys() - state.keys()),
        "unexpected": sorted(state.keys() - wanted.keys()),
        "of another shape": [
            f"{name} expected {tuple(wanted[name].shape)} found {tuple(state[name].shape)}"
            for name in sorted(wanted.keys() & state.keys())
            if wanted[name].shape != state[name].shape
        ],
    }
    if any(complaints.values()):
        lines = [f"The weights in {source} do not fit this {type(module).__name__}."]
        lines += [f"  {what}: {_shorten(names)}" for what, names in complaints.items() if names]
        raise UserError("\n".join([*lines, *([hint] if hint else [])]))
    if broken := sorted(name for name, tensor in state.items() if not tensor.isfinite().all()):
        raise UserError(f"The weights in {source} are damaged: {_shorten(broken)} has numbers that are not finite.")
    state = {name: tensor.to(wanted[name].dtype) for name, tensor in state.items()}
    module.load_state_dict(state, assign=any(tensor.is_meta for tensor in wanted.values()))


def fetch_from_hub(repo_id: str, filename: str) -> Path:
    """Path of a file of a Hugging Face repository, downloaded unless it is already in the local cache."""
    import huggingface_hub

    try:
        if isinstance(cached := huggingface_hub.try_to_load_from_cache(repo_id, filename), str):
            return Path(cached)
        with _without_warnings_of("huggingface_hub"):  # two lines for each of five attempts
            return Path(huggingface_hub.hf_hub_download(repo_id, filename))
    # Any exception: the hub client raises those of its HTTP library, which differ from release to release,
    # and the remedy is the same for all of them.
    except Exception as error:
        raise UserError(
            f"Could not get {filename} of {repo_id} from the Hugging Face hub ({_first_line(error)}). "
            f"Download https://huggingface.co/{repo_id}/resolve/main/{filename} on another machine, copy it "
            f"here and pass {option('weights', 'PATH')}."
        ) from error


@contextmanager
def _without_warnings_of(package: str) -> Iterator[None]:
    logger = logging.getLogger(package)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def vit_state_from_file(path: Path) -> dict[str, Tensor]:
    """Read the weights of a vision transformer, under their official names even if timm saved them."""
    state = read_state_dict(path)
    if "reg_token" in state and "pos_embed" in state:
        # timm's models with registers: the position of CLS is already added to cls_token, so a zero position
        # in front restores the official layout and the very same sum.
        state["register_tokens"] = state.pop("reg_token")
        patches = state["pos_embed"]  # 1×N×D
        state["pos_embed"] = torch.cat([torch.zeros_like(patches[:, :1]), patches], dim=1)  # 1×(1+N)×D
    return state


def fingerprint(weights: nn.Module | Mapping[str, Tensor]) -> str:
    """SHA-256 of the names, shapes, types and values of all parameters and buffers.

    >>> fingerprint({"scale": torch.ones(2)})[:12]
    'cb0b06aa14e5'
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        # As bytes, because numpy lacks bfloat16; flat, because a scalar cannot be viewed as bytes.
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        # load_file only maps the file into memory: copy, so that the file can be replaced while in use.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except Exception as error:
        raise _unreadable(path, error) from error


def _read_pickle(path: Path) -> Any:
    # DINO's full checkpoints keep their command-line arguments beside the weights: plain data, no code.
    torch.serialization.add_safe_globals([argparse.Namespace])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PyTorch remarks about a file, the error says better
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise (_refused(path) if _contains_code(path, error) else _unreadable(path, error)) from error


def _contains_code(path: Path, error: Exception) -> bool:
    """Whether `error` means that PyTorch declined to run something, and not that the file is damaged."""
    if isinstance(error, pickle.UnpicklingError):
        with path.open("rb") as file:
            start = file.read(2)
        return start.startswith((b"\x80", b"PK"))  # the marks of a pickle, and of PyTorch's zip around one
    return "TorchScript" in str(error)


def _refused(path: Path) -> UserError:
    return UserError(
        f"The weights file {path} was refused, because it contains code rather than only tensors. If you "
        "trust it, load it with the program it came from and save its state_dict alone, best as .safetensors."
    )


def _unreadable(path: Path, error: Exception) -> UserError:
    # Not PyTorch's own text: it recommends to load the file with the protection off.
    return UserError(
        f"The weights file {path} is damaged or not a weights file ({type(error).__name__}). Download it again."
    )


def _unwrap(content: Any) -> dict[str, Tensor]:
    """Descend to the innermost state dict, and keep its tensors."""
    if not isinstance(content, Mapping):
        return {}
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), Mapping):
            return _unwrap(content[wrapper])
    return {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}


def _strip_prefixes(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take off the prefixes that all names share; the heads beside a ``backbone.`` are dropped."""
    body = [name for name in state if not name.split(".")[0].endswith("head")]
    for prefix in PREFIXES:
        if body and all(name.startswith(prefix) for name in body):
            return _strip_prefixes({name.removeprefix(prefix): state[name] for name in body})
    return state


def _shorten(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
