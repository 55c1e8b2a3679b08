"""Every setting of a run: the Python API, the command line and config.toml are this one dataclass."""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser
import tomli_w
import tyro

from newfound.errors import UserError
from newfound.settings.presets import PRESETS, Preset, preset_for

FULL_EPOCHS, FULL_WARMUP_EPOCHS = 200, 30  # the paper's
QUICK_EPOCHS = 60
LARGEST_IMAGE, MOST_VIEWS = 4096, 1000  # beyond that, the views of one image fill the memory
MOST_EPOCHS = 1_000_000
VIT_BLOCKS = 12  # of each ViT there is
RHO = 0.05  # the paper's, "for all stages"
# What has a meaning only where there are anchors, where a classifier is trained, where anything is trained
OF_ANCHORS = ("strategy", "selection", "alpha", "beta", "k", "anchors_per_class", "oracle_clean_anchors", "stage1")
OF_CLASSIFIER = ("start", "entropy_weight", "teacher_temperature_start", "teacher_temperature", "warmup_epochs")
OF_TRAINING = ("epochs", "learning_rate", "momentum", "weight_decay", "rho", "supervised_weight",
               "info_nce_temperature", "sup_con_temperature", "precision")  # fmt: skip
MEANINGLESS: dict[str, dict[str, tuple[str, ...]]] = {
    "sdas": {},
    "simgcd": {"it has no anchors": OF_ANCHORS},
    "gcd": {"it has no anchors": OF_ANCHORS, "it trains no classifier": OF_CLASSIFIER},
    "kmeans": {"it has no anchors": OF_ANCHORS, "it trains nothing": (*OF_CLASSIFIER, *OF_TRAINING)},
}

T = TypeVar("T")

# How an option that may be left out reads in --help
UNSET_FILE = tyro.conf.arg(metavar="FILE", help_behavior_hint="")
UNSET_FOLDER = tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")
UNSET_NUMBER = tyro.conf.arg(metavar="N", help_behavior_hint="")
UNSET_START = tyro.conf.arg(metavar="{clusters,random}", help_behavior_hint="")
UNSET_PRESET = tyro.conf.arg(metavar="{" + ",".join(PRESETS) + "}", help_behavior_hint="")


def paragraphs(cls: type[T]) -> type[T]:
    """Let --help show each field's docstring as one paragraph: tyro would break lines where the source does."""
    hints = get_type_hints(cls, include_extras=True)
    for field in docstring_parser.parse_from_object(cls).params:
        text = " ".join((field.description or "").split())
        cls.__annotations__[field.arg_name] = Annotated[hints[field.arg_name], tyro.conf.arg(help=text)]
    return cls


def _number_or_auto(words: list[str]) -> int:
    return 0 if words == ["auto"] else int(words[0])


NUMBER_OR_AUTO = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="{N,auto}",
    instance_from_str=_number_or_auto,
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value or "auto")],
)


