"""Directions whose cosines say what given probabilities say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from newfound import imitation
from newfound.imitation import _cross_entropy, imitated, nearest_direction, unit

TEMPERATURE = 0.1


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def planted(seed, images=60, dim=8, classes=4):
    """Features, directions, and what these say of them."""
    random = np.random.default_rng(seed)
    features, directions = (unit(random.normal(size=(n, dim))).astype(np.float32) for n in (images, classes))
    return features, directions, softmax(features @ directions.T / TEMPERATURE).astype(np.float32)


def loss(directions, features, probabilities):
    """Image by image."""
    said = softmax(features.astype(float) @ unit(directions.astype(float)).T / TEMPERATURE)
    return float(
        np.mean([-(wanted * np.log(p)).sum() for wanted, p in zip(probabilities.astype(float), said, strict=True)])
    )


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_what_one_classifier_says_is_imitated(seed):
    features, directions, probabilities = planted(seed)
    found = imitated(features, probabilities, TEMPERATURE)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    agree = nearest_direction(features, found) == nearest_direction(features, directions)
    assert agree.mean() > 0.9
    assert loss(found, features, probabilities) < loss(directions, features, probabilities) + 0.01


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 300))
def test_the_loss_and_its_gradient_are_those_of_a_naive_loop(seed, cells):
    features, _, probabilities = planted(seed, images=9, dim=3, classes=3)
    weight = np.random.default_rng(seed + 1).normal(size=(3, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imitation, "CELLS", cells)
        value, slope = _cross_entropy(weight, features, probabilities, TEMPERATURE)
    assert value == pytest.approx(loss(weight, features, probabilities), rel=1e-4)
    expected = approx_fprime(weight.ravel(), lambda w: loss(w.reshape(3, 3), features, probabilities), 1e-7)
    np.testing.assert_allclose(slope.ravel(), expected, atol=1e-3 * max(1, np.abs(expected).max()))


def test_groups_that_probabilities_split_otherwise_than_features():
    """A few images of another class than all around them do not pull its direction away."""
    features, _, _ = planted(0, images=40, dim=4)
    groups = features @ np.float32([1, 0, 0, 0]) > 0
    probabilities = np.where(groups[:, None], [0.9, 0.1], [0.1, 0.9]).astype(np.float32)
    probabilities[:2] = probabilities[:2, ::-1]
    said = nearest_direction(features, imitated(features, probabilities, TEMPERATURE))
    assert (said[2:] == np.where(groups, 0, 1)[2:]).mean() > 0.8


def test_a_class_without_images_attracts_none():
    features = unit(np.float32([[1, 0.1], [1, -0.1], [0.9, 0], [0.8, 0.3]]))
    probabilities = np.float32([[1, 0]] * 4)
    found = imitated(features, probabilities, TEMPERATURE)
    assert np.isfinite(found).all()
    assert nearest_direction(features, found).tolist() == [0] * 4
