import numpy as np
import torch

from newfound.runs.none_of_these import references_of


def test_likeness_is_a_share_of_the_labelled_images():
    """Against a naive loop."""
    random = np.random.default_rng(0)
    features = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(60, 8))), dim=1).half()
    labels = np.where(np.arange(60) % 3, -1, 0)
    references, usual = references_of(features, labels, seed=0)
    assert torch.equal(references, features)
    naive = []
    for i in np.flatnonzero(labels >= 0):
        cosines = [float(features[i].float() @ features[j].float()) for j in range(60) if j != i]
        naive.append(1 - max(cosines))
    np.testing.assert_allclose(usual, sorted(naive), atol=1e-6)
    assert len(references_of(features, np.full(60, -1), 0)[1]) == 60  # nothing labelled: all


def test_references_are_a_sample_of_many(monkeypatch):
    monkeypatch.setattr("newfound.runs.none_of_these.REFERENCES", 10)
    features = torch.nn.functional.normalize(
        torch.from_numpy(np.random.default_rng(0).normal(size=(50, 4))), dim=1
    ).half()
    references, usual = references_of(features, np.zeros(50, int), seed=0)
    assert len(references) == 10
    assert len(usual) == 50
    assert float(usual[0]) > 1e-4  # a reference is not its own neighbour
