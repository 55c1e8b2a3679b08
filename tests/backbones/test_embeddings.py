import copy

import numpy as np
import pytest
import torch

from newfound.backbones.adapter import FEATURE_NORM, AdapterTail
from newfound.evaluate import cluster_accuracy
from newfound.methods import sdas
from newfound.methods.kmeans import kmeans
from newfound.methods.simgcd import SimGCD
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.sources.vectors import Embeddings, draw_view_pair
from newfound.training.loop import Job, training_pair
from newfound.training.start import start_at_clusters


def test_the_tail_starts_as_the_standardised_input():
    features = torch.rand(200, 32) * 7 + 3  # non-negative and far from the origin, as pooled features are
    tail = AdapterTail(32)
    tail.fit_standardisation(features.split(30))
    out = tail(features)
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(32), atol=1e-4, rtol=0)
    assert out.square().sum(dim=1).mean().sqrt().item() == pytest.approx(FEATURE_NORM, rel=1e-4)
    one, two = features[:1] - features.mean(dim=0), out[:1]
    assert torch.nn.functional.cosine_similarity(one, two).item() == pytest.approx(1, abs=1e-5)  # one scale for all


def test_scale_and_place_of_the_embeddings_do_not_matter():
    features = torch.randn(50, 8)
    outputs = []
    for moved in (features, features * 1000 + 5):
        torch.manual_seed(0)
        tail = AdapterTail(8)
        tail.fit_standardisation([moved])
        outputs.append(tail(moved))
    torch.testing.assert_close(*outputs, atol=1e-3, rtol=1e-3)


def test_identical_embeddings_stay_finite():
    tail = AdapterTail(8)
    tail.fit_standardisation([torch.ones(5, 8)])
    assert tail(torch.ones(5, 8)).isfinite().all()


def test_statistics_are_saved_with_the_tail():
    tail, other = AdapterTail(8), AdapterTail(8)
    tail.fit_standardisation([torch.randn(20, 8)])
    other.load_state_dict(tail.state_dict())
    x = torch.randn(3, 8)
    assert torch.equal(tail(x), other(x))


def test_views_of_a_pair_differ_where_they_can():
    first, second = draw_view_pair(4, 500, seed=0, step=1)
    assert (first != second).all()
    assert set(first) == set(second) == {0, 1, 2, 3}
    first, second = draw_view_pair(1, 5, seed=0, step=1)
    assert (first == second).all()


def test_first_view_is_for_evaluation_only():
    rows = np.arange(2 * 4 * 1, dtype=np.float32).reshape(2, 4, 1)  # sample 0: views 0..3, sample 1: views 4..7
    source = Embeddings(rows)
    assert source.evaluation([1, 0]).flatten().tolist() == [4.0, 0.0]
    pair = training_pair(source, np.array([0, 1] * 100), 0, 0)
    assert pair.shape == (400, 1)
    assert set(pair.flatten().tolist()) == {1.0, 2.0, 3.0, 5.0, 6.0, 7.0}


def test_bad_embeddings_are_named():
    with pytest.raises(ValueError, match="found shape"):
        Embeddings(np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        Embeddings(np.array([[1.0, np.nan]]))


@pytest.mark.usefixtures("small_projector")
@pytest.mark.parametrize("views", [None, 5])
def test_embeddings_of_anything_are_sorted(tmp_path, views):
    """Five groups in 20 dimensions, three of them half-labelled: the same loop as for images."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 40)
    centres = random.normal(size=(5, 20)) * 3
    shape = (200, 20) if views is None else (200, views, 20)
    x = centres[truth].reshape(200, *([1] * (len(shape) - 2)), 20) + random.normal(size=shape)
    labels = np.where((truth < 3) & (np.arange(200) % 2 == 0), truth, -1)
    settings = Settings(5, epochs=6, batch_size=64, device="cpu").resolved(3, 200, 20)
    source, tail = Embeddings(x), AdapterTail(20)
    tail.fit_standardisation([source.evaluation(range(200))])
    frozen = tail(source.evaluation(range(200))).detach().numpy()

    def new_model():
        torch.manual_seed(0)
        model = SimGCD(copy.deepcopy(tail), 20, settings)
        start_at_clusters(model.classifier, frozen, kmeans(frozen, 5, 0).clusters, labels)
        return model

    run = RunFolder(tmp_path)
    with run.begun(settings, {}):
        trained = sdas.fit(Job(source, labels, settings, run, Screen(quiet=True)), new_model)
    accuracy = cluster_accuracy(truth, trained.prediction.classes.numpy(), truth < 3)
    assert accuracy.old > 0.95
    assert accuracy.new > 0.95