@paragraphs
@dataclass(frozen=True)
class Settings:
    """How to train. The defaults are the paper's, or SimGCD's published values, unless a line says otherwise."""

    classes: Annotated[int, NUMBER_OR_AUTO] = 0
    """How many classes there are in all, the known ones and those to discover. auto (0 from Python): estimated; in
    newfound bench and study the true number."""
    method: Literal["sdas", "simgcd", "gcd", "kmeans"] = "sdas"
    """sdas: the paper's method. A first training shows the clusters; a second, fresh one has anchors, images that stand
    as labelled for a new class and are chosen again after each epoch. simgcd: one training without anchors. gcd: one
    training of the features, then semi-supervised k-means. kmeans: on the frozen features; nothing is trained."""
    preset: Annotated[Preset | None, UNSET_PRESET] = None
    """Values for a kind of data, or for a data set as published: --alpha, --beta, and for data sets --entropy-weight
    and --start. Unset: fine-grained below 100 images per class, else generic."""
    seed: int = 0
    """Same seed, same folder, same machine: the same bytes in assignments.csv."""
    epochs: Annotated[int | None, UNSET_NUMBER] = None
    """Passes over the images, in each training. Unset: 200 as published on a GPU, 60 (the quick recipe) on a CPU."""
    start: Annotated[Literal["clusters", "random"] | None, UNSET_START] = None
    """Where the classifier starts. clusters: means of the labelled images, and k-means centres of the frozen features
    for the new classes. random: as published. Unset: clusters, but random for the preset of a data set."""
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
    weight_decay: float = 5e-5
    """Not on biases and other 1-D tensors."""
    rho: Annotated[float | None, UNSET_NUMBER] = None
    """Radius of the loss sharpness penalty (LSP); 0: none, which halves the time. Unset: 0.05 for sdas as published, 0
    for the others."""
    strategy: Literal["dynamic", "fixed", "without-pretrain"] = "dynamic"
    """When anchors are chosen. dynamic: after each epoch (DAS). fixed: once, after the first training.
    without-pretrain: one training only, with anchors once --warmup-epochs are over."""
    selection: Literal["das", "max-prob", "max-density"] = "das"
    """Which images become anchors. das: the most certain ones around the densest point of each new class. max-prob: the
    most certain ones. max-density: the densest ones."""
    alpha: Annotated[int | None, UNSET_NUMBER] = None
    """Epochs of the second training that keep the anchors of the first one. Unset: by --preset, shortened in
    proportion below 200 epochs."""
    beta: Annotated[float | None, UNSET_NUMBER] = None
    """Share of a new class around its densest point that may become anchors. Unset: by --preset."""
    k: float = 0.5
    """Neighbours that make up density, as a share of the class."""
    anchors_per_class: Annotated[float | None, UNSET_NUMBER] = None
    """How many anchors a new class should have at first (the paper's eta). Unset: as many as a known class has labelled
    images on average; with nothing labelled, half of an average class."""
    oracle_clean_anchors: bool = False
    """For analysis only: drop anchors that --truth says are wrong. It is no result, and everything written says so."""
    stage1: Annotated[Path | None, UNSET_FOLDER] = None
    """Take the first training from this run, on the same images with the same backbone and number of classes."""
    entropy_weight: Annotated[float | None, UNSET_NUMBER] = None
    """Weight of the mean-entropy term (the paper's epsilon), which keeps classes from staying empty. Unset: log10 of
    the number of classes, at least 1, unless --preset has a published one."""
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
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the trained part (and with fresh views the trunk) computes in on a GPU; the losses stay in float32. A CPU
    computes in float32."""
    compile: bool = False
    """On a GPU: let torch.compile make kernels of the trunk and the trained part. The first step then takes minutes."""

    def resolved(self, n_known: int, n_images: int, labelled_per_class: float) -> Settings:
        """The same settings with everything that was left open decided for this data; raises if they make no sense."""
        self._check_method()
        device = resolve_device(self.device)
        preset = self.preset or preset_for(n_images, self.classes)
        epochs = (QUICK_EPOCHS if device == "cpu" else FULL_EPOCHS) if self.epochs is None else self.epochs
        published: dict[str, Any] = {
            "epochs": epochs,
            "warmup_epochs": max(1, min(FULL_WARMUP_EPOCHS, epochs // 2)),
            "rho": RHO if self.method == "sdas" else 0.0,
            "start": "clusters",
            "entropy_weight": max(1.0, math.log10(max(self.classes, 1))),
            "anchors_per_class": max(1.0, labelled_per_class or n_images / (2 * max(self.classes, 1))),
            **PRESETS[preset],
        }
        published["alpha"] = max(1, round(published["alpha"] * min(1, epochs / FULL_EPOCHS)))
        open_ones = {name: value for name, value in published.items() if getattr(self, name) is None}
        settings = replace(self, device=device, preset=preset, **open_ones)
        settings._check(n_known, n_images)
        return settings

    @property
    def stages(self) -> int:
        """How many trainings follow each other."""
        return 2 if self.method == "sdas" and self.strategy != "without-pretrain" else 1

    def _check(self, n_known: int, n_images: int) -> None:
        if self.classes > n_images:
            raise UserError(f"--classes {self.classes} is too many: there are only {n_images} images")
        if self.classes < max(n_known, 2):
            raise UserError(
                f"--classes {self.classes} is too few: {n_known} classes are known already. "
                "Count the known classes and those you expect to discover (at least 2 in all)."
            )
        for name in ("epochs", "warmup_epochs", "batch_size", "anchors_per_class", "alpha"):
            _require(name, getattr(self, name), 1 <= getattr(self, name) < math.inf, "at least 1")
        for name in ("learning_rate", "student_temperature", "teacher_temperature", "teacher_temperature_start",
                     "info_nce_temperature", "sup_con_temperature"):  # fmt: skip
            _require(name, getattr(self, name), 0 < getattr(self, name) < math.inf, "a number above 0")
        for name in ("entropy_weight", "weight_decay", "rho"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) < math.inf, "0 or more")
        for name in ("supervised_weight", "beta", "k"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "between 0 and 1")
        _require("momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and below 1")
        _require("seed", self.seed, 0 <= self.seed < 2**32, "between 0 and 4294967295")
        _require("epochs", self.epochs, (self.epochs or 0) <= MOST_EPOCHS, f"at most {MOST_EPOCHS:,}")
        check_image_size(self.image_size)
        _require("bank_views", self.bank_views, self.bank_views >= 2, "at least 2: a step compares two of them")
        _require("bank_views", self.bank_views, self.bank_views <= MOST_VIEWS, f"at most {MOST_VIEWS}")
        _require(
            "grad_from_block", self.grad_from_block, 0 <= self.grad_from_block < VIT_BLOCKS, f"0 to {VIT_BLOCKS - 1}"
        )
        self._check_together()

    def _check_together(self) -> None:
        """Settings that mean something only beside others."""
        if self.precision != "float32" and not self.device.startswith("cuda"):
            raise UserError(f"--precision {self.precision} is for a GPU; --device {self.device} computes in float32")
        if self.compile and not self.device.startswith("cuda"):
            raise UserError(f"--compile is for a GPU; --device {self.device} is left as it is")
        if self.stage1 is not None and self.stages == 1:
            raise UserError("--stage1 needs a --strategy of two trainings: this run has only one")
        assert self.warmup_epochs is not None
        assert self.epochs is not None
        if self.strategy == "without-pretrain" and self.warmup_epochs >= self.epochs:
            raise UserError(
                f"--strategy without-pretrain begins with anchors after --warmup-epochs {self.warmup_epochs}, "
                f"and there are only {self.epochs} epochs"
            )

    def _check_method(self) -> None:
        """Whoever asks for anchors of some kind should not be given a method without any."""
        for why, names in MEANINGLESS[self.method].items():
            for name in names:
                if getattr(self, name) != _default(name):
                    raise UserError(f"--{name.replace('_', '-')} means nothing to --method {self.method}: {why}")

    def stripped(self) -> Settings:
        """The same without settings that mean nothing to the method."""
        names = [name for names in MEANINGLESS[self.method].values() for name in names]
        return replace(self, **{name: _default(name) for name in names})


def _default(name: str) -> Any:
    return Settings.__dataclass_fields__[name].default


def _require(name: str, value: object, holds: bool, what: str) -> None:
    if not holds:
        raise UserError(f"--{name.replace('_', '-')} must be {what}; found {value}")


def check_image_size(size: int) -> None:
    """Raise if images of this side cannot be worked with."""
    _require("image_size", size, 1 <= size <= LARGEST_IMAGE, f"between 1 and {LARGEST_IMAGE} pixels")


def resolve_device(wanted: str) -> str:
    """The device that ``--device`` means on this machine."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).item()  # a device without memory gives none back
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {wanted} cannot be used here: {str(error).splitlines()[0]}") from error
    return wanted


