"""The scores that speak for a number of classes, against their definitions."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from newfound.count_criteria import Accuracy, Silhouette
from newfound.evaluate import cluster_accuracy


def naive_accuracy(labels, clusters):
    """Over all ways to give each class a cluster of its own, or none."""
    classes = sorted(set(labels) - {-1})
    shares = Counter((c, k) for c, k in zip(labels, clusters, strict=True) if c >= 0)
    choices = [*set(clusters), *(("none", c) for c in classes)]
    ways = itertools.permutations(choices, len(classes))
    return max(sum(shares[pair] for pair in zip(classes, way, strict=True)) for way in ways) / sum(shares.values())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([-1, 3, 5, 60]), st.integers(0, 4)), min_size=1, max_size=20))
def test_the_score_is_the_best_matching_of_clusters_and_labelled_classes(rows):
    labels, clusters = np.array([*rows, (3, 0)]).T
    criterion = Accuracy(labels)
    score = criterion.values(clusters).sum() / criterion.sizes.sum()
    assert score == pytest.approx(naive_accuracy(labels.tolist(), clusters.tolist()))
    labelled = labels >= 0
    matched = cluster_accuracy(labels[labelled], clusters[labelled], labelled[labelled]).all
    assert score == pytest.approx(matched)


def naive_silhouette(places, clusters, i):
    own = [j for j in range(len(places)) if clusters[j] == clusters[i] and j != i]
    if not own:
        return 0.0
    inside = np.mean([np.linalg.norm(places[i] - places[j]) for j in own])
    others = [np.linalg.norm(places[i] - places[clusters == c], axis=1).mean() for c in set(clusters) - {clusters[i]}]
    return (min(others) - inside) / max(min(others), inside)


def test_without_labels_the_score_is_the_silhouette():
    random = np.random.default_rng(0)
    places = random.normal(size=(12, 3)).astype(np.float32)
    criterion = Silhouette(places, 0)
    clusters = np.array([0, 0, 0, 1, 1, 5, 5, 5, 5, 1, 7, 0])
    assert_allclose(criterion.values(clusters), [naive_silhouette(places, clusters, i) for i in range(12)], atol=1e-5)
    assert not criterion.values(np.zeros(12, dtype=int)).any()
    assert not criterion.values(np.arange(12)).any()
