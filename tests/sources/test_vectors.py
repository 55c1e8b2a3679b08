import numpy as np
import pytest

from helping.tasks import adapted, decided_for, fitted
from newfound.evaluate import cluster_accuracy
from newfound.sources.vectors import Embeddings, draw_view_pair


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
    pair = source.read_pair(np.array([0, 1] * 100), 0, 0)
    assert pair.shape == (400, 1)
    assert set(pair.flatten().tolist()) == {1.0, 2.0, 3.0, 5.0, 6.0, 7.0}


def test_bad_embeddings_are_named():
    with pytest.raises(ValueError, match="found shape"):
        Embeddings(np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        Embeddings(np.array([[1.0, np.nan]]))


@pytest.mark.parametrize("views", [None, 5])
def test_embeddings_of_anything_are_sorted(views):
    """Five groups in 20 dimensions, three of them half-labelled: the same loop as for images."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 40)
    centres = random.normal(size=(5, 20)) * 3
    shape = (200, 20) if views is None else (200, views, 20)
    x = centres[truth].reshape(200, *([1] * (len(shape) - 2)), 20) + random.normal(size=shape)
    labels = np.where((truth < 3) & (np.arange(200) % 2 == 0), truth, -1)
    settings = decided_for("sdas", labels, 5, epochs=6, batch_size=64)
    trained = fitted(settings, adapted(Embeddings(x), 20), labels)
    accuracy = cluster_accuracy(truth, trained.prediction.classes.numpy(), truth < 3)
    assert accuracy.old > 0.95
    assert accuracy.new > 0.95
