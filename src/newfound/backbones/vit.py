"""The vision transformers of DINO and DINOv2, and their division into a frozen trunk and a trainable tail.

Parameters carry the names of the official checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from newfound.backbones.weights import fetch_from_hub, load_weights, vit_state_from_file
from newfound.errors import UserError

NOT_NEEDED = ("mask_token", "head.", "fc_norm.")  # pretraining's mask and classifiers


@dataclass(frozen=True)
class ViTSpec:
    """The shape of a vision transformer, how it stretches its positions, and where its weights are."""

    patch_size: int
    embed_dim: int
    depth: int
    num_heads: int
    image_size: int  # the native size: the side of the position grid in pixels
    mlp_ratio: int = 4
    layer_scale: bool = False
    registers: int = 0
    # Positions for other image sizes. The scale given to the resampling is (new + offset) / old, which shifts
    # its sampling points a little; with offset 0 the output size is given instead.
    interpolation_offset: float = 0.1
    antialias: bool = False
    interpolate_in_float32: bool = False
    ln_eps: float = 1e-6
    hub_repo: str = ""
    hub_filename: str = "model.safetensors"

    @property
    def grid(self) -> int:
        """Patches along each side at the native size.

        >>> VIT_SPECS["dinov2_vitb14"].grid
        37
        """
        return self.image_size // self.patch_size


def _dino(patch_size: int, embed_dim: int, hub_repo: str) -> ViTSpec:
    return ViTSpec(patch_size, embed_dim, 12, embed_dim // 64, image_size=224, hub_repo=hub_repo)


def _dinov2(embed_dim: int, registers: int, hub_repo: str) -> ViTSpec:
    return ViTSpec(
        14,
        embed_dim,
        12,
        embed_dim // 64,
        image_size=518,
        layer_scale=True,
        registers=registers,
        interpolation_offset=0.0 if registers else 0.1,
        antialias=registers > 0,
        interpolate_in_float32=True,
        hub_repo=hub_repo,
    )


VIT_SPECS: dict[str, ViTSpec] = {
    "dino_vits16": _dino(16, 384, "timm/vit_small_patch16_224.dino"),
    "dino_vits8": _dino(8, 384, "timm/vit_small_patch8_224.dino"),
    "dino_vitb16": _dino(16, 768, "timm/vit_base_patch16_224.dino"),
    "dino_vitb8": _dino(8, 768, "timm/vit_base_patch8_224.dino"),
    "dinov2_vits14": _dinov2(384, 0, "timm/vit_small_patch14_dinov2.lvd142m"),
    "dinov2_vitb14": _dinov2(768, 0, "timm/vit_base_patch14_dinov2.lvd142m"),
    "dinov2_vits14_reg": _dinov2(384, 4, "timm/vit_small_patch14_reg4_dinov2.lvd142m"),
    "dinov2_vitb14_reg": _dinov2(768, 4, "timm/vit_base_patch14_reg4_dinov2.lvd142m"),
}


class PatchEmbedding(nn.Module):
    """Cuts images into square patches and projects each to one token."""

    def __init__(self, spec: ViTSpec) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, spec.embed_dim, spec.patch_size, stride=spec.patch_size)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)  # B×D×rows×columns
        return patches.flatten(2).transpose(1, 2)  # B×N×D


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        qkv = self.qkv(tokens).reshape(*tokens.shape[:2], 3, self.heads, -1)  # B×T×3×heads×D/heads
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)  # B×heads×T×D/heads each
        mixed = F.scaled_dot_product_attention(queries, keys, values)  # B×heads×T×D/heads
        projected: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))  # B×T×D
        return projected

    def first_row(self, normalised: Tensor, norm: nn.LayerNorm) -> Tensor:
        """The first row of forward(norm(tokens)), exactly, without a key or value for any token. B×T×D to B×D.

        Given are tokens n of mean 0 and variance 1. A token enters as y = g⊙n + c, with the norm's weight and bias. Its
        key's product with the query is q·(W_k y + b_k) = (g⊙W_kᵀq)·n + what is the same for all tokens and so leaves
        softmax. Its value is W_v y + b_v, and as attention sums to 1, the mixed value is the value of the mixed n. So
        no parameter touches anything of size B×T×D, and if the tokens come from a frozen trunk, backward computes
        nothing of that size.
        """
        dim = normalised.shape[-1]
        w_query, w_key, w_value = self.qkv.weight.reshape(3, self.heads, -1, dim)  # heads×D/heads×D each
        b_query, _, b_value = self.qkv.bias.reshape(3, self.heads, -1)  # heads×D/heads each

        first = normalised[:, 0] * norm.weight + norm.bias  # B×D
        query = torch.einsum("bd,hkd->bhk", first, w_query) + b_query  # B×heads×D/heads
        query = query * query.shape[-1] ** -0.5
        folded = torch.einsum("bhk,hkd->bhd", query, w_key) * norm.weight  # B×heads×D
        attention = (folded @ normalised.transpose(1, 2)).softmax(dim=-1)  # B×heads×T
        mixed = (attention @ normalised) * norm.weight + norm.bias  # B×heads×D
        values = torch.einsum("bhd,hkd->bhk", mixed, w_value) + b_value  # B×heads×D/heads
        projected: Tensor = self.proj(values.flatten(1))  # B×D
        return projected


class MLP(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(tokens)))
        return out


class LayerScale(nn.Module):
    """A learnt factor per dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.gamma


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, spec: ViTSpec) -> None:
        super().__init__()
        dim = spec.embed_dim
        self.norm1 = nn.LayerNorm(dim, eps=spec.ln_eps)
        self.attn = Attention(dim, spec.num_heads)
        self.ls1 = LayerScale(dim) if spec.layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=spec.ln_eps)
        self.mlp = MLP(dim, spec.mlp_ratio * dim)
        self.ls2 = LayerScale(dim) if spec.layer_scale else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        return self._add(tokens, self.attn(self.norm1(tokens)))

    def first_row(self, tokens: Tensor) -> Tensor:
        """The first row of forward(tokens), exactly, at a fraction of the work. B×(1+T)×D, from ``with_statistics``,
        to B×D."""
        return self._add(tokens[:, 0], self.attn.first_row(tokens[:, 1:], self.norm1))

    def _add(self, tokens: Tensor, attended: Tensor) -> Tensor:
        tokens = tokens + self.ls1(attended)
        out: Tensor = tokens + self.ls2(self.mlp(self.norm2(tokens)))
        return out


