"""A training step, an evaluation and the whole recipe on a vision transformer: ours beside the usual way.

Weights are random (time does not depend on them), 224 pixels, two views of each image, 200 classes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import UsualModel, sam_step, simgcd_step
from benchmarks.tasks import Learning, decided, task_of
from benchmarks.timing import Row, Side, alternated
from newfound.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone
from newfound.backbones.vit import VIT_SPECS, VisionTransformer
from newfound.images.views import to_tensor
from newfound.sources.bank import Bank, Recipe, run_trunk
from newfound.sources.fresh_views import through_trunk
from newfound.threads import prefetched, single_threaded_pool
from newfound.training.task import Pretrained

CLASSES, IMAGE_SIZE, VIEWS, EPOCHS, STAGES = 200, 224, 8, 200, 2
BUILT = 4  # images, when building a bank is measured
STEPS = 20  # from the bank
CPU = torch.device("cpu")
SETTINGS = decided(CLASSES, CLASSES // 2, images=6000)


class Ours:
    """Our model and its sources, as a run has them."""

    def __init__(self, name: str, batch: int) -> None:
        self.batch = batch
        spec = VIT_SPECS[name]
        network = VisionTransformer(spec)
        trunk, tail = network.split(11)
        tokens = (2 + (IMAGE_SIZE // spec.patch_size) ** 2, spec.embed_dim)  # CLS twice
        self.backbone = Backbone(
            name, trunk, lambda: tail, tokens, spec.embed_dim, IMAGE_SIZE, IMAGENET_MEAN, IMAGENET_STD, "random"
        )
        rows = torch.randn(64, 1 + VIEWS, *tokens).half().numpy()
        self.bank = Bank(Recipe.of(self.backbone, VIEWS), [rows], np.zeros(64, np.int64), np.arange(64))
        pretrained = Pretrained(self.bank, self.backbone.new_tail, spec.embed_dim)
        self.learning = Learning(SETTINGS, task_of(SETTINGS, pretrained, np.full(len(self.bank), -1)))
        self.waited = 0.0  # seconds

    def steps_from_bank(self, labels: Tensor) -> None:
        """As an epoch takes them, with the next batches being read meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            ahead = prefetched(pool, self.read, range(STEPS), ahead=2)
            tokens: Tensor | None = None
            for _ in range(STEPS):
                started = time.perf_counter()
                tokens = self.bank.tokens_of(next(ahead), CPU, into=tokens)
                self.waited += time.perf_counter() - started
                self.learning.step(tokens, labels)

    def read(self, number: int) -> np.ndarray:
        images = np.random.default_rng(number).integers(len(self.bank), size=self.batch)
        return self.bank.read_pair(images, 0, number)

    def step_with_fresh_views(self, pixels: np.ndarray, labels: Tensor) -> None:
        self.learning.step(through_trunk(self.backbone, pixels), labels)

    def evaluate(self) -> None:
        self.learning.predict(self.bank.evaluation(np.arange(self.batch) % len(self.bank)))

    def build_rows(self, pixels: np.ndarray) -> None:
        with single_threaded_pool() as pool:
            for row in prefetched(pool, lambda _: run_trunk(self.backbone, pixels[: 1 + VIEWS]), range(BUILT), ahead=4):
                row.half()


def training_rows(name: str, images: int, rounds: int) -> list[Row]:
    """A step of so many images, taken in turn each way, and the recipe computed from it."""
    torch.manual_seed(0)
    pixels = np.random.default_rng(0).integers(0, 256, (2 * images, IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    views = to_tensor(pixels, IMAGENET_MEAN, IMAGENET_STD)
    labels = torch.tensor([i % 100 if i % 2 else -1 for i in range(images)])
    usual, ours = UsualModel(name, CLASSES, SETTINGS.method), Ours(name, images)
    simgcd, sam = simgcd_step(usual), sam_step(usual, rho=0.05)

    @torch.inference_mode()
    def usual_evaluation() -> None:
        usual.classifier(usual.network(views[:images]))

    seconds = alternated(
        {
            "SimGCD": Side(partial(simgcd, views, labels)),
            "SAM": Side(partial(sam, views, labels)),
            "evaluation": Side(usual_evaluation),
            "fresh": Side(partial(ours.step_with_fresh_views, pixels, labels)),
            "steps from the bank": Side(partial(ours.steps_from_bank, labels)),
            "bank evaluation": Side(ours.evaluate, times=20),
            "building": Side(partial(ours.build_rows, pixels)),
        },
        rounds,
    )
    bank_step, waiting = seconds["steps from the bank"] / STEPS, ours.waited / (rounds * STEPS)
    passes = STAGES * EPOCHS
    recipe_usual = passes * (seconds["SAM"] + seconds["evaluation"]) / images
    recipe = seconds["building"] / BUILT + passes * (bank_step + seconds["bank evaluation"]) / images
    short = f"{ {'dino_vitb16': 'ViT-B/16', 'dino_vits16': 'ViT-S/16'}[name] }, {images} images"
    rows = [
        Row(f"LSP step, fresh views, {short}", "plain SimGCD step", seconds["SimGCD"], seconds["fresh"], 0.81),
        Row(f"LSP step, fresh views, {short}", "SAM step", seconds["SAM"], seconds["fresh"], 0.39),
        Row(f"LSP step from the bank, {short}", "SAM step", seconds["SAM"], bank_step, 1 / 150),
        Row(f"2 × 200 epochs with the bank, per image, {short}", "SAM, fresh views", recipe_usual, recipe, 1 / 90),
        Row(f"waiting for data in bank mode, {short}", "the step", bank_step, waiting, 0.1),
    ]  # fmt: skip
    return rows if name == "dino_vitb16" else rows[2:]