def to_toml(settings: Settings, **sections: dict[str, object]) -> str:
    """The text of config.toml; settings left at None are left out."""
    return tomli_w.dumps({"settings": _plain(asdict(settings)), **{k: _plain(v) for k, v in sections.items()}})


def read_toml(path: Path) -> tuple[Settings, dict[str, Any]]:
    """The same as `from_toml`, from the file itself."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not readable as TOML: {error}") from error
    return from_toml(text, path)


def from_toml(text: str, source: Path) -> tuple[Settings, dict[str, Any]]:
    """Read config.toml back: the settings, and the other sections as they are."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, or a number or a nesting beyond Python's limits
        raise UserError(f"{source} is not readable as TOML: {error}") from error
    values = content.pop("settings", None)
    names = {field.name for field in fields(Settings)}
    if not isinstance(values, dict) or "classes" not in values:
        raise UserError(f"{source} has no [settings] with a number of classes: it is not from a newfound run")
    if unknown := sorted(set(values) - names):
        raise UserError(f"{source} has settings this version does not know: {', '.join(unknown)}. Update newfound.")
    if odd := sorted(name for name, section in content.items() if not isinstance(section, dict)):
        raise UserError(f"{source} has {', '.join(odd)} outside of a section: it is not as a run writes it")
    hints = get_type_hints(Settings)
    for name, value in values.items():
        if not fits(value, hints[name]):
            raise UserError(f"{source} has {name} = {value!r}, which is not a value of that setting")
    paths = {name: Path(values[name]) for name in ("weights", "bank_dir", "stage1") if name in values}
    return Settings(**{**values, **paths}), content


def fits(value: object, hint: Any) -> bool:
    """Is it what TOML has for this type? A whole number may stand for a float, a string is a path."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, str if hint is Path else hint)


def _plain(values: dict[str, object]) -> dict[str, object]:
    return {k: _utf8(str(v)) if isinstance(v, (str, Path)) else v for k, v in values.items() if v is not None}


def _utf8(text: str) -> str:
    """TOML is UTF-8; a path need not be."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
