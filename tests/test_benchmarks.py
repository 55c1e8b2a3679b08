"""The baselines compute what newfound computes, only more slowly; and what is written about speed was measured."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks import peers, tasks
from newfound.anchors import calibrate, select_anchors
from newfound.backbones import vit
from newfound.semi_kmeans import semi_kmeans
from newfound.sharpness import SharpnessAware
from newfound.sources.vectors import Embeddings
from newfound.training.task import Pretrained

SETTINGS = tasks.decided(6, 3, 100, epochs=60)
LABELS = torch.tensor([0, -1, 2, -1, 1])


@pytest.fixture
def models(monkeypatch):
    """The usual model and ours with the same weights, and ten views."""
    monkeypatch.setitem(vit.VIT_SPECS, "tiny", replace(vit.VIT_SPECS["dino_vits16"], embed_dim=32, num_heads=4))
    torch.manual_seed(0)
    usual = peers.UsualModel("tiny", 6, SETTINGS.method)
    trunk, tail = usual.network.split(11)
    pretrained = Pretrained(Embeddings(np.zeros((5, 32))), lambda: tail, 32)
    ours = tasks.Learning(SETTINGS, tasks.task_of(SETTINGS, pretrained, LABELS.numpy()))
    ours.learner.projector.load_state_dict(usual.projector.state_dict())
    ours.learner.classifier.load_state_dict(usual.classifier.state_dict())
    images = torch.randn(10, 3, 32, 32)
    with torch.inference_mode():
        tokens = trunk(images)
    return usual, ours, images, tokens.clone()


def trained_weights(usual, ours):
    """Of both models, in the same order."""
    pairs = [(usual.projector, ours.projector), (usual.classifier, ours.classifier)]
    pairs.append((usual.network.blocks[-1], ours.tail.blocks["11"]))
    return [(p, q) for one, other in pairs for p, q in zip(one.parameters(), other.parameters(), strict=True)]


@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_a_usual_step_is_one_of_ours(models, rho):
    usual, ours, images, tokens = models
    before = [p.detach().clone() for p, _ in trained_weights(usual, ours.learner)]
    step = peers.sam_step(usual, rho) if rho else peers.simgcd_step(usual)
    ours.descent = SharpnessAware(ours.descent.optimiser, rho)
    for _ in range(2):
        step(images, LABELS)
        ours.step(tokens, LABELS)
    moved = 0.0
    for (theirs, mine), start in zip(trained_weights(usual, ours.learner), before, strict=True):
        torch.testing.assert_close(theirs, mine, rtol=0, atol=2e-5)
        moved = max(moved, (mine - start).abs().max().item())
    assert moved > 1e-2  # far more than they differ by


def test_a_usual_iteration_of_k_means_is_one_of_ours():
    random = np.random.default_rng(0)
    features = random.normal(size=(200, 8))
    centres = features[:5].copy()
    ours = semi_kmeans(features, np.full(200, -1), 5, initial_centres=centres, max_iterations=1)
    clusters, moved = peers.kmeans_iteration_by_broadcast(torch.from_numpy(features), torch.from_numpy(centres))
    assert np.array_equal(clusters.numpy(), ours.labels)
    np.testing.assert_allclose(moved.numpy(), ours.centres)


def test_usual_anchors_are_ours():
    random = np.random.default_rng(0)
    features, probabilities = random.normal(size=(300, 8)), random.dirichlet(np.full(5, 0.3), 300)
    omega, gamma = calibrate(probabilities, 2, 6)
    ours = select_anchors(probabilities, features, 2, omega=omega, gamma=gamma, beta=0.5, k=0.5)
    theirs = peers.anchors_by_full_sort(probabilities, features, 2, eta=ours.eta, beta=0.5, k=0.5)
    assert set(ours.index) == set(np.concatenate(theirs))


def test_the_page_on_speed_has_the_last_measurement():
    content = json.loads(bench.RESULT.read_text("utf-8"))
    assert bench.markdown(content) in bench.PAGE.read_text("utf-8")
    for row in content["rows"]:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["baseline_seconds"], rel=1e-2)
