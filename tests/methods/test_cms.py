import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from helping.contract import new_journal
from helping.groups import CLASSES, DIM, LABELS, SOURCE, N
from helping.tasks import adapted, decided_for, fitted, new_task
from newfound import fitting
from newfound.errors import UserError
from newfound.mean_shift import cluster, mean_shift
from newfound.methods import cms
from newfound.methods.cms import cms_losses, decoupled_contrast
from newfound.neighbours import nearest_neighbours
from newfound.random_streams import MEMORY_VIEWS
from newfound.runs.journal import MemoryJournal
from newfound.runs.tensor_files import load_tensors
from newfound.settings import DataFacts, Settings
from newfound.sources.vectors import Embeddings
from newfound.training.loop import train
from newfound.training.nearest_centre import class_means
from newfound.ward import MOST_ROWS

LOSSES = ["cms_losses_00", "cms_losses_01"]


def loaded(golden, case):
    return {k: torch.tensor(v) for k, v in np.load(golden / "peers" / f"{case}.npz", allow_pickle=False).items()}


def losses_of(data, embeddings, **other):
    how = {"k": int(data["neighbours_wanted"]), "alpha": float(data["alpha"])} | other
    return cms_losses(embeddings, data["labels"], data["memory"], temperature=float(data["temperature"]), **how)


def unit(*shape, seed=0, dtype=torch.float64):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1)


# The golden files: the released implementation, in double precision (losses) and in single (clustering).


@pytest.mark.parametrize("case", LOSSES)
def test_losses_match_the_released_implementation(golden, case):
    data = loaded(golden, case)
    embeddings = F.normalize(data["raw"], dim=1)
    k, alpha = int(data["neighbours_wanted"]), float(data["alpha"])
    neighbours = nearest_neighbours(data["memory"], embeddings, k + 1)[1][:, 1:]
    assert neighbours.tolist() == data["neighbours"].tolist()
    moved = mean_shift(embeddings, data["memory"], k, alpha)
    np.testing.assert_allclose(moved, data["shifted"], atol=1e-10, rtol=0)
    parts = losses_of(data, embeddings)
    assert list(parts) == ["unsupervised", "sup_con", "total"]
    for name, part in parts.items():
        assert part.item() == pytest.approx(data[name].item(), abs=1e-10), name


@pytest.mark.parametrize("case", LOSSES)
def test_gradients_match_the_released_implementation(golden, case):
    data = loaded(golden, case)
    raw = data["raw"].requires_grad_()
    embeddings = F.normalize(raw, dim=1)
    total = losses_of(data, embeddings)["total"]
    by_raw, by_embedding = torch.autograd.grad(total, (raw, embeddings))
    np.testing.assert_allclose(by_raw, data["grad_raw"], atol=1e-9, rtol=0)
    np.testing.assert_allclose(by_embedding, data["grad_embedding"], atol=1e-9, rtol=0)


@pytest.mark.parametrize("case", LOSSES)
def test_a_length_with_a_gradient_is_another_loss(golden, case):
    """The golden gradients tell the two apart, so they do show that the length is a constant."""
    data = loaded(golden, case)
    raw = data["raw"].requires_grad_()
    embeddings = F.normalize(raw, dim=1)
    moved = F.normalize(0.5 * embeddings + 0.5 * data["neighbour_mean"], dim=1)
    parts = losses_of(data, embeddings)
    total = 0.65 * decoupled_contrast(moved, float(data["temperature"])) + 0.35 * parts["sup_con"]
    assert total.item() == pytest.approx(data["total"].item(), abs=1e-10)
    assert (torch.autograd.grad(total, raw)[0] - data["grad_raw"]).abs().max() > 1e-4


# The loss: limits and examples by hand.


def test_by_hand():
    embeddings = torch.eye(2, dtype=torch.float64).repeat(2, 1)
    parts = cms_losses(embeddings, torch.tensor([-1, -1]), embeddings, temperature=1.0, alpha=0.0)
    assert parts["unsupervised"].item() == pytest.approx(math.log(2) - 1, abs=1e-12)
    assert parts["unsupervised"].item() == pytest.approx(-0.306853, abs=1e-6)
    assert parts["sup_con"].item() == 0.0


