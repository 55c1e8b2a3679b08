"""GCD on embeddings: what it learns from, and that its answer is semi-supervised k-means."""

import copy

import numpy as np
import pytest
import torch
from sklearn.preprocessing import normalize

from helping.contract import new_journal, without_seconds
from helping.groups import CLASSES, KNOWN, LABELS, REFEREE, SOURCE, TRUE, UNLABELLED, N
from helping.tasks import Interrupted, adapted, decided_for, fitted, new_task, stopping_after
from newfound.errors import UserError
from newfound.evaluate import cluster_accuracy
from newfound.kmeans import Grouping, kmeans
from newfound.losses import contrastive_losses, simgcd_losses
from newfound.methods import gcd
from newfound.runs.journal import MemoryJournal
from newfound.semi_kmeans import semi_kmeans
from newfound.sources.vectors import Embeddings
from newfound.training.loop import train


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


def test_it_finds_the_groups():
    journal = MemoryJournal()
    trained = fitted(decided_for("gcd"), journal=journal, referee=REFEREE)
    found = trained.prediction.classes.numpy()
    assert cluster_accuracy(TRUE[UNLABELLED], found[UNLABELLED], TRUE[UNLABELLED] < KNOWN).all > 0.95
    assert (found[LABELS >= 0] == LABELS[LABELS >= 0]).mean() > 0.95  # known classes come first, in their order
    assert not trained.predictor.classifier.weight.requires_grad
    log = journal.entries
    assert [line["epoch"] for line in log] == [1, 2, 3, 4]
    for line in log:
        assert {"info_nce", "sup_con", "known_accuracy", "all", "old", "new"} <= set(line)
        assert not {"teacher_temperature", "cross_entropy"} & set(line)
    assert log[-1]["total"] < log[0]["total"]


def test_its_answer_is_semi_supervised_k_means_on_the_last_features():
    trained = fitted(decided_for("gcd", kmeans_start="random"))
    features = normalize(trained.prediction.features.numpy())
    reference = semi_kmeans(features, LABELS, CLASSES, seed=0, starts=gcd.STARTS)
    assert np.allclose(trained.predictor.classifier.weight.numpy(), reference.centres, atol=1e-6)
    distances = ((features[:, None] - reference.centres[None]) ** 2).sum(axis=2)
    assert np.array_equal(trained.prediction.classes.numpy(), distances.argmin(axis=1))


def test_k_means_may_start_at_clusters():
    """Of plain k-means: the same centres as from labelled means and the clusters that no known class has."""
    trained = fitted(decided_for("gcd"))
    features = normalize(trained.prediction.features.numpy())
    clusters = kmeans(features, CLASSES, 0).clusters
    known = [features[k == LABELS].mean(axis=0) for k in range(KNOWN)]
    home = {np.bincount(clusters[k == LABELS]).argmax() for k in range(KNOWN)}  # the groups are far apart
    new = [features[clusters == c].mean(axis=0) for c in range(CLASSES) if c not in home]
    reference = semi_kmeans(features, LABELS, CLASSES, initial_centres=np.stack([*known, *new]))
    assert np.allclose(trained.predictor.classifier.weight.numpy(), reference.centres, atol=1e-6)


def test_published_data_sets_have_the_published_start():
    assert decided_for("gcd").method.kmeans_start == "clusters"
    assert decided_for("gcd", preset="cub").method.kmeans_start == "random"


def test_too_few_clusters_leave_the_start_to_chance(monkeypatch):
    one = Grouping(np.zeros(N, dtype=np.int64), np.zeros((1, 2), dtype=np.float32))
    monkeypatch.setattr(gcd, "kmeans", lambda *_: one)
    found = fitted(decided_for("gcd"))
    reference = fitted(decided_for("gcd", kmeans_start="random"))
    assert torch.equal(found.predictor.classifier.weight, reference.predictor.classifier.weight)


def test_only_features_are_trained():
    """Centres are found, not learnt: they are no parameters, and all that is one moves."""
    settings = decided_for("gcd", epochs=1)
    task = new_task(settings)
    learner = gcd.GCD(task, settings.method)
    before = copy.deepcopy(learner.state_dict())
    train(task, learner)
    after = learner.state_dict()
    assert {name for name in after if name not in before} == {"memory.centres"}
    changed = {name for name in before if not torch.equal(after[name], before[name])}
    assert changed == {name for name, _ in learner.named_parameters()}
    assert {"tail.up.weight", "projector.0.weight"} <= changed


@pytest.mark.parametrize("epoch", [1, 3])
def test_stopped_and_resumed_it_is_the_same(tmp_path, epoch):
    settings, whole = decided_for("gcd"), new_journal(tmp_path / "whole")
    expected = fitted(settings, journal=whole, referee=REFEREE)
    with pytest.raises(Interrupted):
        fitted(settings, journal=new_journal(tmp_path / "stopped", stopping_after(epoch)), referee=REFEREE)
    resumed = new_journal(tmp_path / "stopped")
    trained = fitted(settings, journal=resumed, referee=REFEREE)
    assert torch.equal(trained.prediction.probabilities, expected.prediction.probabilities)
    assert without_seconds(resumed.log()) == without_seconds(whole.log())


def test_the_sharpness_penalty_can_be_had_here_too():
    plain, penalised = fitted(decided_for("gcd")), fitted(decided_for("gcd", rho=0.05))
    assert not torch.equal(plain.prediction.features, penalised.prediction.features)


def test_too_few_different_images_are_named():
    rows = SOURCE.evaluation(range(N)).numpy()
    rows[UNLABELLED] = rows[UNLABELLED[0]]  # one picture, many times
    journal = MemoryJournal()
    with pytest.raises(UserError, match=r"semi-supervised k-means cannot group them: .* different unlabelled"):
        fitted(decided_for("gcd"), adapted(Embeddings(rows)), journal=journal)
    assert not journal.entries


def test_training_that_diverges_is_reported():
    with pytest.raises(UserError, match="training diverged in epoch 1"):
        fitted(decided_for("gcd", learning_rate=1e30))
