"""How cost grows with images and classes: `python -m benchmarks.growth [NAME ...]` writes growth.json and its figure.

Everything on features as EfficientNet gives them (1,280 numbers), in groups that overlap. The bank is measured without
its trunk, which costs the same for every image; pictures of the report are small files.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import nn

from benchmarks.__main__ import hardware
from benchmarks.tasks import Learning, decided, task_of
from newfound.anchors import calibrate, select_anchors
from newfound.backbones import Backbone
from newfound.backbones.adapter import AdapterTail
from newfound.class_count import count_classes
from newfound.evaluate import cluster_accuracy
from newfound.images import ImageTable
from newfound.kmeans import kmeans
from newfound.report import write_report
from newfound.runs.assignments import Assignment, write_assignment
from newfound.runs.config import config_text
from newfound.runs.folder import RunFolder
from newfound.runs.results import read_results
from newfound.screen import Screen
from newfound.sources.bank import open_bank
from newfound.sources.vectors import Embeddings
from newfound.training.loop import all_features, classified
from newfound.training.task import Pretrained

DIM = 1280
IMAGES, CLASSES = (1_000, 3_000, 10_000, 30_000, 100_000), (10, 30, 100, 300, 1_000)
USUAL_CLASSES, USUAL_IMAGES = 100, 100_000
PATIENCE = 300.0  # seconds: a curve ends where a point would take longer
RESULT = Path(__file__).with_name("growth.json")
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "growth.png"


class Data:
    """Unit features around centres, their groups, and what a model might say of them."""

    def __init__(self, images: int, classes: int) -> None:
        random = np.random.default_rng(0)
        self.images, self.classes = images, classes
        self.groups = random.integers(classes, size=images)
        self.features = random.standard_normal((images, DIM), dtype=np.float32)
        self.features += random.standard_normal((classes, DIM), dtype=np.float32)[self.groups]
        self.features /= np.linalg.norm(self.features, axis=1, keepdims=True)
        self.known = classes // 2
        self.labels = np.where((self.groups < self.known) & (random.random(images) < 0.5), self.groups, -1)

    def probabilities(self) -> np.ndarray:
        """Mostly for the true group."""
        random = np.random.default_rng(1)
        rows = np.zeros((self.images, self.classes), dtype=np.float32)
        confidence = random.beta(6, 2, self.images).astype(np.float32)
        wrong = random.random(self.images) < 0.2
        top = np.where(wrong, random.integers(self.classes, size=self.images), self.groups)
        rows += ((1 - confidence) / self.classes)[:, None]
        rows[np.arange(self.images), top] += confidence
        return rows


def seconds_of(run: Callable[[], object], times: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - started) / times


def bank(data: Data) -> float:
    """Building one with a trunk that does next to nothing, and opening it again."""
    trunk = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(12, DIM))
    backbone = Backbone("none", trunk, lambda: AdapterTail(DIM), (DIM,), DIM, 32, (0, 0, 0), (1, 1, 1), "none")
    digests = tuple(f"{i:064x}" for i in range(data.images))
    picture = Image.new("RGB", (48, 48))

    class Table(ImageTable):
        def open(self, index: int, shorter_side: int | None = None) -> Image.Image:
            return picture

    table = Table(Path(), digests, data.labels, (), digests, (), ())
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of(
            lambda: open_bank(table, backbone, views=8, folder=Path(folder), screen=Screen(quiet=True)), times=2
        )


def learning_of(data: Data) -> Learning:
    settings = decided(data.classes, data.known, data.images)
    pretrained = Pretrained(Embeddings(data.features), lambda: AdapterTail(DIM), DIM)
    return Learning(settings, task_of(settings, pretrained, data.labels))


def step(data: Data) -> float:
    """One of 128 images with LSP."""
    learning, number = learning_of(data), iter(range(1_000))

    def one() -> None:
        images = np.random.default_rng(next(number)).integers(data.images, size=128)
        tokens = torch.from_numpy(learning.task.source.read_pair(images, 0, 0))
        learning.step(tokens, torch.from_numpy(data.labels[images]), epoch=0)

    one()
    return seconds_of(one, times=10)


def evaluation(data: Data) -> float:
    learning = learning_of(data)
    task, learner = learning.task, learning.learner
    return seconds_of(lambda: classified(task, learner, all_features(task, learner)))


def selection(data: Data) -> float:
    probabilities = data.probabilities()
    omega, gamma = calibrate(probabilities, data.known, 5)
    return seconds_of(
        lambda: select_anchors(probabilities, data.features, data.known, omega=omega, gamma=gamma, beta=0.5, k=0.5)
    )


def matching(data: Data) -> float:
    predicted = data.probabilities().argmax(axis=1)
    return seconds_of(lambda: cluster_accuracy(data.groups, predicted, data.groups < data.known))


def start(data: Data) -> float:
    """k-means on the frozen features: where the classifier starts."""
    return seconds_of(lambda: kmeans(data.features, data.classes, 0))


def class_count(data: Data) -> float:
    return seconds_of(lambda: count_classes(data.features, data.labels))


def report(data: Data) -> float:
    """With its map and its pictures."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        root, names = Path(place), tuple(f"class {k}" for k in range(data.classes))
        files = tuple(f"{i % 1000:03d}/{i}.jpg" for i in range(data.images))
        for file in files:
            (root / file).parent.mkdir(exist_ok=True)
            corners = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(corners).resize((48, 48), Image.Resampling.BICUBIC).save(root / file)
        run = RunFolder(root / "run")
        run.path.mkdir()
        sections = {"data": {"folder": str(root), "fingerprint": "none"}}
        settings = decided(data.classes, data.known, data.images, method="sdas")
        (run.path / "config.toml").write_text(config_text(settings, sections))
        table = ImageTable(root, files, data.labels, names[: data.known], ("",) * data.images, (), ())
        confidence = data.probabilities().max(axis=1).astype(np.float64)
        others = np.roll(np.arange(data.classes), 1)
        assignment = Assignment(
            class_names=names, unseen=(), n_known=data.known, classes=data.groups, confidence=confidence,
            runner_up=others[data.groups], runner_up_confidence=(1 - confidence) / 2,
            is_anchor=np.zeros(data.images, dtype=bool),
        )  # fmt: skip
        embeddings = data.features.astype(np.float16)
        write_assignment(run, table, assignment, embeddings)
        run.write_array("embeddings.npy", embeddings)
        return seconds_of(lambda: write_report(read_results(run.path), Screen(quiet=True)))


