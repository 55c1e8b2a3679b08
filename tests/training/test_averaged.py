"""Frozen features averaged over all views of an image, in which clusters are found."""

import numpy as np
import pytest
import torch
from torch import nn

from helping.tasks import adapted
from newfound.kmeans import kmeans
from newfound.sources.vectors import Embeddings
from newfound.training.task import EVALUATED, Averaged, Pretrained

DIM, VIEWS = 6, 5


def views_of(images, seed=0):
    return np.random.default_rng(seed).normal(size=(images, VIEWS, DIM)).astype(np.float32)


class Curved(nn.Module):
    """A tail that is not linear: the mean of what it makes of views is not what it makes of their mean."""

    def forward(self, tokens):
        return tokens.exp()


@pytest.mark.parametrize("images", [1, EVALUATED // VIEWS, 3 * EVALUATED + 1])
def test_they_are_the_mean_of_what_the_tail_makes_of_each_view(images):
    views = views_of(images)
    averaged = Averaged(Pretrained(Embeddings(views), Curved, DIM))
    np.testing.assert_allclose(averaged.features, np.exp(views).mean(axis=1), rtol=1e-5)


def test_an_adapter_is_standardised_by_the_evaluation_views_as_before():
    plain = adapted(Embeddings(views_of(40)), DIM)
    averaged = Averaged(plain)
    state, expected = averaged.new_tail().state_dict(), plain.new_tail().state_dict()
    assert torch.equal(state["mean"], expected["mean"])
    assert torch.equal(state["scale"], expected["scale"])


def test_with_a_single_view_nothing_changes():
    plain = adapted(Embeddings(views_of(40)[:, 0]), DIM)
    assert Averaged(plain).features.tobytes() == plain.features.tobytes()


def test_clusters_are_clearer_where_views_differ_more_than_classes():
    random = np.random.default_rng(1)
    true = np.arange(4).repeat(30)
    views = (random.normal(size=(4, DIM))[true][:, None] * 2 + 2 * random.normal(size=(120, 9, DIM))).astype(np.float32)
    plain = adapted(Embeddings(views), DIM)

    def together(features):
        """Share of the pairs of images on which clusters and classes agree."""
        clusters = kmeans(features, 4, seed=0).clusters
        return ((clusters[:, None] == clusters) == (true[:, None] == true)).mean()

    assert together(Averaged(plain).features) > together(plain.features) + 0.1
