"""The straight line: images → trunk → bank → tail → losses → assignments."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from newfound.assign import Assignment, assign, write_assignment
from newfound.backbones import Backbone, load_backbone
from newfound.backbones.embeddings import AdapterTail
from newfound.bank import default_bank_folder, open_bank
from newfound.config import QUICK_EPOCHS, Settings
from newfound.errors import UserError
from newfound.fresh import FreshViews
from newfound.images import ImageTable, read_folder
from newfound.methods.kmeans import kmeans_clusters
from newfound.methods.simgcd import SimGCD
from newfound.run_folder import RunFolder
from newfound.screen import Screen
from newfound.start import start_at_clusters
from newfound.train import Prediction, Source, train
from newfound.truth import read_truth, score


@dataclass(frozen=True)
class Discovery:
    """A finished run."""

    run: Path
    table: ImageTable
    assignment: Assignment
    metrics: dict[str, Any] | None  # only where a truth was given


def discover(
    folder: Path | str,
    settings: Settings,
    *,
    labels: Path | None = None,
    out: Path | None = None,
    truth: Path | None = None,
    resume: bool = False,
    screen: Screen | None = None,
) -> Discovery:
    """Sort the images of a folder into known and newly found classes, and write the run folder.

    ``labels`` names labelled files (otherwise class folders do), ``truth`` is a CSV for scoring only, ``out`` the run
    folder. Python callers see nothing on screen unless they pass a ``Screen()``.
    """
    screen = screen or Screen(quiet=True)
    folder = Path(folder)
    if truth is not None and not truth.is_file():
        raise UserError(f"--truth {truth}: there is no such file")
    run = RunFolder(out or default_out(folder))
    table = _read(folder, labels, run, screen)
    settings = settings.resolved(table.n_known, len(table))
    run.begin(settings, _provenance(table, labels), resume=resume)
    _write_skipped(run, table, screen)
    if settings.epochs == QUICK_EPOCHS and settings.device == "cpu":
        screen.say(f"no GPU: the quick recipe of {QUICK_EPOCHS} epochs (--epochs 200 for the published length)")

    backbone = load_backbone(
        settings.backbone,
        image_size=settings.image_size,
        weights=settings.weights,
        grad_from_block=settings.grad_from_block,
    )
    backbone.trunk.to(settings.device)
    source = _source(table, backbone, settings, screen)
    frozen = frozen_features(backbone, source, settings)
    clusters = kmeans_clusters(frozen, settings.classes, settings.seed)
    targets, seen_names = table.seen_classes()
    model = new_model(backbone, source, settings)
    if settings.start == "clusters":
        start_at_clusters(model.classifier, frozen, clusters, targets)
    prediction = train(model, source, targets, settings, run, screen)

    assignment = assign(prediction, model.classifier.weight, seen_names, table.unseen_classes())
    write_assignment(run, table, assignment)
    _write_model(run, model, prediction, backbone, assignment, settings)
    metrics = None
    if truth is not None:
        metrics = score(read_truth(truth, table), assignment.classes, clusters)
        run.write_json("metrics.json", metrics)
    return Discovery(run.path, table, assignment, metrics)


def default_out(folder: Path) -> Path:
    """Beside where the command is run, named after the images."""
    return Path(f"newfound-{folder.resolve().name}")


def new_model(backbone: Backbone, source: Source, settings: Settings) -> SimGCD:
    """A model at its start: pretrained tail, random heads drawn from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return SimGCD(_fitted(backbone.new_tail(), source), backbone.feature_dim, settings)


@torch.inference_mode()
def frozen_features(backbone: Backbone, source: Source, settings: Settings) -> NDArray[np.float32]:
    """The features training starts from, N×d: evaluation view, pretrained weights."""
    tail = _fitted(backbone.new_tail(), source)
    batches = [range(i, min(i + settings.batch_size, len(source))) for i in range(0, len(source), settings.batch_size)]
    return torch.cat([tail(source.evaluation(batch)) for batch in batches]).numpy()


def _fitted(tail: nn.Module, source: Source) -> nn.Module:
    if isinstance(tail, AdapterTail):
        tail.fit_standardisation(source.evaluation(range(len(source))))
    return tail


def _read(folder: Path, labels: Path | None, run: RunFolder, screen: Screen) -> ImageTable:
    with screen.track("reading images", 1) as progress:

        def on_progress(done: int, total: int) -> None:
            progress.update(done, total=total)

        table = read_folder(folder, labels=labels, exclude=[run.path], on_progress=on_progress)
    for warning in table.warnings:
        screen.warn(warning)
    screen.say(
        f"{len(table):,} images: {table.n_labelled:,} labelled in {table.n_known} known classes, "
        f"{len(table) - table.n_labelled:,} to sort"
    )
    return table


def _write_skipped(run: RunFolder, table: ImageTable, screen: Screen) -> None:
    run.write_csv("skipped.csv", ["file", "reason"], ([item.file, item.reason] for item in table.skipped))
    if table.skipped:
        screen.warn(f"{len(table.skipped)} files are not used; each with its reason in {run.path / 'skipped.csv'}")


def _source(table: ImageTable, backbone: Backbone, settings: Settings, screen: Screen) -> Source:
    if settings.views == "fresh":
        return FreshViews(table, backbone)
    folder = settings.bank_dir or default_bank_folder()
    return open_bank(table, backbone, views=settings.bank_views, folder=folder, screen=screen)


def _provenance(table: ImageTable, labels: Path | None) -> dict[str, dict[str, Any]]:
    packages = ("newfound", "torch", "numpy", "scikit-learn", "pillow")
    return {
        "data": {
            "folder": str(table.root.resolve()),
            "labels": None if labels is None else str(labels.resolve()),
            "images": len(table),
            "labelled": table.n_labelled,
            "known_classes": table.n_known,
            "fingerprint": table.fingerprint,
        },
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def _write_model(
    run: RunFolder, model: SimGCD, prediction: Prediction, backbone: Backbone, a: Assignment, settings: Settings
) -> None:
    """What is needed to label other images: tail and classifier, and how pixels become their input."""
    unit = torch.nn.functional.normalize(prediction.features, dim=1)
    run.write_array("embeddings.npy", unit.numpy().astype(np.float16))
    kept = {name: t for name, t in model.state_dict().items() if not name.startswith("projector.")}
    run.write_model(
        kept,
        {
            "backbone": backbone.name,
            "backbone_fingerprint": backbone.fingerprint,
            "grad_from_block": settings.grad_from_block,
            "image_size": backbone.image_size,
            "pixel_mean": backbone.pixel_mean,
            "pixel_std": backbone.pixel_std,
            "temperature": settings.student_temperature,
            "class_names": a.class_names,
            "known_classes": a.n_known,
        },
    )
