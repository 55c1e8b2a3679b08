import numpy as np
import pytest

from newfound.report import findings
from newfound.report.findings import duplicate_groups, similar_classes, similar_pairs, wrong_labels
from newfound.runs.nearest_class import nearest_classes
from newfound.similar_images import nearest, nearest_among, unit_rows


def blobs(sizes, dim=16, spread=0.15, seed=0):
    """Points around orthogonal directions, and which is around which."""
    random = np.random.default_rng(seed)
    classes = np.repeat(np.arange(len(sizes)), sizes)
    return np.eye(dim)[classes] + random.normal(0, spread, (len(classes), dim)), classes


def unsure(n):
    return np.full(n, 0.05)


# Neighbours


@pytest.mark.parametrize("cells", [1, 500, 1 << 20])
def test_neighbours_are_those_of_a_full_table(monkeypatch, cells):
    monkeypatch.setattr("newfound.similar_images.CELLS", cells)
    unit = unit_rows(np.random.default_rng(1).normal(size=(60, 5)))
    queries = np.array([3, 59, 0, 17])
    table = unit @ unit.T
    np.fill_diagonal(table, -np.inf)
    assert nearest(unit, queries, 7).tolist() == np.argsort(-table, axis=1, kind="stable")[queries, :7].tolist()


def test_neighbours_where_there_are_hardly_any():
    assert nearest(unit_rows(np.eye(2)), np.array([0, 1]), 5).tolist() == [[1], [0]]
    assert nearest(unit_rows(np.eye(1)), np.array([0]), 5).shape == (1, 0)


def test_nearest_among_others(monkeypatch):
    monkeypatch.setattr("newfound.similar_images.CELLS", 50)
    random = np.random.default_rng(2)
    points, others = random.normal(size=(20, 3)).astype(np.float32), random.normal(size=(30, 3)).astype(np.float32)
    index, distance = nearest_among(points, others, 4)
    full = np.linalg.norm(points[:, None] - others, axis=2)
    np.testing.assert_array_equal(index, np.argsort(full, axis=1)[:, :4])
    np.testing.assert_allclose(distance, np.sort(full, axis=1)[:, :4], rtol=1e-5)


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


# Duplicates


@pytest.mark.parametrize("cells", [1, 3000, 1 << 22])
@pytest.mark.parametrize("dim", [8, 100, 200])
def test_pairs_are_those_of_a_full_table(monkeypatch, cells, dim):
    monkeypatch.setattr(findings, "CELLS", cells)
    random = np.random.default_rng(3)
    rows = random.normal(size=(120, dim))
    rows[60:90] = rows[:30] + random.normal(0, 1, (30, dim)) * random.uniform(0.05, 0.25, (30, 1))  # around 0.99
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    first, second = np.nonzero(np.triu(unit @ unit.T >= 0.99, 1))
    pairs = similar_pairs(rows, 0.99)
    assert 5 < len(first) < 30
    assert sorted(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == list(
        zip(first, second, strict=True)
    )


def test_planted_copies_come_as_groups_the_most_alike_first():
    random = np.random.default_rng(4)
    rows = random.normal(size=(50, 30))
    rows[[10, 20, 30]] = rows[5]
    rows[41] = rows[7] + 0.08 * random.normal(size=30)
    groups = duplicate_groups(similar_pairs(rows, 0.98))
    assert [group.images for group in groups] == [(5, 10, 20, 30), (7, 41)]
    assert groups[0].similarity == pytest.approx(1)
    assert 0.98 <= groups[1].similarity < 1


def test_pairs_found_in_two_ways_make_one_group():
    a = similar_pairs(np.array([[1, 0], [1, 0], [0, 1.0]]), 0.9)
    b = similar_pairs(np.array([[1, 0], [1, 0.0]]), 0.9).of(np.array([1, 7]))
    assert [group.images for group in duplicate_groups(a, b)] == [(0, 1, 7)]
    assert duplicate_groups(similar_pairs(np.eye(3), 0.9)) == []


def test_a_thousand_copies_of_one_image_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(findings, "MOST_PAIRS", 5000)
    pairs = similar_pairs(np.ones((1000, 4)), 0.98)
    assert len(pairs.first) <= 10_000


def test_rows_that_are_no_direction_are_like_nothing():
    rows = np.array([[0, 0], [0, 0], [np.nan, 1], [np.inf, 1], [1, 0.0]])
    assert len(similar_pairs(rows, 0.9).first) == 0


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
