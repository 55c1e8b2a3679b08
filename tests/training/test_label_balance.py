"""What a training is told of the setting `label_balance`: three known groups, of which one has a single label."""

import numpy as np
import pytest
import torch

from helping.contract import new_journal
from helping.groups import CLASSES, LABELS, N
from helping.tasks import Interrupted, decided_for, fitted, new_task, stopping_after
from newfound.methods.simgcd import SimGCD
from newfound.training import loop
from newfound.training.learner import Between, Prediction
from newfound.training.samplers import half_labelled

FEW = LABELS.copy()
FEW[np.flatnonzero(LABELS == 2)[1:]] = -1
(LONELY,) = np.flatnonzero(FEW == 2)


def decided(balance, **changes):
    return decided_for("simgcd", FEW, label_balance=balance, **changes)


@pytest.fixture
def drawn(monkeypatch):
    """The images of each step, and the labels that they come with."""
    steps, one_step = [], loop.one_step

    def watched(learner, descent, batch):
        steps.append((batch.images.tolist(), batch.labels.tolist()))
        return one_step(learner, descent, batch)

    monkeypatch.setattr(loop, "one_step", watched)
    return steps


@pytest.mark.parametrize(("balance", "share"), [(0, 1 / 41 / 2), (1, 1 / 3 / 2)])
def test_a_lonely_label_is_seen_as_often_as_the_balance_says(drawn, balance, share):
    """Of the three known groups, two have 20 labels each: its share is that of one label, or of one class."""
    assert np.bincount(FEW[FEW >= 0]).tolist() == [20, 20, 1]
    fitted(decided(balance, epochs=8), labels=FEW)
    images = np.concatenate([images for images, _ in drawn])
    assert len(images) == 8 * N // 48 * 48
    bound = 6 * (share * (1 - share) / len(images)) ** 0.5
    assert (images == LONELY).mean() == pytest.approx(share, abs=bound)
    assert (FEW[images] >= 0).mean() == pytest.approx(0.5, abs=6 * 0.5 / len(images) ** 0.5)


class WithPseudoLabels(SimGCD):
    """Treats two images as labelled for a new class, as SDAS and RSS do."""

    labels = FEW.copy()
    labels[[-2, -1]] = 4

    def between_epochs(self, epoch, prediction):
        return Between(self.labels, Prediction(torch.zeros(N, 2), torch.full((N, CLASSES), 1 / CLASSES)))


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_pseudo_labels_count_as_labels(drawn, balance):
    settings = decided(balance, epochs=2)
    task = new_task(settings, labels=FEW)
    loop.train(task, WithPseudoLabels(task, settings.method))
    labels = WithPseudoLabels.labels
    expected = [images for epoch in (0, 1) for images in half_labelled(labels, 48, 0, epoch, balance=balance)]
    assert drawn == [(images.tolist(), labels[images].tolist()) for images in expected]


@pytest.mark.parametrize("balance", [0.5, 1.0])
def test_a_run_that_was_stopped_resumes_to_the_same_bits(tmp_path, balance):
    settings = decided(balance)
    whole = fitted(settings, labels=FEW, journal=new_journal(tmp_path / "whole"))
    with pytest.raises(Interrupted):
        fitted(settings, labels=FEW, journal=new_journal(tmp_path / "stopped", stopping_after(2)))
    resumed = fitted(settings, labels=FEW, journal=new_journal(tmp_path / "stopped"))
    assert torch.equal(resumed.prediction.probabilities, whole.prediction.probabilities)
    plain = fitted(decided(0.0), labels=FEW)
    assert not torch.equal(plain.prediction.probabilities, whole.prediction.probabilities)