OF_IMAGES = {
    f.__name__.replace("_", " "): f for f in (bank, step, evaluation, start, selection, matching, class_count, report)
}
OF_CLASSES = {f.__name__.replace("_", " "): f for f in (step, evaluation, selection, matching)}


def curve(
    measure: Callable[[Data], float], points: list[Data], name: str, console: Console
) -> list[tuple[int, int, float]]:
    found: list[tuple[int, int, float]] = []
    for data in points:
        if len(found) > 1 and found[-1][2] ** 2 / found[-2][2] > PATIENCE:
            break
        found.append((data.images, data.classes, measure(data)))
        console.print(f"{name}: {data.images:,} images, {data.classes:,} classes: {found[-1][2]:.3g} s")
    return found


def exponent(found: list[tuple[int, int, float]], which: int) -> float:
    """Of the growth between the last two points: 1 is linear."""
    (*last,) = found[-2:]
    return math.log(last[1][2] / last[0][2]) / math.log(last[1][which] / last[0][which])


def main(names: Sequence[str]) -> None:
    """All curves, or those named beside what was measured before."""
    console = Console()
    before = json.loads(RESULT.read_text("utf-8")) if names and RESULT.exists() else {}
    by_images, by_classes = before.get("by_images", {}), before.get("by_classes", {})
    for curves, measures, data in (
        (by_images, OF_IMAGES, lambda: [Data(n, USUAL_CLASSES) for n in IMAGES]),
        (by_classes, OF_CLASSES, lambda: [Data(USUAL_IMAGES, k) for k in CLASSES]),
    ):
        points = data()
        for name, measure in measures.items():
            if not names or name in names:
                curves[name] = curve(measure, points, name, console)
                _write(by_images, by_classes)
        del points
    draw(by_images, by_classes)


def _write(by_images: dict[str, list], by_classes: dict[str, list]) -> None:
    content = {
        "hardware": hardware(),
        "date": str(date.today()),
        "columns": ["images", "classes", "seconds"],
        "by_images": by_images,
        "by_classes": by_classes,
        "exponent_of_images": {name: round(exponent(found, 0), 2) for name, found in by_images.items()},
        "exponent_of_classes": {name: round(exponent(found, 1), 2) for name, found in by_classes.items()},
    }
    RESULT.write_text(json.dumps(content, indent=1) + "\n")


def draw(by_images: dict[str, list], by_classes: dict[str, list]) -> None:
    from newfound.research.figures.canvas import new_canvas

    figure = new_canvas(9.0, 4.2)
    styles = ["o-", "s--", "^:", "D-.", "v-", "P--", "X:", "*-."]
    colours = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#666666"]
    for axes, curves, which, name in zip(
        figure.subplots(1, 2, sharey=True),
        (by_images, by_classes),
        (0, 1),
        ("images, of 100 classes", "classes, of 100,000 images"),
        strict=True,
    ):
        for label, found in curves.items():
            place = list(OF_IMAGES).index(label)
            axes.loglog(
                [p[which] for p in found],
                [p[2] for p in found],
                styles[place],
                color=colours[place],
                label=label,
                markersize=4,
            )
        axes.set_xlabel(name)
        axes.grid(alpha=0.3, which="both")
    figure.axes[0].set_ylabel("seconds")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), frameon=False, ncols=4, fontsize=8, loc="outside lower center"
    )
    figure.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1:])
