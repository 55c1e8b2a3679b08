import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from newfound.backbones.vit import VIT_SPECS, VisionTransformer, ViTSpec, ViTTail, load_vit, with_statistics
from newfound.errors import UserError
from newfound.settings.shared_ranges import VIT_BLOCKS

MODELS = ["vit_dino", "vit_dinov2", "vit_dinov2_reg"]
SIZES = [("vit_dino", i) for i in range(5)] + [(m, i) for m in MODELS[1:] for i in range(4)]
TINY = ViTSpec(patch_size=4, embed_dim=16, depth=4, num_heads=2, image_size=16)
TINY_REG = replace(
    TINY, layer_scale=True, registers=2, interpolation_offset=0.0, antialias=True, interpolate_in_float32=True
)
DEEP = ViTSpec(patch_size=8, embed_dim=64, depth=12, num_heads=4, image_size=64)
DEEP_REG = replace(DEEP, layer_scale=True, registers=4)
FULL_WIDTH = replace(DEEP_REG, patch_size=16, embed_dim=384, depth=1, num_heads=6, image_size=224)

# As in the published files (343, 86.7, 346 and 88.2 MB at four bytes each); DINOv2 without its mask token.
PARAMETERS = {
    "dino_vits16": 21_665_664,
    "dino_vits8": 21_670_272,
    "dino_vitb16": 85_798_656,
    "dino_vitb8": 85_807_872,
    "dinov2_vits14": 22_056_192,
    "dinov2_vitb14": 86_579_712,
    "dinov2_vits14_reg": 22_057_728,
    "dinov2_vitb14_reg": 86_582_784,
}


def golden_spec(data, model):
    """The stored model's own dimensions, with the interpolation rule that the real models get."""
    rule = VIT_SPECS[{"vit_dino": "dino_vitb16", "vit_dinov2": "dinov2_vitb14"}.get(model, "dinov2_vitb14_reg")]
    sizes = ("patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio")
    return replace(rule, image_size=int(data["cfg/img_size"]), **{k: int(data[f"cfg/{k}"]) for k in sizes})


def golden_model(golden, model, dtype):
    data = np.load(golden / f"{model}.npz", allow_pickle=False)
    network = VisionTransformer(golden_spec(data, model)).to(dtype)
    weights = {k[2:]: torch.tensor(data[k], dtype=dtype) for k in data.files if k.startswith("w/")}
    weights.pop("mask_token", None)
    network.load_state_dict(weights)
    return network.requires_grad_(False), data


def random_model(spec, dtype=torch.float64, seed=0):
    """Every parameter random, so that an exchanged gain or bias shows; matrices keep the scale of their input."""
    network = VisionTransformer(spec).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        std = 0.5 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
        parameter.data.normal_(std=std, generator=generator)
    return network


def random_images(*size, dtype=torch.float64):
    return torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=dtype)


@pytest.mark.parametrize(("model", "size"), SIZES)
def test_tokens_blocks_and_features_are_those_of_the_official_network(golden, model, size):
    network, data = golden_model(golden, model, torch.float64)
    images = torch.tensor(data[f"in{size}"], dtype=torch.float64)
    assert list(images.shape[-2:]) == data["sizes"][size].tolist()
    # DINOv2 resamples in float32, and the blocks of other than native size are stored in float32.
    atol = 1e-10 if size == 0 or model == "vit_dino" else 1e-5
    blocks_atol = 1e-10 if size == 0 else 1e-5

    tokens = network.embed(images)
    np.testing.assert_allclose(tokens, data[f"tokens_in{size}_f64"], atol=atol, rtol=0)
    for i, block in enumerate(network.blocks):
        tokens = block(tokens)
        np.testing.assert_allclose(tokens, data[f"blocks{size}_f64"][i], atol=blocks_atol, rtol=1e-6)
    np.testing.assert_allclose(network(images), data[f"cls{size}_f64"], atol=atol, rtol=0)
    trunk, tail = network.split(network.spec.depth - 1)
    np.testing.assert_allclose(tail(trunk(images)).detach(), data[f"cls{size}_f64"], atol=atol, rtol=0)


