import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage

from helping.contract import new_journal
from helping.groups import CLASSES, DIM, LABELS, SOURCE, N
from helping.tasks import adapted, decided_for, fitted, new_task
from newfound.methods import cms
from newfound.methods.cms import cluster, cms_losses, decoupled_contrast, mean_shift, shifted
from newfound.neighbours import nearest_neighbours
from newfound.random_streams import MEMORY_VIEWS
from newfound.runs.journal import MemoryJournal
from newfound.runs.tensor_files import load_tensors
from newfound.sources.vectors import Embeddings
from newfound.training.loop import train

LOSSES = ["cms_losses_00", "cms_losses_01"]
CLUSTERINGS = ["cms_clustering_00", "cms_clustering_01"]


def loaded(golden, case):
    return {k: torch.tensor(v) for k, v in np.load(golden / "peers" / f"{case}.npz", allow_pickle=False).items()}


def losses_of(data, embeddings, **other):
    how = {"k": int(data["neighbours_wanted"]), "alpha": float(data["alpha"])} | other
    return cms_losses(embeddings, data["labels"], data["memory"], temperature=float(data["temperature"]), **how)


def unit(*shape, seed=0, dtype=torch.float64):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1)


def partition(clusters):
    """Whatever the clusters are called."""
    groups = {}
    for i, c in enumerate(np.asarray(clusters).tolist()):
        groups.setdefault(c, []).append(i)
    return sorted(groups.values())


def blobs(groups=5, each=12, dim=16, seed=0):
    """Well separated groups of unit rows, one after the other."""
    random = np.random.default_rng(seed)
    centres = np.eye(dim)[:groups]
    rows = (centres[:, None] + random.normal(scale=0.05, size=(groups, each, dim))).reshape(-1, dim)
    return F.normalize(torch.tensor(rows, dtype=torch.float32), dim=1), np.repeat(np.arange(groups), each)


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


@pytest.mark.parametrize("case", CLUSTERINGS)
def test_clustering_matches_the_released_implementation(golden, case):
    data = loaded(golden, case)
    k, alpha, classes = int(data["neighbours_wanted"]), float(data["alpha"]), int(data["num_classes"])
    rows = data["embeddings"]
    for t, (expected, heights, clusters) in enumerate(
        zip(data["shifted"], data["merge_heights"], data["clusters"], strict=True)
    ):
        rows = shifted(rows, k, alpha) if t else rows
        np.testing.assert_allclose(rows, expected, atol=2e-6, rtol=0)  # single precision
        np.testing.assert_allclose(linkage(rows.numpy(), "ward")[:, 2], heights, atol=1e-5, rtol=0)
        assert partition(cms.ward_cut(rows.numpy(), classes)) == partition(clusters)
    cut = cluster(data["embeddings"], data["labels"].numpy(), classes, k=k, alpha=alpha)
    chosen = int(data["chosen"])
    assert cut.accuracies == pytest.approx(data["labelled_accuracy"].tolist(), abs=1e-12)
    assert cut.shifts == chosen
    np.testing.assert_allclose(cut.rows, data["shifted"][chosen], atol=2e-6, rtol=0)
    assert partition(cut.classes) == partition(data["clusters"][chosen])


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


def test_in_a_memory_of_the_batch_a_row_drops_itself():
    rows = unit(10, 5)
    expected = torch.stack(
        [rows[[j for j in row if j != i]].mean(dim=0) for i, row in enumerate(by_similarity(rows, 4))]
    )
    np.testing.assert_allclose(mean_shift(rows, rows, 3, 1.0), F.normalize(expected, dim=1), atol=1e-12)
    np.testing.assert_allclose(mean_shift(rows, rows, 3, 0.5), shifted(rows, 3, 0.5), atol=1e-12)


def by_similarity(rows, count):
    return (-(rows @ rows.T)).argsort(dim=1)[:, :count].tolist()


def test_exactly_one_is_dropped_the_first_of_equals():
    memory = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    moved = mean_shift(torch.tensor([[1.0, 0.0]]), memory, 1, 1.0)
    assert moved.tolist() == [[1.0, 0.0]]  # its copy, row 1, is left


def test_no_gradient_reaches_the_memory():
    embeddings, memory = unit(8, 5).requires_grad_(), unit(20, 5, seed=1).requires_grad_()
    cms_losses(embeddings, torch.tensor([0, 1, 0, -1]), memory, temperature=0.3)["total"].backward()
    assert memory.grad is None
    assert embeddings.grad.any()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_small_memory_gives_what_it_has(rows):
    embeddings, memory = unit(4, 5).requires_grad_(), unit(rows, 5, seed=1)
    moved = mean_shift(embeddings, memory, 8, 0.5)
    rest = (-(embeddings @ memory.T)).argsort(dim=1)[:, 1:]
    mean = memory[rest].mean(dim=1) if rows > 1 else embeddings
    np.testing.assert_allclose(moved.detach(), F.normalize(embeddings + mean, dim=1).detach(), atol=1e-12)


def test_one_image_has_nothing_to_be_set_against():
    embeddings = unit(2, 5).requires_grad_()
    parts = cms_losses(embeddings, torch.tensor([-1]), unit(10, 5, seed=1), temperature=0.3)
    assert parts["total"].item() == 0.0
    assert not torch.autograd.grad(parts["total"], embeddings)[0].any()


def test_a_row_opposite_to_its_neighbours_gives_no_nan():
    """Half of it and half of their mean are nothing, which has no direction."""
    embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 2, requires_grad=True)
    memory = torch.tensor([[-1.0, 0.0]]).repeat(4, 1)
    assert not mean_shift(embeddings, memory, 2, 0.5)[0].any()
    loss = cms_losses(embeddings, torch.tensor([-1, -1]), memory, temperature=0.3, k=2)["total"]
    assert loss.isfinite()
    assert torch.autograd.grad(loss, embeddings)[0].isfinite().all()


