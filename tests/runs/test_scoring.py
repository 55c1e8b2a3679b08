"""Which anchors are clean, by the matching of the whole prediction."""

import numpy as np

from newfound.runs.scoring import Truth


def truth(classes, images):
    classes = np.array(classes)
    names = tuple("abcdefgh"[: classes.max() + 1])
    return Truth(np.array(images), classes, classes < 1, without_truth=0, names=names)


def test_an_anchor_is_clean_where_its_cluster_is_matched_with_its_class():
    predicted = np.array([5, 5, 5, 2, 2, 0])
    found = truth([0, 0, 1, 1, 1], images=[0, 1, 2, 3, 4]).clean(
        predicted, np.array([0, 2, 3, 5]), np.array([5, 5, 2, 0])
    )
    assert found.tolist() == [True, False, True, False]  # of the last image the truth is not known


def test_a_class_that_no_image_was_put_into_is_matched_with_none():
    found = truth([0, 0, 1], images=[0, 1, 2]).clean(np.array([0, 0, 0]), np.array([2]), np.array([1]))
    assert found.tolist() == [False]
