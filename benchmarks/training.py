"""A training step, an evaluation and the whole recipe on a vision transformer: ours beside the usual way.

Weights are random (time does not depend on them), 224 pixels, 32 images of two views, 200 classes.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import UsualModel, sam_step, simgcd_step
from benchmarks.timing import Row, Side, alternated
from newfound.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone
from newfound.backbones.vit import VIT_SPECS, VisionTransformer
from newfound.bank import Bank, Recipe, one_thread_each, prefetched, run_trunk
from newfound.config import Settings
from newfound.fresh import through_trunk
from newfound.heads import parameter_groups
from newfound.methods.simgcd import SimGCD
from newfound.sharpness import SharpnessAware
from newfound.train import one_step
from newfound.views import to_tensor

BATCH, CLASSES, IMAGE_SIZE, VIEWS, EPOCHS, STAGES = 32, 200, 224, 8, 200, 2
SETTINGS = Settings(CLASSES, method="simgcd", rho=0.05).resolved(CLASSES // 2, 6000, 15.0)


class Ours:
    """Our model and its sources, as a run has them."""

    def __init__(self, name: str) -> None:
        spec = VIT_SPECS[name]
        network = VisionTransformer(spec)
        trunk, tail = network.split(11)
        tokens = (2 + (IMAGE_SIZE // spec.patch_size) ** 2, spec.embed_dim)  # CLS twice
        self.backbone = Backbone(
            name, trunk, lambda: tail, tokens, spec.embed_dim, IMAGE_SIZE, IMAGENET_MEAN, IMAGENET_STD, "random"
        )
        self.model = SimGCD(tail, spec.embed_dim, SETTINGS)
        optimiser = torch.optim.SGD(parameter_groups(self.model, weight_decay=5e-5), 0.1, 0.9, fused=True)
        self.descent = SharpnessAware(optimiser, 0.05)
        rows = torch.randn(2 * BATCH, 1 + VIEWS, *tokens).half()
        self.bank = Bank(Recipe.of(self.backbone, VIEWS), list(rows))
        self.step_number = 0

    def step_from_bank(self, labels: Tensor) -> None:
        self.step(self.draw(), labels)

    def draw(self) -> Tensor:
        self.step_number += 1
        images = np.random.default_rng(self.step_number).integers(2 * BATCH, size=BATCH)
        return self.bank.training_pair(images, 0, self.step_number)

    def step_with_fresh_views(self, pixels: np.ndarray, labels: Tensor) -> None:
        self.step(through_trunk(self.backbone, pixels), labels)

    def step(self, tokens: Tensor, labels: Tensor) -> None:
        one_step(self.model, self.descent, tokens, labels, 60)

    def evaluate(self) -> None:
        self.model.predict(self.bank.evaluation(range(BATCH)))

    def build_rows(self, pixels: np.ndarray, images: int) -> None:
        with one_thread_each() as pool:
            for row in prefetched(pool, lambda _: run_trunk(self.backbone, pixels[: 1 + VIEWS]), range(images), ahead=4):
                row.half()


def training_rows(name: str, rounds: int) -> list[Row]:
    """Five measurements in turn, and the recipe computed from them."""
    torch.manual_seed(0)
    pixels = np.random.default_rng(0).integers(0, 256, (2 * BATCH, IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    images = to_tensor(pixels, IMAGENET_MEAN, IMAGENET_STD)
    labels = torch.tensor([i % 100 if i % 2 else -1 for i in range(BATCH)])
    usual, ours = UsualModel(name, SETTINGS), Ours(name)
    simgcd, sam = simgcd_step(usual), sam_step(usual, rho=0.05)

    @torch.inference_mode()
    def usual_evaluation() -> None:
        usual.classifier(usual.network(images[:BATCH]))

    seconds = alternated(
        {
            "SimGCD": Side(partial(simgcd, images, labels)),
            "SAM": Side(partial(sam, images, labels)),
            "evaluation": Side(usual_evaluation),
            "fresh": Side(partial(ours.step_with_fresh_views, pixels, labels)),
            "bank": Side(partial(ours.step_from_bank, labels), times=20),
            "draw": Side(ours.draw, times=20),
            "bank evaluation": Side(ours.evaluate, times=20),
            "building": Side(partial(ours.build_rows, pixels, 4)),
        },
        rounds,
    )
    passes = STAGES * EPOCHS
    recipe_usual = passes * (seconds["SAM"] + seconds["evaluation"]) / BATCH
    recipe = seconds["building"] / 4 + passes * (seconds["bank"] + seconds["bank evaluation"]) / BATCH
    waiting = f"{100 * seconds['draw'] / seconds['bank']:.1f} % of it reading the bank"
    short = {"dino_vitb16": "ViT-B/16", "dino_vits16": "ViT-S/16"}[name]
    rows = [
        Row(f"LSP step, fresh views, {short}", "plain SimGCD step", seconds["SimGCD"], seconds["fresh"], 0.81),
        Row(f"LSP step, fresh views, {short}", "SAM step", seconds["SAM"], seconds["fresh"], 0.39),
        Row(f"LSP step from the bank, {short}", "SAM step", seconds["SAM"], seconds["bank"], 1 / 150, waiting),
        Row(f"recipe of 2 × 200 epochs with its bank, per image, {short}", "SAM, fresh views", recipe_usual, recipe, 1 / 90),
        Row(f"waiting for data in bank mode, {short}", "the step", seconds["bank"], seconds["draw"], 0.1),
    ]  # fmt: skip
    return rows if name == "dino_vitb16" else rows[2:3]
