"""Dense groups as classes: which of them are known ones, and how many there are."""

import numpy as np
import pytest

from helping.contract import FAR_APART
from helping.groups import CLASSES, KNOWN, LABELS, TRUE, N
from newfound import hdbscan
from newfound.hdbscan import count_dense, named_clusters

ROWS = FAR_APART.evaluation(np.arange(N)).numpy()


def test_a_cluster_without_labelled_images_is_nobodys():
    clusters, labels = np.array([0, 0, 1, 1, -1]), np.array([1, -1, -1, -1, 0])
    assert named_clusters(clusters, labels, n_known=2).tolist() == [1, 1, 2, 2, -1]


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([0, 0, 0, 0, 0, -1], [0, 0, 0, 0, 0, 0]),  # the second group's labels agree
        ([0, 0, 0, 0, -1, -1], [0, 0, 0, 1, 1, 1]),  # a single one may be a mistake
        ([0, 0, 0, 0, 1, -1], [0, 0, 0, 1, 1, 1]),  # another class claims the second group
        ([-1, -1, -1, 0, 0, 0], [1, 1, 1, 0, 0, 0]),  # no label says anything about the first one
    ],
)
def test_a_second_group_of_a_known_class_has_its_name(labels, named):
    clusters = np.repeat([0, 1], 3)
    assert named_clusters(clusters, np.array(labels), max(labels) + 1).tolist() == named


def test_a_group_whose_labels_differ_is_new_if_nobody_claims_it():
    clusters, labels = np.repeat([0, 1, 2], 4), np.array([0, 0, 0, -1, 1, 1, 1, -1, 0, 1, 0, 1])
    assert named_clusters(clusters, labels, n_known=2).tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_the_count_is_that_of_the_classes():
    found = count_dense(ROWS, LABELS)
    assert (found.classes, found.known) == (CLASSES, KNOWN)
    assert str(found).startswith("6 classes by density, 3 of them known; ")


def test_a_class_in_two_places_is_counted_once(monkeypatch):
    """Groups 0 and 1 have the same label."""
    monkeypatch.setattr(hdbscan, "density_clusters", lambda *_: TRUE)
    found = count_dense(ROWS, np.where(LABELS > 0, LABELS - 1, LABELS))
    assert (found.classes, found.known) == (CLASSES - 1, KNOWN - 1)
