"""What the runs of a figure have in common, and their models."""

from __future__ import annotations

from dataclasses import dataclass

from newfound.images import ImageTable
from newfound.methods.simgcd import SimGCD
from newfound.research.datasets.benchmark import Benchmark
from newfound.runs.checkpoints import LEARNER
from newfound.runs.folder import RunFolder
from newfound.runs.journal import MemoryJournal
from newfound.screen import Screen
from newfound.settings import Settings, Training
from newfound.training.opened_images import OpenedImages
from newfound.training.task import Progress, Task

STUDENT = "student."  # where a learner around SimGCD has it


@dataclass(frozen=True)
class FigureInputs:
    benchmark: Benchmark
    table: ImageTable
    screen: Screen


def last_model(inputs: FigureInputs, run: RunFolder) -> tuple[SimGCD, Task, OpenedImages]:
    """SimGCD as it was when the last training of a run ended, the task it had, and its images."""
    settings = run.settings()
    opened = OpenedImages(inputs.table, settings, inputs.screen)
    task = _task(inputs, settings, opened)
    model = SimGCD(task, settings.method)  # type: ignore[arg-type]
    tensors = run.journal.checkpoints.load(run.journal.checkpoints.last_stage())[1]
    names = {name.removeprefix(LEARNER).removeprefix(STUDENT): t for name, t in tensors.items() if name[:6] == LEARNER}
    model.load_state_dict({name: t for name, t in names.items() if not name.startswith("memory.")})
    return model, task, opened


def _task(inputs: FigureInputs, settings: Settings, opened: OpenedImages) -> Task:
    labels, quiet = inputs.table.seen_classes()[0], Screen(quiet=True)
    training = Training.of(settings)
    with quiet.track("", 1) as tracker:
        progress = Progress(tracker, training.epochs, 1)
    assert settings.classes is not None
    return Task(opened.pretrained, labels, settings.classes, settings.seed, training, MemoryJournal(), quiet, progress)
