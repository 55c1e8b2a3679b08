import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from newfound.backbones import load_backbone
from newfound.backbones.efficientnet import (
    LITE_SPECS,
    PIXEL_MEAN,
    PIXEL_STD,
    EfficientNetLite,
    EvenSameConv,
    FoldedEfficientNet,
    SameConv,
    load_efficientnet,
    packaged_weights,
)
from newfound.errors import UserError
from newfound.sources.bank import Recipe

LITE0 = "efficientnet_lite0"
IMAGENET_MEAN, IMAGENET_STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
CASES = [(224, "imagenet"), (224, "tf_lite"), (160, "imagenet"), (160, "tf_lite")]


@pytest.fixture(scope="module")
def vectors(golden):
    return np.load(golden / "efficientnet_lite0.npz", allow_pickle=False)


@pytest.fixture(scope="module")
def network():
    return load_efficientnet(LITE0)


def normalised(images, kind, dtype):
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if kind == "imagenet" else (PIXEL_MEAN, PIXEL_STD)
    pixels = torch.tensor(images).permute(0, 3, 1, 2).to(dtype)
    return (pixels - torch.tensor(mean, dtype=dtype).view(3, 1, 1)) / torch.tensor(std, dtype=dtype).view(3, 1, 1)


def test_the_packaged_weights_are_the_ones_the_vectors_were_made_with(vectors):
    assert hashlib.sha256(packaged_weights(LITE0).read_bytes()).hexdigest() == str(vectors["weights_sha256"])


@pytest.mark.parametrize(("size", "kind"), CASES)
@pytest.mark.parametrize(("dtype", "suffix", "atol"), [(torch.float64, "f64", 1e-9), (torch.float32, "f32", 1e-4)])
@torch.no_grad()
def test_matches_the_released_network(vectors, network, size, kind, dtype, suffix, atol):
    plain = network.to(dtype)
    images = normalised(vectors[f"images_{size}"], kind, dtype)
    np.testing.assert_allclose(plain(images), vectors[f"pooled_{size}_{kind}_{suffix}"], atol=atol, rtol=0)
    np.testing.assert_allclose(plain.classify(images), vectors[f"logits_{size}_{kind}_{suffix}"], atol=atol, rtol=0)


@torch.no_grad()
def test_padding_is_right_at_a_size_that_leaves_odd_maps(vectors, network):
    images = normalised(vectors["images_200"], "tf_lite", torch.float64)
    pooled = network.double()(images)
    np.testing.assert_allclose(pooled, vectors["pooled_200_tf_lite_dynamic_f64"], atol=1e-9, rtol=0)


@pytest.mark.parametrize("size", [224, 160, 200])
@torch.no_grad()
def test_folded_trunk_equals_the_plain_module(vectors, network, size):
    plain = network.float()
    images = normalised(vectors[f"images_{size}"], "tf_lite", torch.float32)
    before = images.clone()
    torch.testing.assert_close(FoldedEfficientNet(plain)(images), plain(images), atol=1e-4, rtol=1e-4)
    assert torch.equal(images, before)  # it works in place, but not on its input


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("size", [6, 7, 8, 11, 14, (6, 9)])
@torch.no_grad()
def test_convolution_without_a_padded_copy_is_the_same(kernel, size):
    torch.manual_seed(0)
    conv = SameConv(4, 4, kernel, 2, groups=4).double()
    shape = size if isinstance(size, tuple) else (size, size)
    x = torch.randn(2, 4, *shape, dtype=torch.float64)
    torch.testing.assert_close(EvenSameConv(conv)(x), conv(x), atol=1e-12, rtol=0)


def test_folding_leaves_the_plain_module_as_it_was(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    folded = FoldedEfficientNet(network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(p.requires_grad for p in folded.parameters())


def test_banks_of_earlier_versions_are_still_used():
    """Users keep them in their cache: another name means that every image is computed again."""
    backbone = load_backbone(LITE0, image_size=160)
    assert backbone.fingerprint == "91516307c8a76177ccd83612c47fb3f7031e6ebdedbf5c4ecea38ade2764e861"
    assert Recipe.of(backbone, views=8).folder_name == "efficientnet_lite0-69664e944923e51d"
    assert Recipe.of(backbone, views=8, strong=True).folder_name == "efficientnet_lite0-05f1e4537f7a1954"


def test_a_wrong_file_is_refused_with_the_keys(tmp_path):
    state = EfficientNetLite(LITE_SPECS[LITE0]).state_dict()
    state.pop("_fc.bias")
    save_file(state, tmp_path / "wrong.safetensors")
    with pytest.raises(UserError, match=r"_fc\.bias"):
        load_efficientnet(LITE0, tmp_path / "wrong.safetensors")