def naive_contrast(rows, temperature):
    rows, n = rows.tolist(), len(rows)
    loss = 0.0
    for i in range(n):
        similarity = [sum(a * b for a, b in zip(rows[i], row, strict=True)) / temperature for row in rows]
        others = [math.exp(similarity[j]) for j in range(n) if j % (n // 2) != i % (n // 2)]
        loss += math.log(sum(others)) - similarity[(i + n // 2) % n]
    return loss / n


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), images=st.integers(2, 6), temperature=st.sampled_from([0.25, 0.3, 1.0]))
def test_contrast_equals_a_naive_loop(seed, images, temperature):
    rows = unit(2 * images, 4, seed=seed)
    assert decoupled_contrast(rows, temperature).item() == pytest.approx(naive_contrast(rows, temperature), abs=1e-10)


def test_without_shift_it_is_the_plain_contrast():
    """And so is the gradient with respect to the head's raw output: normalisation takes away what goes along a row."""
    raw = torch.randn(12, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    embeddings, memory = F.normalize(raw, dim=1), unit(30, 6, seed=1)
    moved = mean_shift(embeddings, memory, 8, 0.0)
    np.testing.assert_allclose(moved.detach(), embeddings.detach(), atol=1e-12)
    losses = [decoupled_contrast(rows, 0.3) for rows in (moved, embeddings)]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-12)
    gradients = [torch.autograd.grad(loss, raw, retain_graph=True)[0] for loss in losses]
    np.testing.assert_allclose(*gradients, atol=1e-12)


def test_lengths_of_raw_rows_do_not_matter(golden):
    data = loaded(golden, "cms_losses_00")
    lengths = torch.linspace(0.1, 10, len(data["raw"]), dtype=torch.float64)[:, None]
    total = losses_of(data, F.normalize(data["raw"] * lengths, dim=1))["total"]
    assert total.item() == pytest.approx(data["total"].item(), abs=1e-10)


def test_one_image_has_nothing_to_be_set_against():
    embeddings = unit(2, 5).requires_grad_()
    parts = cms_losses(embeddings, torch.tensor([-1]), unit(10, 5, seed=1), temperature=0.3)
    assert parts["total"].item() == 0.0
    assert not torch.autograd.grad(parts["total"], embeddings)[0].any()


def test_no_gradient_reaches_the_memory():
    embeddings, memory = unit(8, 5).requires_grad_(), unit(20, 5, seed=1).requires_grad_()
    cms_losses(embeddings, torch.tensor([0, 1, 0, -1]), memory, temperature=0.3)["total"].backward()
    assert memory.grad is None
    assert embeddings.grad.any()


def test_a_row_opposite_to_its_neighbours_gives_no_nan():
    """Half of it and half of their mean are nothing, which has no direction."""
    embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 2, requires_grad=True)
    memory = torch.tensor([[-1.0, 0.0]]).repeat(4, 1)
    assert not mean_shift(embeddings, memory, 2, 0.5)[0].any()
    loss = cms_losses(embeddings, torch.tensor([-1, -1]), memory, temperature=0.3, k=2)["total"]
    assert loss.isfinite()
    assert torch.autograd.grad(loss, embeddings)[0].isfinite().all()


# Whole runs


class Watching(cms.CMS):
    """Keeps what is in memory during each step."""

    def __init__(self, task, s):
        super().__init__(task, s)
        self.seen = []

    def losses(self, batch):
        self.seen.append((batch.epoch, self.memory["views"]))
        return super().losses(batch)


def trained(source=SOURCE, journal=None, **changes):
    settings = decided_for("cms", **changes)
    task = new_task(settings, adapted(source), journal=journal)
    learner = Watching(task, settings.method)
    train(task, learner)
    return learner


def test_the_views_are_of_length_1_two_of_each_sample_and_made_again_for_each_epoch():
    learner = trained(epochs=3)
    by_epoch = dict(learner.seen)
    assert list(by_epoch) == [0, 1, 2]
    for epoch, views in learner.seen:
        assert views.shape == (2 * N, DIM)
        assert torch.equal(views, by_epoch[epoch])  # all through the epoch
        torch.testing.assert_close(views.norm(dim=1), torch.ones(2 * N))
    assert not torch.allclose(by_epoch[0], by_epoch[1])
    assert not any(views.requires_grad or views.grad is not None for views in by_epoch.values())


def test_the_views_are_those_of_the_learner_before_the_epoch():
    settings = decided_for("cms", epochs=1)
    task = new_task(settings)
    learner = Watching(task, settings.method)
    pair = torch.from_numpy(SOURCE.read_pair(np.arange(N), 0, 0, stream=MEMORY_VIEWS))
    expected = learner.encode(pair).detach()  # first views of all, then second views
    train(task, learner)
    torch.testing.assert_close(learner.seen[0][1], expected)


def test_a_single_view_of_each_sample_is_one_row():
    learner = trained(Embeddings(SOURCE.evaluation(range(N)).numpy()), epochs=1)
    assert {views.shape for _, views in learner.seen} == {(N, DIM)}


def test_the_views_are_not_in_the_checkpoint(tmp_path):
    trained(journal=new_journal(tmp_path))
    tensors, _ = load_tensors(tmp_path / "checkpoint" / "stage1.safetensors")
    of_memory = {name for name in tensors if "memory" in name}
    assert of_memory == {"model.memory.centres", "model.memory.probabilities"}


@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_the_learning_rate_falls_to_its_own_floor(floor):
    journal = MemoryJournal()
    trained(journal=journal, learning_rate=0.2, rate_floor=floor, epochs=4)
    cosine = [(1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(4)]
    expected = [0.2 * (floor + (1 - floor) * share) for share in cosine]
    assert [entry["learning_rate"] for entry in journal.entries] == pytest.approx(expected)


def test_the_floor_is_that_of_the_kind_of_data():
    generic, fine_grained = decided_for("cms", preset="generic"), decided_for("cms", preset="fine-grained")
    assert (generic.learning_rate, generic.method.rate_floor) == (0.01, 1e-3)
    assert (fine_grained.learning_rate, fine_grained.method.rate_floor) == (0.05, 5e-3)


def test_the_prediction_is_the_cut():
    found = fitted(decided_for("cms"))
    own = found.prediction
    cut = cluster(own.features, LABELS, CLASSES)
    assert torch.equal(own.classes, torch.from_numpy(cut.classes))
    torch.testing.assert_close(own.probabilities.sum(dim=1), torch.ones(N))
    assert own.probabilities.min() >= 0
    torch.testing.assert_close(
        found.predictor.classifier.weight, class_means(own.features, cut.classes, CLASSES)
    )  # for other samples: the nearest mean of the embeddings themselves


def test_the_class_of_the_cut_is_on_top_also_where_another_mean_is_nearer():
    rows = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.3, 1.0]]), dim=1)
    cut = cms.Cut(np.array([0, 0, 1, 1, 0]), rows, 0, [1.0])  # the last one is nearer to class 1
    means = class_means(rows, cut.classes, 3)
    nearest = torch.cdist(rows, means).argmin(dim=1)
    assert nearest.tolist() == [0, 0, 1, 1, 1]
    probabilities = cms.cut_probabilities(cut, 3)
    assert probabilities.argmax(dim=1).tolist() == [0, 0, 1, 1, 0]
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(5))
    assert probabilities[:, 2].max() < 1e-6  # nothing is in the third class


def test_more_images_than_it_can_cluster_are_refused_before_anything_is_computed():
    facts = DataFacts(MOST_ROWS + 1, 3, 100, 3, classes=0)
    with pytest.raises(UserError, match="handles at most 20,000 images, and there are 20,001: choose another method"):
        fitting.with_count(Settings(6, method="cms"), facts, None, None, None)