@pytest.mark.parametrize(("model", "size"), SIZES)
def test_single_precision_stays_within_its_noise(golden, model, size):
    network, data = golden_model(golden, model, torch.float32)
    features = network(torch.tensor(data[f"in{size}"]))
    assert features.dtype == torch.float32
    np.testing.assert_allclose(features, data[f"cls{size}_f32"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("model", MODELS)
def test_the_settings_of_the_specs_are_those_the_vectors_were_made_with(golden, model):
    data = np.load(golden / f"{model}.npz", allow_pickle=False)
    spec = golden_spec(data, model)
    assert spec.ln_eps == data["cfg/ln_eps"]
    assert spec.layer_scale == ("w/blocks.0.ls1.gamma" in data.files)
    if model != "vit_dino":
        assert spec.registers == data["cfg/num_register_tokens"]
        assert spec.antialias == data["cfg/interpolate_antialias"]
        assert spec.interpolation_offset == data["cfg/interpolate_offset"]


@pytest.mark.parametrize("spec", [TINY, TINY_REG])
def test_a_wide_image_with_the_native_number_of_patches_is_resampled_too(spec):
    network = random_model(spec).requires_grad_(False)
    positions = network.positions(2, 8)
    assert positions.shape == network.pos_embed.shape
    assert not torch.allclose(positions, network.pos_embed)
    assert network.positions(4, 4) is network.pos_embed


def test_dinov2_resamples_in_single_precision():
    for spec, single in ((TINY, False), (TINY_REG, True)):
        positions = random_model(spec).positions(3, 5)[:, 1:]
        assert positions.dtype == torch.float64
        assert torch.equal(positions.float().double(), positions) == single


@pytest.mark.parametrize("size", [(18, 16), (16, 18), (3, 3), (0, 16)])
def test_an_image_that_patches_do_not_tile_is_refused(size):
    with pytest.raises(UserError, match=f"{size[0]} by {size[1]} pixels.* multiple of 4"):
        VisionTransformer(TINY)(torch.zeros(1, 3, *size))


@pytest.mark.parametrize("spec", [TINY, TINY_REG])
@pytest.mark.parametrize("grad_from_block", [0, 1, 3])
@pytest.mark.parametrize("size", [(16, 16), (24, 12)])
def test_trunk_and_tail_are_the_whole_network(spec, grad_from_block, size):
    network = random_model(spec)
    images = random_images(2, 3, *size)
    trunk, tail = network.split(grad_from_block)
    tokens = trunk(images)
    cls = 2 if grad_from_block == 3 else 1  # as it is, and normalised
    assert tokens.shape == (2, cls + spec.registers + size[0] * size[1] // 16, 16)
    torch.testing.assert_close(tail(tokens), network(images), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("grad_from_block", [-1, 4, 12])
def test_split_needs_a_block_that_exists(grad_from_block):
    with pytest.raises(UserError, match="blocks 0 to 3"):
        VisionTransformer(TINY).split(grad_from_block)


def test_official_names_survive_the_split():
    network = VisionTransformer(TINY_REG)
    trunk, tail = network.split(3)
    names = {name for part in (trunk, tail) for name in part.state_dict()}
    assert names == network.state_dict().keys()
    assert "blocks.3.attn.qkv.weight" in tail.state_dict()
    assert "blocks.2.ls1.gamma" in trunk.state_dict()


def random_tokens(spec, batch=3, dtype=torch.float64):
    return random_images(batch, 1 + spec.registers + spec.grid**2, spec.embed_dim, dtype=dtype)


def plain_tail(network, tokens, grad_from_block):
    """Every block for every token, of which CLS is then taken."""
    for block in network.blocks[grad_from_block:]:
        tokens = block(tokens)
    return network.norm(tokens)[:, 0]


def assert_near(actual, expected, relative):
    """Relative to the largest entry, as gradients of the keys' biases are nothing but rounding."""
    torch.testing.assert_close(actual, expected, atol=relative * expected.abs().max().item(), rtol=0)


def assert_tail_is_plain(network, tokens, grad_from_block, dtype, relative):
    """The tail in `dtype` against the plain blocks in float64: features to `relative`, gradients to ten times that."""
    _, tail = network.split(grad_from_block)
    tail, tokens = tail.to(dtype), tokens.to(dtype, copy=True).requires_grad_()
    plain_tokens = tokens.detach().double().requires_grad_()
    ready = with_statistics(tokens, network.spec.ln_eps) if len(tail.blocks) == 1 else tokens
    features, plain = tail(ready), plain_tail(network, plain_tokens, grad_from_block)
    assert_near(features.double(), plain, relative)

    weight = random_images(*features.shape, dtype=torch.float32)
    (features * weight).sum().backward()
    (plain * weight).sum().backward()
    assert_near(tokens.grad.double(), plain_tokens.grad, 10 * relative)
    plain_parameters = dict(network.named_parameters())
    for name, parameter in tail.blocks.named_parameters(prefix="blocks"):
        assert_near(parameter.grad.double(), plain_parameters[name].grad, 10 * relative)


TAILS = [(spec, block) for spec in (DEEP, DEEP_REG) for block in (8, 9, 10, 11)] + [(FULL_WIDTH, 0)]


@pytest.mark.parametrize(("spec", "grad_from_block"), TAILS)
@pytest.mark.parametrize(("dtype", "relative"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_a_tail_has_the_value_and_gradient_of_the_plain_blocks(spec, grad_from_block, dtype, relative):
    network = random_model(spec, torch.float32).double()  # weights that either type holds exactly
    assert_tail_is_plain(network, random_tokens(spec), grad_from_block, dtype, relative)


@pytest.mark.parametrize("spec", [DEEP, DEEP_REG])
@pytest.mark.parametrize(("dtype", "relative"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
def test_a_saturated_softmax_is_that_of_the_plain_block(spec, dtype, relative):
    network = random_model(spec, torch.float32).double()
    tokens = 100 * random_tokens(spec)
    last = network.blocks[11]
    last.norm1.weight.data.mul_(1024)  # as the norm undoes what the tokens are multiplied with
    queries, keys, _ = last.attn.qkv(last.norm1(tokens)).reshape(*tokens.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
    attention = (queries[:, :, :1] @ keys.transpose(2, 3) / 4).softmax(dim=-1)  # B×heads×1×T
    assert attention.amax(dim=-1).min() > 1 - 1e-12
    assert_tail_is_plain(network, tokens, 11, dtype, relative)


def test_biases_of_the_last_keys_get_no_gradient():
    network = random_model(DEEP_REG)
    _, tail = network.split(10)
    tail(random_tokens(DEEP_REG)).square().sum().backward()
    gradient = tail.blocks["11"].attn.qkv.bias.grad.chunk(3)
    assert [bool(part.any()) for part in gradient] == [True, False, True]


def of_tokens_size(run, tokens, size):
    """What autograd keeps for `run(tokens)`, and what gradients it computes, of that size or larger."""
    kept, gradients = {}, []

    def keep(tensor):
        if tensor.numel() >= size:
            kept[tensor.untyped_storage().data_ptr()] = tensor  # views of the same memory count once
        return tensor

    def record(inputs, outputs):
        gradients.extend(g for g in (*inputs, *outputs) if g is not None and g.numel() >= size)

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = run(tokens)
    nodes, seen = [out.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            node.register_hook(record)
            nodes.extend(following for following, _ in node.next_functions)
    out.sum().backward()
    return list(kept.values()), gradients


@pytest.mark.parametrize("spec", [DEEP, DEEP_REG])
def test_behind_a_frozen_trunk_nothing_of_the_tokens_size_goes_backward(spec):
    network = random_model(spec)
    tokens = random_tokens(spec, batch=5)
    assert tokens.numel() > max(p.numel() for p in network.blocks.parameters()), "parameters must not be counted"

    ready = with_statistics(tokens, spec.ln_eps)
    kept, gradients = of_tokens_size(network.split(11)[1], ready, tokens.numel())
    assert not gradients
    assert [tensor.untyped_storage().data_ptr() for tensor in kept] == [ready.untyped_storage().data_ptr()]  # no copy

    kept, gradients = of_tokens_size(lambda tokens: plain_tail(network, tokens, 11), tokens, tokens.numel())
    assert len(kept) > 5
    assert gradients


def test_only_the_tails_blocks_train():
    network = random_model(TINY)
    trunk, tail = network.split(2)
    assert not any(p.requires_grad for p in trunk.parameters())
    assert {n for n, p in tail.named_parameters() if not p.requires_grad} == {"norm.weight", "norm.bias"}
    assert all(p.requires_grad for p in network.parameters()), "splitting must not freeze the original"


def test_the_final_norm_stays_frozen():
    _, tail = random_model(TINY).split(2)
    alone = ViTTail(TINY, 2).double()
    alone.load_state_dict(tail.state_dict())
    for same in (alone, copy.deepcopy(tail).train(), ViTTail(TINY, 0)):
        assert not any(p.requires_grad for p in same.norm.parameters())


def test_training_a_tail_changes_nothing_else():
    network = random_model(TINY)
    images = random_images(2, 3, 16, 16)
    before = network(images).detach()
    trunk, tail = network.split(2)
    _, other = network.split(2)
    optimiser = torch.optim.SGD(tail.parameters(), lr=0.1, weight_decay=0.1)
    tail(trunk(images)).square().sum().backward()
    optimiser.step()
    assert not torch.allclose(tail(trunk(images)), before)
    torch.testing.assert_close(other(trunk(images)), before, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(network(images), before, atol=0, rtol=0)
    torch.testing.assert_close(tail.norm.weight, network.norm.weight, atol=0, rtol=0)


def test_a_saved_tail_loads_without_its_trunk():
    _, tail = random_model(TINY_REG, torch.float32).split(3)
    alone = ViTTail(TINY_REG, 3)
    alone.load_state_dict(tail.state_dict())
    tokens = random_images(2, 20, 16, dtype=torch.float32)
    assert torch.equal(alone(tokens), tail(tokens))


def test_settings_know_how_many_blocks_there_are():
    assert {spec.depth for spec in VIT_SPECS.values()} == {VIT_BLOCKS}


@pytest.mark.parametrize("name", VIT_SPECS)
def test_specs_have_the_published_number_of_parameters(name):
    with torch.device("meta"):
        network = VisionTransformer(VIT_SPECS[name])
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[name]
    assert network.spec.hub_repo.startswith("timm/vit_")
    assert network.spec.hub_filename == "model.safetensors"


@pytest.fixture
def tiny_specs(monkeypatch):
    """Two backbones small enough to write to disk."""
    monkeypatch.setitem(VIT_SPECS, "tiny", replace(TINY, hub_repo="someone/tiny"))
    monkeypatch.setitem(VIT_SPECS, "tiny_reg", TINY_REG)


@pytest.mark.usefixtures("tiny_specs")
def test_load_vit_from_a_file_ignores_what_is_not_the_backbones(tmp_path):
    network = random_model(TINY, torch.float32)
    extra = {
        "mask_token": torch.zeros(1, 16),
        "head.weight": torch.zeros(5, 16),
        "fc_norm.bias": torch.zeros(16),
    }
    save_file({**network.state_dict(), **extra}, tmp_path / "model.safetensors")
    loaded = load_vit("tiny", tmp_path / "model.safetensors")
    assert not any(p.is_meta for p in loaded.parameters())
    images = random_images(2, 3, 16, 16, dtype=torch.float32)
    assert torch.equal(loaded(images), network(images))


@pytest.mark.usefixtures("tiny_specs")
def test_half_precision_weights_are_used_in_single_precision(tmp_path):
    state = {name: tensor.half() for name, tensor in VisionTransformer(TINY).state_dict().items()}
    torch.save(state, tmp_path / "model.pth")
    assert load_vit("tiny", tmp_path / "model.pth").pos_embed.dtype == torch.float32


@pytest.mark.usefixtures("tiny_specs")
def test_weights_as_timm_stores_them_give_the_same_features(tmp_path):
    network = random_model(TINY_REG, torch.float32)
    state = network.state_dict()
    state["reg_token"] = state.pop("register_tokens")
    state["cls_token"] = state["cls_token"] + state["pos_embed"][:, :1]
    state["pos_embed"] = state["pos_embed"][:, 1:].clone()
    save_file(state, tmp_path / "timm.safetensors")
    loaded = load_vit("tiny_reg", tmp_path / "timm.safetensors")
    for size in (16, 24):
        images = random_images(2, 3, size, size, dtype=torch.float32)
        assert torch.equal(loaded(images), network(images))


@pytest.mark.usefixtures("tiny_specs")
def test_weights_of_another_backbone_are_recognised(tmp_path):
    torch.save(VisionTransformer(TINY_REG).state_dict(), tmp_path / "reg.pth")
    with pytest.raises(UserError, match=r"(?s)reg\.pth do not fit.*look like tiny_reg, and tiny was asked for"):
        load_vit("tiny", tmp_path / "reg.pth")


@pytest.mark.usefixtures("tiny_specs")
def test_incomplete_weights_of_the_right_backbone_get_no_such_hint(tmp_path):
    state = VisionTransformer(TINY).state_dict()
    del state["norm.weight"]
    torch.save(state, tmp_path / "model.pth")
    with pytest.raises(UserError, match=r"missing: norm\.weight$"):
        load_vit("tiny", tmp_path / "model.pth")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UserError, match=r"'vit_b'.*dino_vitb16, dino_vitb8"):
        load_vit("vit_b")


@pytest.mark.usefixtures("tiny_specs")
def test_without_a_file_the_hub_is_asked(tmp_path, monkeypatch):
    asked = []

    def fake_fetch(repo_id, filename):
        asked.append((repo_id, filename))
        return tmp_path / filename

    save_file(VisionTransformer(TINY).state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr("newfound.backbones.vit.fetch_from_hub", fake_fetch)
    load_vit("tiny")
    assert asked == [("someone/tiny", "model.safetensors")]