# The classes.


def test_separated_groups_are_found_and_the_last_of_equal_cuts_is_kept():
    rows, truth = blobs()
    labels = np.where((truth < 3) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    cut = cluster(rows, labels, 5)
    assert cut.accuracies == [1.0, 1.0, 1.0]
    assert cut.shifts == 2
    assert cut.classes.tolist() == truth.tolist()  # known ones by label, new ones by their lowest member
    np.testing.assert_allclose(cut.rows.norm(dim=1), 1.0, atol=1e-6)  # single precision


def test_new_classes_come_after_the_known_in_the_order_of_their_lowest_members():
    rows, truth = blobs(groups=4)
    labels = np.full(len(truth), -1)
    labels[truth == 3], labels[truth == 1] = 0, 1
    assert cluster(rows, labels, 4).classes.tolist() == np.array([2, 1, 3, 0])[truth].tolist()


@pytest.mark.parametrize(
    ("accuracies", "kept"),
    [
        ([0.5, 0.5, 0.5], 2),
        ([0.9, 0.8, 0.7], 0),
        ([0.5, 0.6, 0.5, 0.7, 0.7, 0.6], 4),  # one worse cut is forgiven
        ([0.1 + 0.04 * t for t in range(20)], 19),  # twenty cuts and no more, the best of them is kept
    ],
)
def test_when_it_stops_and_what_it_keeps(monkeypatch, accuracies, kept):
    """100 labelled images of one class, of which the share asked for is in one cluster, the others in one each."""
    shares = iter(accuracies)

    def cut(rows, n_clusters):
        clusters = np.arange(100)
        clusters[: round(100 * next(shares))] = 0
        return clusters

    monkeypatch.setattr(cms, "ward_cut", cut)
    found = cluster(unit(100, 3), np.zeros(100, dtype=np.int64), 2)
    assert found.shifts == kept
    assert found.accuracies == pytest.approx(accuracies)


def test_shuffled_images_have_the_same_clusters():
    rows, _ = blobs(groups=6, each=8, seed=1)
    rows = F.normalize(rows + 0.2 * unit(48, 16, seed=2, dtype=torch.float32), dim=1)
    labels = np.where(np.arange(48) % 3 == 0, np.minimum(np.arange(48) // 8, 2), -1)
    order = np.random.default_rng(0).permutation(48)
    straight, mixed = cluster(rows, labels, 6), cluster(rows[order], labels[order], 6)
    back = np.empty(48, dtype=np.int64)
    back[order] = mixed.classes
    assert partition(back) == partition(straight.classes)
    assert mixed.accuracies == pytest.approx(straight.accuracies)


def test_the_same_input_gives_the_same_bytes():
    rows, labels = unit(60, 8, dtype=torch.float32), np.where(np.arange(60) < 20, np.arange(60) % 3, -1)
    one, two = cluster(rows, labels, 7), cluster(rows, labels, 7)
    assert one.classes.tobytes() == two.classes.tobytes()
    assert one.rows.numpy().tobytes() == two.rows.numpy().tobytes()


def test_all_rows_move_at_once_from_where_they_were():
    rows = torch.eye(3)
    assert shifted(rows, 1, 1.0).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert rows.tolist() == torch.eye(3).tolist()


@pytest.mark.parametrize(
    ("n", "n_classes", "labels"),
    [
        (4, 2, [0, -1, -1, -1]),  # k is more than the number of others
        (6, 6, [0, 1, -1, -1, -1, -1]),  # as many classes as images
        (6, 3, [0, 0, -1, -1, -1, -1]),  # one labelled class
        (6, 3, [0, 1, 2, 0, 1, 2]),  # no unlabelled image
        (6, 3, [-1] * 6),  # no labelled image
        (1, 1, [0]),
        (2, 5, [0, 1]),  # more classes than images
    ],
)
def test_edges(n, n_classes, labels):
    cut = cluster(unit(n, 4, dtype=torch.float32), np.array(labels), n_classes)
    assert len(set(cut.classes.tolist())) == min(n, n_classes)
    assert cut.classes.min() >= 0
    assert cut.classes.max() < max(n_classes, 1)
    assert len(cut.accuracies) >= 3
    assert cut.rows.isfinite().all()


def test_copies_of_images():
    rows = unit(3, 4, dtype=torch.float32).repeat_interleave(12, dim=0)  # more copies than neighbours
    labels = np.where(np.arange(36) == 0, 0, -1)
    assert partition(cluster(rows, labels, 3).classes) == partition(np.arange(36) // 12)
    assert len(set(cluster(rows, labels, 5).classes.tolist())) == 5  # ties of height 0 still give five
    everything = cluster(rows[:12], labels[:12], 3)
    assert len(set(everything.classes.tolist())) == 3


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
        found.predictor.classifier.weight, cms.class_means(own.features, cut.classes, CLASSES)
    )  # for other samples: the nearest mean of the embeddings themselves


def test_the_class_of_the_cut_is_on_top_also_where_another_mean_is_nearer():
    rows = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.3, 1.0]]), dim=1)
    cut = cms.Cut(np.array([0, 0, 1, 1, 0]), rows, 0, [1.0])  # the last one is nearer to class 1
    means = cms.class_means(rows, cut.classes, 3)
    nearest = torch.cdist(rows, means).argmin(dim=1)
    assert nearest.tolist() == [0, 0, 1, 1, 1]
    probabilities = cms.cut_probabilities(cut, 3)
    assert probabilities.argmax(dim=1).tolist() == [0, 0, 1, 1, 0]
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(5))
    assert probabilities[:, 2].max() < 1e-6  # nothing is in the third class
