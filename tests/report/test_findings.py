import numpy as np

from newfound.nearest_rows import unit_rows
from newfound.report.findings import similar_classes, wrong_labels
from newfound.runs.nearest_class import nearest_classes


def blobs(sizes, dim=16, spread=0.15, seed=0):
    """Points around orthogonal directions, and which is around which."""
    random = np.random.default_rng(seed)
    classes = np.repeat(np.arange(len(sizes)), sizes)
    return np.eye(dim)[classes] + random.normal(0, spread, (len(classes), dim)), classes


def unsure(n):
    return np.full(n, 0.05)


# Labels


def test_a_planted_wrong_label_is_found_and_nothing_else():
    places, classes = blobs([30, 30, 30])
    given = np.where(np.arange(90) % 2, classes, -1)
    given[5] = 2
    found = wrong_labels(places, given, classes, np.full(90, 0.9), unsure(90))
    assert [(item.image, item.given, item.found, item.neighbours) for item in found] == [(5, 2, 0, 1.0)]


def test_a_doubtful_model_is_no_witness():
    places, classes = blobs([30, 30])
    given = classes.copy()
    given[5] = 1
    assert wrong_labels(places, given, classes, np.full(60, 0.25), unsure(60)) == []
    assert wrong_labels(places, given, classes, np.full(60, 0.6), np.full(60, 0.4)) == []


def test_neighbours_that_side_with_the_label_are_believed():
    places, classes = blobs([30, 30])
    found = classes.copy()
    found[5] = 1  # the model alone thinks so
    assert wrong_labels(places, classes, found, np.full(60, 0.9), unsure(60)) == []


def test_what_the_model_confuses_by_habit_is_not_held_against_the_labels():
    places, classes = blobs([40, 40])
    given = classes.copy()
    given[:10] = 1  # a fifth of those labelled 1 go to 0
    assert wrong_labels(places, given, classes, np.full(80, 0.9), unsure(80)) == []


def test_the_surest_come_first_and_the_list_ends():
    places, classes = blobs([40, 40, 40, 40])
    given = classes.copy()
    given[[3, 50, 90]] = [1, 2, 3]
    confidence = np.full(160, 0.8)
    confidence[50] = 0.95
    found = wrong_labels(places, given, classes, confidence, unsure(160))
    assert [item.image for item in found] == [50, 3, 90]
    assert len(wrong_labels(places, given, classes, confidence, unsure(160), most=2)) == 2


def test_nothing_labelled():
    places, classes = blobs([5, 5])
    assert wrong_labels(places, np.full(10, -1), classes, np.ones(10), unsure(10)) == []


# Merges


def test_a_class_torn_in_two_is_found():
    places, classes = blobs([40, 60, 40])
    torn = np.where((classes == 1) & (np.arange(140) % 2 == 0), 3, classes)
    runner_up = np.select([torn == 1, torn == 3], [3, 1], 0)
    found = similar_classes(places, torn, runner_up, n_known=2)
    assert [pair.classes for pair in found] == [(1, 3)]
    assert found[0].mixed > 0.8
    assert found[0].runner_up == 1


def test_two_known_classes_are_never_suggested():
    places, _ = blobs([40])
    torn = np.arange(40) % 2
    assert similar_classes(places, torn, 1 - torn, n_known=2) == []
    assert len(similar_classes(places, torn, 1 - torn, n_known=1)) == 1


def test_classes_apart_and_small_classes_are_left_alone():
    places, classes = blobs([40, 4, 3, 1])
    assert similar_classes(places, classes, (classes + 1) % 4, n_known=1) == []


def test_an_empty_class_is_no_twin():
    places, classes = blobs([10, 10])
    assert similar_classes(places, classes, np.full(20, 2), n_known=0) == []


def test_only_a_nearest_class_may_be_one_with_another():
    """So that no card says "nearest class: one" and "may be one with another" without a reason."""
    places, _ = blobs([60])
    torn = np.arange(60) % 3
    closest = nearest_classes(unit_rows(places), torn, 3)
    found = {pair.classes for pair in similar_classes(places, torn, (torn + 1) % 3, n_known=1)}
    pairs = {(a, b) for a in range(3) for b in range(a + 1, 3)}
    assert found == {(a, b) for a, b in pairs if closest[a] == b or closest[b] == a} < pairs
