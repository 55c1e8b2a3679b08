"""A backbone is two callables: a frozen trunk, images to tokens, and a trainable tail, tokens to features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from newfound.backbones.adapter import AdapterTail
from newfound.backbones.efficientnet import (
    FEATURE_DIM,
    LITE_SPECS,
    PIXEL_MEAN,
    PIXEL_STD,
    FoldedEfficientNet,
    load_efficientnet,
    packaged_weights,
)
from newfound.backbones.vit import VIT_SPECS, load_vit
from newfound.backbones.weights import check_weights_file, fetch_from_hub, fingerprint
from newfound.errors import SettingError, UserError, option
from newfound.settings.shared_ranges import VIT_BLOCKS, check_image_size
from newfound.text import did_you_mean

IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)
BACKBONES = (*LITE_SPECS, *VIT_SPECS)


@dataclass(frozen=True)
class Backbone:
    """What training needs to know of a network. ``trunk`` never changes; each ``new_tail()`` starts pretrained."""

    name: str
    trunk: nn.Module  # B×3×S×S -> B×token_shape
    new_tail: Callable[[], nn.Module]  # B×token_shape -> B×feature_dim
    token_shape: tuple[int, ...]
    feature_dim: int
    image_size: int
    pixel_mean: tuple[float, float, float]
    pixel_std: tuple[float, float, float]
    fingerprint: str  # of the trunk's weights: a bank is only good for the trunk that filled it


def load_backbone(
    name: str, *, image_size: int | None = None, weights: Path | None = None, grad_from_block: int | None = None
) -> Backbone:
    """A backbone by name, with its published weights or those of a local file; of a ViT the last block is trained."""
    image_size = 224 if image_size is None else image_size
    check_image_size(image_size)
    if name in LITE_SPECS:
        return _efficientnet(name, image_size, weights)
    if name in VIT_SPECS:
        return _vit(name, image_size, weights, VIT_BLOCKS - 1 if grad_from_block is None else grad_from_block)
    raise _no_such_backbone(name)


def check_backbone(name: str, weights: Path | None) -> None:
    """Raise unless there is such a backbone and its weights can be had; those of the hub are fetched.

    It is for the very beginning, before images are read: `load_backbone` would say the same later.
    """
    if name not in (*LITE_SPECS, *VIT_SPECS):
        raise _no_such_backbone(name)
    if weights is None and name in VIT_SPECS:
        fetch_from_hub(VIT_SPECS[name].hub_repo, VIT_SPECS[name].hub_filename)
    else:
        check_weights_file(weights or packaged_weights(name))


def _no_such_backbone(name: str) -> SettingError:
    what = f"{did_you_mean(name, BACKBONES)}; there are {', '.join(BACKBONES)}"
    return SettingError("backbone", name, what, "there is no {name} {value}{what}")


def _efficientnet(name: str, image_size: int, weights: Path | None) -> Backbone:
    network = load_efficientnet(name, weights)
    return Backbone(
        name=name,
        trunk=FoldedEfficientNet(network),
        new_tail=lambda: AdapterTail(FEATURE_DIM),
        token_shape=(FEATURE_DIM,),
        feature_dim=FEATURE_DIM,
        image_size=image_size,
        pixel_mean=PIXEL_MEAN,
        pixel_std=PIXEL_STD,
        fingerprint=fingerprint(network),
    )


def _vit(name: str, image_size: int, weights: Path | None, grad_from_block: int) -> Backbone:
    spec = VIT_SPECS[name]
    if image_size % spec.patch_size:
        raise UserError(
            f"{option('image_size', image_size)}: {name} needs a multiple of its patches of {spec.patch_size} pixels"
        )
    network = load_vit(name, weights)
    trunk, _ = network.split(grad_from_block)
    tokens = 1 + spec.registers + (image_size // spec.patch_size) ** 2 + (grad_from_block == spec.depth - 1)
    return Backbone(
        name=name,
        trunk=trunk,
        new_tail=lambda: network.split(grad_from_block)[1],
        token_shape=(tokens, spec.embed_dim),
        feature_dim=spec.embed_dim,
        image_size=image_size,
        pixel_mean=IMAGENET_MEAN,
        pixel_std=IMAGENET_STD,
        fingerprint=fingerprint(trunk),
    )
