"""Whitening by the scatter within classes, beside naive loops and by its properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power
from scipy.stats import ortho_group

from newfound import whitening
from newfound.whitening import NONE, Spectrum, length_kept, scatter_of_groups, whitening_matrix, within_class_scatter

DIM = 5


def labelled_rows(seed=0, images=40, dim=DIM, classes=3, views=()):
    """Rows that scatter more in some directions than in others, around the mean of their class; some unlabelled."""
    random = np.random.default_rng(seed)
    labels = np.where(random.random(images) < 0.2, -1, random.integers(classes, size=images))
    spread = random.normal(size=(dim, dim))
    rows = random.normal(size=(images, *views, dim)) @ spread
    centres = 5 * random.normal(size=(classes, dim))[labels]
    return rows + centres.reshape(images, *([1] * len(views)), dim), labels


def naive_scatter(rows, labels):
    """Row by row."""
    total, count = np.zeros((rows.shape[-1],) * 2), 0
    for k in set(labels.tolist()) - {-1}:
        own = [view for row, label in zip(rows, labels, strict=True) if label == k for view in np.atleast_2d(row)]
        mean = sum(own) / len(own)
        for row in own:
            total += np.outer(row - mean, row - mean)
            count += 1
    return total / count


@pytest.mark.parametrize("views", [(), (4,)])
def test_the_scatter_is_the_mean_of_outer_products(views):
    rows, labels = labelled_rows(views=views)
    np.testing.assert_allclose(within_class_scatter(rows, labels), naive_scatter(rows, labels))


def test_every_class_may_count_alike():
    rows, labels = labelled_rows()
    of_each = [within_class_scatter(rows, np.where(labels == k, k, -1)) for k in range(3)]
    np.testing.assert_allclose(within_class_scatter(rows, labels, by_class=True), np.mean(of_each, axis=0))
    sizes = np.bincount(labels[labels >= 0])
    np.testing.assert_allclose(within_class_scatter(rows, labels), np.average(of_each, axis=0, weights=sizes))


def test_large_groups_are_added_up_in_parts(monkeypatch):
    rows, labels = labelled_rows()
    whole = within_class_scatter(rows, labels)
    monkeypatch.setattr(whitening, "ROWS", 3)
    np.testing.assert_allclose(within_class_scatter(rows, labels), whole)


def test_the_scatter_is_summed_in_double_precision():
    """Single precision would lose a scatter that is small beside the place of the class."""
    random = np.random.default_rng(0)
    rows = (1000 + random.integers(-4, 5, size=(500, DIM)) / 64).astype(np.float32)  # exact in single precision
    labels = np.zeros(500, dtype=np.int64)
    expected = within_class_scatter(rows.astype(np.float64), labels)
    np.testing.assert_allclose(within_class_scatter(rows, labels), expected, rtol=1e-9)


@given(st.integers(0, 10_000))
def test_the_order_of_images_does_not_matter(seed):
    rows, labels = labelled_rows(seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    np.testing.assert_allclose(
        within_class_scatter(rows[order], labels[order]), within_class_scatter(rows, labels), atol=1e-10
    )


@pytest.mark.parametrize("labels", [np.full(4, -1), np.arange(4)], ids=["no labels", "one image per class"])
def test_where_nothing_scatters_features_stay_as_they_are(labels):
    scatter = within_class_scatter(np.random.default_rng(0).normal(size=(4, DIM)), labels)
    assert not scatter.any()
    for shrinkage in (0.0, 0.5, 1.0):
        assert np.array_equal(whitening_matrix(scatter, shrinkage), np.eye(DIM))


def test_copies_of_one_image_do_not_scatter():
    """Their mean is not exactly any of them, but what that leaves is no scatter."""
    rows = np.full((10, DIM), 0.1)
    assert (rows.mean(axis=0) != rows[0]).all()
    assert not within_class_scatter(rows, np.zeros(10, dtype=np.int64)).any()


def test_one_class_is_enough():
    rows = np.random.default_rng(0).normal(size=(30, DIM)) * np.arange(1, DIM + 1)
    matrix = whitening_matrix(within_class_scatter(rows, np.zeros(30, dtype=np.int64)), 0.0)
    assert_round(np.cov((rows @ matrix).T))


def assert_round(covariance):
    """A multiple of the identity."""
    np.testing.assert_allclose(covariance / covariance[0, 0], np.eye(len(covariance)), atol=1e-6)


# The matrix


@given(st.integers(0, 10_000))
def test_whitened_classes_are_round(seed):
    rows, labels = labelled_rows(seed, images=60)
    matrix = whitening_matrix(within_class_scatter(rows, labels), 0.0)
    assert_round(within_class_scatter(rows @ matrix, labels))


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 0.99])
def test_the_matrix_is_the_inverse_root_of_the_shrunk_scatter(shrinkage):
    scatter = within_class_scatter(*labelled_rows())
    shrunk = (1 - shrinkage) * scatter / (np.trace(scatter) / DIM) + shrinkage * np.eye(DIM)
    np.testing.assert_allclose(whitening_matrix(scatter, shrinkage), fractional_matrix_power(shrunk, -0.5), atol=1e-9)


def test_a_shrinkage_of_one_is_exactly_none():
    assert np.array_equal(whitening_matrix(within_class_scatter(*labelled_rows()), NONE), np.eye(DIM))


@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.5, 0.9, 0.99]))
def test_turned_features_are_whitened_the_same_way(seed, shrinkage):
    rows, labels = labelled_rows(seed)
    turn = ortho_group.rvs(DIM, random_state=seed)
    plain = whitening_matrix(within_class_scatter(rows, labels), shrinkage)
    turned = whitening_matrix(within_class_scatter(rows @ turn, labels), shrinkage)
    np.testing.assert_allclose(turned, turn.T @ plain @ turn, atol=1e-8)


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e4])
def test_the_length_of_features_does_not_matter(factor):
    scatter = within_class_scatter(*labelled_rows())
    np.testing.assert_allclose(whitening_matrix(factor**2 * scatter, 0.5), whitening_matrix(scatter, 0.5))


def test_fewer_labelled_rows_than_dimensions():
    """The usual case: shrinkage makes up for directions in which nothing was seen to differ."""
    rows, labels = labelled_rows(images=20, dim=60)
    scatter = within_class_scatter(rows, labels)
    matrix = whitening_matrix(scatter, 0.2)
    shrunk = 0.8 * scatter * 60 / np.trace(scatter) + 0.2 * np.eye(60)
    np.testing.assert_allclose(matrix @ shrunk @ matrix, np.eye(60), atol=1e-8)
    assert np.array_equal(matrix, matrix.T)
    with pytest.raises(ValueError, match=r"fewer labelled rows than dimensions: the shrinkage must be above 0"):
        whitening_matrix(scatter, 0.0)


@pytest.mark.parametrize("shrinkage", [-0.1, 1.5, float("nan")])
def test_a_shrinkage_that_is_none_is_refused(shrinkage):
    with pytest.raises(ValueError, match="between 0 and 1; found"):
        whitening_matrix(np.eye(DIM), shrinkage)


def test_one_spectrum_serves_several_shrinkages():
    scatter = within_class_scatter(*labelled_rows())
    spectrum = Spectrum.of(scatter)
    for shrinkage in (0.1, 0.9, 1.0):
        assert np.array_equal(spectrum.whitening(shrinkage), whitening_matrix(scatter, shrinkage))


def test_the_mean_squared_length_is_kept():
    rows, labels = labelled_rows(images=50)
    matrix = length_kept(whitening_matrix(within_class_scatter(rows, labels), 0.1), rows)
    assert np.square(rows @ matrix).sum() == pytest.approx(np.square(rows).sum())
    assert np.array_equal(length_kept(np.eye(DIM), rows), np.eye(DIM))
    assert np.array_equal(length_kept(np.eye(DIM), np.zeros((4, DIM))), np.eye(DIM))


def test_groups_may_come_one_after_another():
    rows, labels = labelled_rows(views=(3,))
    groups = (rows[labels == k] for k in (2, 0, 1))
    np.testing.assert_allclose(scatter_of_groups(groups, DIM), within_class_scatter(rows, labels))
