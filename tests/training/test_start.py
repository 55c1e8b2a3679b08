import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.kmeans import kmeans
from newfound.training.heads import CosineClassifier
from newfound.training.start import ROW_LENGTH, start_at_clusters


def groups(n_groups, each=12, dim=16, seed=0):
    """Well separated groups, one after the other."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(n_groups, dim)) * 4
    features = (centres[:, None] + random.normal(size=(n_groups, each, dim))).reshape(-1, dim)
    return features.astype(np.float32), np.repeat(np.arange(n_groups), each)


def test_every_group_gets_a_class_of_its_own_and_known_ones_the_right_one():
    features, truth = groups(6)
    labels = np.where((truth < 3) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    classifier = CosineClassifier(16, 6)
    start_at_clusters(classifier, features, kmeans(features, 6, 0).clusters, labels)
    predicted = classifier(torch.from_numpy(features)).argmax(dim=1).numpy()
    assert (predicted[truth < 3] == truth[truth < 3]).all()
    assert len({(t, p) for t, p in zip(truth, predicted, strict=True)}) == 6


def test_rows_are_as_long_as_random_ones():
    features, truth = groups(4)
    classifier = CosineClassifier(16, 4)
    start_at_clusters(classifier, features, truth, np.full(len(truth), -1))
    torch.testing.assert_close(classifier.weight.norm(dim=1), torch.full((4,), ROW_LENGTH))
    assert abs(CosineClassifier(4000, 3).weight.norm(dim=1).mean().item() - ROW_LENGTH) < 0.01


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 8), st.integers(0, 5), st.integers(1, 6))
def test_any_clusters_and_labels_give_finite_directions(seed, n_classes, n_known, n_clusters):
    """Fewer clusters than classes, clusters nobody claims, more known classes than clusters."""
    n_known = min(n_known, n_classes)
    random = np.random.default_rng(seed)
    features = random.normal(size=(30, 5)).astype(np.float32)
    labels = random.integers(-1, n_known, 30) if n_known else np.full(30, -1)
    labels[:n_known] = np.arange(n_known)  # every known class has an image
    clusters = random.integers(0, min(n_clusters, n_classes), 30)
    classifier = CosineClassifier(5, n_classes)
    start_at_clusters(classifier, features, clusters, labels)
    assert classifier.weight.isfinite().all()
    assert classifier.weight.shape == (n_classes, 5)


def test_kmeans_is_repeatable_and_copes_with_copies():
    features, _ = groups(5)
    assert np.array_equal(kmeans(features, 5, 3).clusters, kmeans(features, 5, 3).clusters)
    copies = np.ones((10, 4), dtype=np.float32)
    assert set(kmeans(copies, 3, 0).clusters) <= {0, 1, 2}
