"""Every setting of a run: the Python API, the command line and config.toml are this one dataclass."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import tyro

from newfound.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FULL_EPOCHS, FULL_WARMUP_EPOCHS = 200, 30  # the paper's
QUICK_EPOCHS = 60

# How an option that may be left out reads in --help
UNSET_FILE = tyro.conf.arg(metavar="FILE", help_behavior_hint="")
UNSET_FOLDER = tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")
UNSET_NUMBER = tyro.conf.arg(metavar="N", help_behavior_hint="")


@dataclass(frozen=True)
class Settings:
    """How to train. The defaults are SimGCD's published values unless a line says otherwise."""

    classes: int
    """How many classes there are in all: the known ones and those to discover."""
    method: Literal["simgcd"] = "simgcd"
    """What is learnt."""
    start: Literal["clusters", "random"] = "clusters"
    """Where the classifier starts. clusters: means of the labelled images, and k-means centres of the frozen features
    for the new classes. random: as published."""
    seed: int = 0
    """Same seed, same folder, same machine: the same bytes in assignments.csv."""
    epochs: Annotated[int | None, UNSET_NUMBER] = None
    """Passes over the images. Unset: 200 as published on a GPU, 60 (the quick recipe) on a CPU."""
    backbone: str = "efficientnet_lite0"
    """efficientnet_lite0 comes with newfound. dino_vitb16, dino_vits16, dino_vitb8, dino_vits8, dinov2_vits14,
    dinov2_vitb14, dinov2_vits14_reg, dinov2_vitb14_reg are fetched from the hub unless --weights is given."""
    weights: Annotated[Path | None, UNSET_FILE] = None
    """A local file with the backbone's weights (.safetensors, or .pth without code in it)."""
    grad_from_block: int = 11
    """ViT only: the first block that is trained, 0 to 11. Those below it are frozen."""
    image_size: int = 224
    """Side of the square the backbone sees, in pixels."""
    views: Literal["bank", "fresh"] = "bank"
    """bank: a few views of each image go through the frozen trunk once and are kept on disk.
    fresh: new random views in every step, as in the paper; many times slower."""
    bank_views: int = 8
    """Training views per image in the bank."""
    bank_dir: Annotated[Path | None, UNSET_FOLDER] = None
    """Where banks are kept and shared between runs. Unset: newfound/banks in your cache folder."""
    batch_size: int = 128
    """Images per step; a smaller folder is one batch."""
    learning_rate: float = 0.1
    """At the start; it falls along a cosine, once per epoch, towards a thousandth."""
    momentum: float = 0.9
    rho: float = 0.0
    """Radius of the loss sharpness penalty (the paper's LSP, 0.05 there); 0: none. Doubles the time of a step."""
    weight_decay: float = 5e-5
    """Not on biases and other 1-D tensors."""
    entropy_weight: Annotated[float | None, UNSET_NUMBER] = None
    """Weight of the mean-entropy term (the paper's epsilon), which keeps classes from staying empty. Unset: log10 of
    the number of classes, at least 1. Published: 1 for CIFAR-10, ImageNet-100, Cars, Aircraft, Herbarium; 2 for CUB;
    4 for CIFAR-100."""
    supervised_weight: float = 0.35
    """Weight of the supervised parts (the paper's lambda); the others get the rest."""
    student_temperature: float = 0.1
    teacher_temperature_start: float = 0.07
    teacher_temperature: float = 0.04
    """Sharpness of the targets, reached in a straight line from teacher_temperature_start."""
    warmup_epochs: Annotated[int | None, UNSET_NUMBER] = None
    """Epochs until then. Unset: 30 as published, or half of a run shorter than 60."""
    info_nce_temperature: float = 1.0
    """As in the released code; the paper's text has it the other way round (0.07 here, 1.0 below)."""
    sup_con_temperature: float = 0.07
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto takes a GPU if there is one."""

    def resolved(self, n_known: int, n_images: int) -> Settings:
        """The same settings with everything that was left open decided for this data; raises if they make no sense."""
        device = resolve_device(self.device)
        epochs = self.epochs
        if epochs is None:
            epochs = QUICK_EPOCHS if device == "cpu" else FULL_EPOCHS
        warmup = self.warmup_epochs
        if warmup is None:
            warmup = max(1, min(FULL_WARMUP_EPOCHS, epochs // 2))
        entropy_weight = (
            max(1.0, math.log10(max(self.classes, 1))) if self.entropy_weight is None else self.entropy_weight
        )
        settings = replace(self, device=device, epochs=epochs, warmup_epochs=warmup, entropy_weight=entropy_weight)
        settings._check(n_known, n_images)
        return settings

    def _check(self, n_known: int, n_images: int) -> None:
        if self.classes > n_images:
            raise UserError(f"--classes {self.classes} is too many: there are only {n_images} images")
        if self.classes < max(n_known, 2):
            raise UserError(
                f"--classes {self.classes} is too few: {n_known} classes are known already. "
                "Count the known classes and those you expect to discover (at least 2 in all)."
            )
        for name in ("epochs", "warmup_epochs", "batch_size", "image_size"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "student_temperature", "teacher_temperature", "teacher_temperature_start",
                     "info_nce_temperature", "sup_con_temperature"):  # fmt: skip
            _require(name, getattr(self, name), 0 < getattr(self, name) < math.inf, "a number above 0")
        for name in ("entropy_weight", "weight_decay", "rho"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) < math.inf, "0 or more")
        _require("momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and below 1")
        _require("seed", self.seed, 0 <= self.seed < 2**32, "between 0 and 4294967295")
        _require("bank_views", self.bank_views, self.bank_views >= 2, "at least 2: a step compares two of them")
        _require("supervised_weight", self.supervised_weight, 0 <= self.supervised_weight <= 1, "between 0 and 1")


def _require(name: str, value: object, holds: bool, what: str) -> None:
    if not holds:
        raise UserError(f"--{name.replace('_', '-')} must be {what}; found {value}")


def resolve_device(wanted: str) -> str:
    """The device that ``--device`` means on this machine."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {wanted} cannot be used here: {str(error).splitlines()[0]}") from error
    return wanted


def to_toml(settings: Settings, **sections: dict[str, object]) -> str:
    """The text of config.toml; settings left at None are left out."""
    return tomli_w.dumps({"settings": _plain(asdict(settings)), **{k: _plain(v) for k, v in sections.items()}})


def from_toml(text: str, source: Path) -> tuple[Settings, dict[str, Any]]:
    """Read config.toml back: the settings, and the other sections as they are."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not readable as TOML: {error}") from error
    values = content.pop("settings", None)
    names = {field.name for field in fields(Settings)}
    if not isinstance(values, dict) or "classes" not in values:
        raise UserError(f"{source} has no [settings] with a number of classes: it is not from a newfound run")
    if unknown := sorted(set(values) - names):
        raise UserError(f"{source} has settings this version does not know: {', '.join(unknown)}. Update newfound.")
    paths = {name: Path(values[name]) for name in ("weights", "bank_dir") if name in values}
    return Settings(**{**values, **paths}), content


def _plain(values: dict[str, object]) -> dict[str, object]:
    return {k: _utf8(str(v)) if isinstance(v, (str, Path)) else v for k, v in values.items() if v is not None}


def _utf8(text: str) -> str:
    """TOML is UTF-8; a path need not be."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