def with_statistics(tokens: Tensor, eps: float) -> Tensor:
    """CLS as it is, then all tokens, CLS again, with mean 0 and variance 1: what the last block needs. B×T×D to
    B×(1+T)×D. No trained weight has a part in it, so a trunk does it once for every step that follows."""
    return torch.cat([tokens[:, :1], F.layer_norm(tokens, tokens.shape[-1:], eps=eps)], dim=1)


class ViTTrunk(nn.Module):
    """Images to tokens: patches with their positions, then the first `depth` blocks."""

    def __init__(self, spec: ViTSpec, depth: int) -> None:
        super().__init__()
        self.spec = spec
        self.patch_embed = PatchEmbedding(spec)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, spec.embed_dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + spec.grid**2, spec.embed_dim))
        if spec.registers:
            self.register_tokens = nn.Parameter(0.02 * torch.randn(1, spec.registers, spec.embed_dim))
        self.blocks = nn.ModuleList(Block(spec) for _ in range(depth))

    def forward(self, images: Tensor) -> Tensor:
        """B×3×H×W to B×T×D: first CLS, then the registers if any, then the patches row by row.

        If only the last block is left to the tail, they come ready for it, B×(1+T)×D.
        """
        return self.run_blocks(self.embed(images))

    def run_blocks(self, tokens: Tensor) -> Tensor:
        """From what enters block 0 to what leaves the trunk."""
        for block in self.blocks:
            tokens = block(tokens)
        return with_statistics(tokens, self.spec.ln_eps) if len(self.blocks) == self.spec.depth - 1 else tokens

    def embed(self, images: Tensor) -> Tensor:
        """The tokens entering block 0."""
        height, width = images.shape[-2:]
        patch = self.spec.patch_size
        if height % patch or width % patch or not height or not width:
            raise UserError(
                f"An image of {height} by {width} pixels cannot be cut into patches of {patch} by {patch}. "
                f"Choose an image size that is a multiple of {patch}, such as {16 * patch}."
            )
        batch = len(images)
        cls = self.cls_token.expand(batch, -1, -1)  # B×1×D
        tokens = torch.cat([cls, self.patch_embed(images)], dim=1)  # B×(1+N)×D
        tokens = tokens + self.positions(height // patch, width // patch)
        if not self.spec.registers:
            return tokens
        registers = self.register_tokens.expand(batch, -1, -1)  # they have no position
        return torch.cat([tokens[:, :1], registers, tokens[:, 1:]], dim=1)  # B×(1+registers+N)×D

    def positions(self, rows: int, columns: int) -> Tensor:
        """The position embedding for a grid of patches, resampled as the weights' authors do. 1×(1+N)×D."""
        spec, grid = self.spec, self.spec.grid
        if rows == columns == grid:
            return self.pos_embed
        patches = self.pos_embed[:, 1:].reshape(1, grid, grid, -1).permute(0, 3, 1, 2)  # 1×D×grid×grid
        if spec.interpolate_in_float32:
            patches = patches.float()
        offset = spec.interpolation_offset
        patches = F.interpolate(
            patches,
            size=None if offset else (rows, columns),
            scale_factor=((rows + offset) / grid, (columns + offset) / grid) if offset else None,
            mode="bicubic",
            antialias=spec.antialias,
        )  # 1×D×rows×columns
        patches = patches.flatten(2).transpose(1, 2).to(self.pos_embed.dtype)  # 1×N×D
        return torch.cat([self.pos_embed[:, :1], patches], dim=1)


class ViTTail(nn.Module):
    """Tokens to features: the trainable blocks from `grad_from_block` on, then the frozen final LayerNorm.

    It can be built without its trunk, to load a tail saved earlier. Blocks keep their official numbers.
    """

    def __init__(self, spec: ViTSpec, grad_from_block: int) -> None:
        super().__init__()
        if not 0 <= grad_from_block < spec.depth:
            raise UserError(
                f"Cannot train from block {grad_from_block} on. This backbone has blocks 0 to "
                f"{spec.depth - 1}: choose one of these."
            )
        self.spec = spec
        self.blocks = nn.ModuleDict({str(i): Block(spec) for i in range(grad_from_block, spec.depth)})
        self.norm = nn.LayerNorm(spec.embed_dim, eps=spec.ln_eps).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens, as the trunk gives them, to the B×D features of CLS."""
        *earlier, last = self.blocks.values()
        for block in earlier:
            tokens = block(tokens)
        if earlier:
            tokens = with_statistics(tokens, self.spec.ln_eps)
        # Only CLS leaves the last block, so the other tokens are attended to there and get no result of their own.
        features: Tensor = self.norm(last.first_row(tokens))  # type: ignore[operator]
        return features


class VisionTransformer(ViTTrunk):
    """The whole network: B×3×H×W images to the B×D features of CLS after the final LayerNorm."""

    def __init__(self, spec: ViTSpec) -> None:
        super().__init__(spec, spec.depth)
        self.norm = nn.LayerNorm(spec.embed_dim, eps=spec.ln_eps)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.norm(super().forward(images)[:, 0])
        return features

    def split(self, grad_from_block: int) -> tuple[ViTTrunk, ViTTail]:
        """Divide into a frozen trunk, which shares this network's memory, and a tail of its own copies."""
        with torch.device("meta"):  # no random values that would be replaced at once
            tail = ViTTail(self.spec, grad_from_block)
            trunk = ViTTrunk(self.spec, grad_from_block)
        state = self.state_dict()
        trunk.load_state_dict({name: state[name] for name in trunk.state_dict()}, assign=True)
        tail.load_state_dict({name: state[name].clone() for name in tail.state_dict()}, assign=True)
        return trunk.requires_grad_(False), tail


def load_vit(name: str, weights: Path | None = None) -> VisionTransformer:
    """Build one of VIT_SPECS with its pretrained weights, from a file or else from the Hugging Face hub."""
    if name not in VIT_SPECS:
        raise UserError(f"There is no vision transformer named {name!r}. Choose from: {', '.join(VIT_SPECS)}.")
    spec = VIT_SPECS[name]
    path = weights or fetch_from_hub(spec.hub_repo, spec.hub_filename)
    state = vit_state_from_file(path)
    with torch.device("meta"):  # no random values that would be replaced at once
        model = VisionTransformer(spec)
    lookalike = _name_by_shape(state)
    hint = f"They look like {lookalike}, and {name} was asked for." if lookalike not in (None, name) else ""
    load_weights(model, state, source=str(path), ignore=NOT_NEEDED, hint=hint)
    return model.eval()


def _name_by_shape(state: Mapping[str, Tensor]) -> str | None:
    """The backbone that weights are probably meant for, judged by width, patch size and registers."""
    projection = state.get("patch_embed.proj.weight")  # D×3×P×P
    if projection is None or projection.ndim != 4:
        return None
    shape = (projection.shape[0], projection.shape[-1], "register_tokens" in state)
    names = (n for n, s in VIT_SPECS.items() if (s.embed_dim, s.patch_size, s.registers > 0) == shape)
    return next(names, None)
