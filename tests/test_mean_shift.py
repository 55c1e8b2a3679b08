import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.cluster.hierarchy import linkage

from newfound import mean_shift as module
from newfound.mean_shift import cluster, mean_shift, shifted
from newfound.ward import ward_cut

CLUSTERINGS = ["cms_clustering_00", "cms_clustering_01"]


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


# One step towards a memory.


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


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_small_memory_gives_what_it_has(rows):
    embeddings, memory = unit(4, 5).requires_grad_(), unit(rows, 5, seed=1)
    moved = mean_shift(embeddings, memory, 8, 0.5)
    rest = (-(embeddings @ memory.T)).argsort(dim=1)[:, 1:]
    mean = memory[rest].mean(dim=1) if rows > 1 else embeddings
    np.testing.assert_allclose(moved.detach(), F.normalize(embeddings + mean, dim=1).detach(), atol=1e-12)


# Clustering: the golden files are of the released implementation, in single precision.


@pytest.mark.parametrize("case", CLUSTERINGS)
def test_clustering_matches_the_released_implementation(golden, case):
    data = {k: torch.tensor(v) for k, v in np.load(golden / "peers" / f"{case}.npz", allow_pickle=False).items()}
    k, alpha, classes = int(data["neighbours_wanted"]), float(data["alpha"]), int(data["num_classes"])
    rows = data["embeddings"]
    for t, (expected, heights, clusters) in enumerate(
        zip(data["shifted"], data["merge_heights"], data["clusters"], strict=True)
    ):
        rows = shifted(rows, k, alpha) if t else rows
        np.testing.assert_allclose(rows, expected, atol=2e-6, rtol=0)  # single precision
        np.testing.assert_allclose(linkage(rows.numpy(), "ward")[:, 2], heights, atol=1e-5, rtol=0)
        assert partition(ward_cut(rows.numpy(), classes)) == partition(clusters)
    cut = cluster(data["embeddings"], data["labels"].numpy(), classes, k=k, alpha=alpha)
    chosen = int(data["chosen"])
    assert cut.accuracies == pytest.approx(data["labelled_accuracy"].tolist(), abs=1e-12)
    assert cut.shifts == chosen
    np.testing.assert_allclose(cut.rows, data["shifted"][chosen], atol=2e-6, rtol=0)
    assert partition(cut.classes) == partition(data["clusters"][chosen])


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

    monkeypatch.setattr(module, "ward_cut", cut)
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
