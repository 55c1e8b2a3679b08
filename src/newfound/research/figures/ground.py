"""What the runs of a figure have in common, and their models."""

from __future__ import annotations

from dataclasses import dataclass

from newfound.backbones import Backbone
from newfound.discovery import backbone_of, new_model, open_source
from newfound.images import ImageTable
from newfound.methods.simgcd import SimGCD
from newfound.research.datasets.benchmark import Benchmark
from newfound.runs.folder import RunFolder
from newfound.screen import Screen


@dataclass(frozen=True)
class Ground:
    benchmark: Benchmark
    table: ImageTable
    screen: Screen


def last_model(ground: Ground, run: RunFolder) -> tuple[SimGCD, Backbone]:
    """As it was when training ended."""
    settings = run.settings()
    backbone = backbone_of(settings)
    model = new_model(backbone, open_source(ground.table, backbone, settings, ground.screen), settings)
    run.load_model(model)
    return model, backbone
