"""GCD on embeddings: what it learns from, and that its answer is semi-supervised k-means."""

import copy

import numpy as np
import pytest
import torch
from sklearn.preprocessing import normalize

from helping.groups import CLASSES, DIM, KNOWN, LABELS, QUIET, REFEREE, SOURCE, TRUE, UNLABELLED, N
from newfound.backbones.adapter import AdapterTail
from newfound.errors import UserError
from newfound.evaluate import cluster_accuracy
from newfound.losses import contrastive_losses, simgcd_losses
from newfound.methods import gcd
from newfound.methods.simgcd import SimGCD
from newfound.runs.folder import RunFolder
from newfound.semi_kmeans import semi_kmeans
from newfound.settings import Settings
from newfound.sources.vectors import Embeddings
from newfound.training.heads import Projector
from newfound.training.loop import Job, train


class Stopped(Exception):
    pass


class Run:
    def __init__(self, path, *, source=SOURCE, labels=LABELS, folder=RunFolder, **changes):
        options = {"method": "gcd", "epochs": 4, "batch_size": 48, "device": "cpu", **changes}
        self.settings = Settings(CLASSES, **options).resolved(KNOWN, len(source), 10.0)
        self.run, self.source = folder(path), source
        self.job = Job(source, labels, self.settings, self.run, QUIET, REFEREE if source is SOURCE else None)

    def new_model(self):
        torch.manual_seed(self.settings.seed)
        tail = AdapterTail(DIM, 8)
        tail.fit_standardisation([self.source.evaluation(range(len(self.source)))])
        model = SimGCD(tail, DIM, self.settings)
        model.projector = Projector(DIM, 32, 16)
        return model

    def fit(self):
        with self.run.begun(self.settings, {"data": {"fingerprint": "d"}, "backbone": {"fingerprint": "b"}}):
            return gcd.fit(self.job, self.new_model)


def timeless(log):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in log]


def test_the_loss_is_simgcds_without_the_classifier():
    random = torch.Generator().manual_seed(0)
    z, logits = torch.randn(24, 16, generator=random), torch.rand(24, 5, generator=random)
    labels = torch.tensor([0, 1, 0, -1, -1, 2, -1, -1, 1, 0, -1, -1])
    whole = simgcd_losses(z, logits, labels, teacher_temperature=0.07, entropy_weight=1.0)
    parts = contrastive_losses(z, labels)
    assert set(parts) == {"info_nce", "sup_con", "total"}
    assert parts["info_nce"] == whole["info_nce"]
    assert parts["sup_con"] == whole["sup_con"]
    assert parts["total"].item() == pytest.approx(0.35 * parts["sup_con"].item() + 0.65 * parts["info_nce"].item())


def test_it_finds_the_groups(tmp_path):
    run = Run(tmp_path / "run")
    trained = run.fit()
    found = trained.prediction.classes.numpy()
    assert cluster_accuracy(TRUE[UNLABELLED], found[UNLABELLED], TRUE[UNLABELLED] < KNOWN).all > 0.95
    assert (found[LABELS >= 0] == LABELS[LABELS >= 0]).mean() > 0.95  # known classes come first, in their order
    assert not trained.model.classifier.weight.requires_grad
    log = run.run.log()
    assert [line["epoch"] for line in log] == [1, 2, 3, 4]
    for line in log:
        assert {"info_nce", "sup_con", "known_accuracy", "all", "old", "new"} <= set(line)
        assert not {"teacher_temperature", "cross_entropy"} & set(line)
    assert log[-1]["total"] < log[0]["total"]


def test_its_answer_is_semi_supervised_k_means_on_the_last_features(tmp_path):
    trained = Run(tmp_path / "run").fit()
    features = normalize(trained.prediction.features.numpy())
    reference = semi_kmeans(features, LABELS, CLASSES, seed=0, starts=gcd.STARTS)
    assert np.allclose(trained.model.classifier.weight.numpy(), reference.centres, atol=1e-6)
    distances = ((features[:, None] - reference.centres[None]) ** 2).sum(axis=2)
    assert np.array_equal(trained.prediction.classes.numpy(), distances.argmin(axis=1))


def test_only_features_are_trained(tmp_path):
    run = Run(tmp_path / "run", epochs=1)
    model = gcd.GCD(AdapterTail(DIM, 8), Projector(DIM, 32, 16), torch.rand(CLASSES, DIM), run.settings)
    before = copy.deepcopy(model.state_dict())
    with run.run.begun(run.settings, {}), run.job.progress([1]) as progress:
        train(run.job, model, progress)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert "classifier.weight" not in changed
    assert {"tail.up.weight", "projector.0.weight"} <= changed


@pytest.mark.parametrize("epoch", [1, 3])
def test_stopped_and_gone_on_with_it_is_the_same(tmp_path, epoch):
    class StopsAfter(RunFolder):
        def save_epoch(self, model, optimiser, checkpoint, entry):
            super().save_epoch(model, optimiser, checkpoint, entry)
            if entry["epoch"] == epoch:
                raise Stopped

    whole = Run(tmp_path / "whole")
    expected = whole.fit()
    with pytest.raises(Stopped):
        Run(tmp_path / "stopped", folder=StopsAfter).fit()
    again = Run(tmp_path / "stopped")
    trained = again.fit()
    assert torch.equal(trained.prediction.probabilities, expected.prediction.probabilities)
    assert timeless(again.run.log()) == timeless(whole.run.log())


def test_the_sharpness_penalty_can_be_had_here_too(tmp_path):
    plain, penalised = Run(tmp_path / "plain").fit(), Run(tmp_path / "lsp", rho=0.05).fit()
    assert not torch.equal(plain.prediction.features, penalised.prediction.features)


def test_too_few_different_images_are_named_before_training(tmp_path):
    rows = SOURCE.evaluation(range(N)).numpy()
    rows[UNLABELLED] = rows[UNLABELLED[0]]  # one picture, many times
    run = Run(tmp_path / "run", source=Embeddings(rows))
    with pytest.raises(UserError, match=r"--method gcd cannot group these images: .* different unlabelled"):
        run.fit()
    assert not run.run.log()


def test_training_that_goes_astray_is_said(tmp_path):
    run = Run(tmp_path / "run", learning_rate=1e30)
    with pytest.raises(UserError, match="training went astray in epoch 1"):
        run.fit()
