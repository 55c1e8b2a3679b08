"""Images made ready for training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helping.quick_discovery import fast
from newfound.images import read_folder
from newfound.methods import decide
from newfound.methods.simgcd import SimGCD
from newfound.runs.journal import MemoryJournal
from newfound.screen import Screen
from newfound.settings import DataFacts, Training
from newfound.training.learner import Batch
from newfound.training.opened_images import OpenedImages
from newfound.training.task import Progress, Task

QUIET = Screen(quiet=True)


def task_of(opened: OpenedImages, labels, settings) -> Task:
    with QUIET.track("training", 1) as tracker:
        progress = Progress(tracker, 1, 1)
    training = Training.of(settings)
    return Task(opened.pretrained, labels, settings.classes, 0, training, MemoryJournal(), QUIET, progress)


@pytest.mark.usefixtures("small_projector")
def test_compiled_parts_are_the_same_model(monkeypatch, folder, tmp_path):
    compiled, plain_compile = [], torch.nn.Module.compile

    def compile_quickly(part):
        compiled.append(type(part).__name__)
        plain_compile(part, backend="eager")  # what a GPU would do with a compiler, without one

    monkeypatch.setattr(torch.nn.Module, "compile", compile_quickly)
    table = read_folder(folder[0])
    settings = decide(fast(4, method="simgcd", bank_dir=tmp_path, device="cpu"), DataFacts(len(table), 2, 6, 2, 4))
    losses, names = [], []
    for chosen in (settings, replace(settings, compile=True)):  # a CPU user is refused it by `decide`
        opened = OpenedImages(table, chosen, QUIET)
        task = task_of(opened, table.labels, chosen)
        learner = SimGCD(task, chosen.method)
        pair = task.source.tokens_of(task.source.read_pair(np.arange(6), 0, 0), torch.device("cpu"))
        batch = Batch(pair, torch.arange(6), torch.tensor([0, 0, 1, -1, -1, -1]), 0, 0, 1, seed=0, stage=1)
        losses.append(learner.losses(batch).parts["total"])
        names.append([*learner.state_dict(), *opened.backbone.trunk.state_dict()])
    assert compiled == ["FoldedEfficientNet", "AdapterTail", "Projector"]
    torch.testing.assert_close(losses[1], losses[0])
    assert names[0] == names[1]  # a checkpoint of one serves the other


def test_nothing_is_loaded_before_it_is_asked_for(folder, monkeypatch):
    monkeypatch.setattr("newfound.training.opened_images.load_backbone", None)
    monkeypatch.setattr("newfound.training.opened_images.open_source", None)
    OpenedImages(read_folder(folder[0]), fast(4), QUIET)
