"""k-means as a method: nothing is trained, and the table is the nearest centre."""

import numpy as np
import torch

from helping.contract import new_journal
from helping.groups import CLASSES, KNOWN, LABELS, SOURCE, TRUE, UNLABELLED, N
from helping.tasks import adapted, decided_for, new_task
from newfound.evaluate import cluster_accuracy
from newfound.kmeans import kmeans
from newfound.methods.kmeans import fit
from newfound.runs.journal import MemoryJournal
from newfound.sources.vectors import Embeddings


def trained_and_task(source=SOURCE, labels=LABELS, classes=CLASSES, journal=None):
    settings = decided_for("kmeans", labels, classes)
    task = new_task(settings, adapted(source), labels, journal=journal)
    return fit(task, settings.method), task


def test_classes_are_the_clusters_under_the_names_of_known_classes():
    journal = MemoryJournal()
    trained, task = trained_and_task(journal=journal)
    found = trained.prediction.classes.numpy()
    clusters = kmeans(task.frozen(), CLASSES, 0).clusters
    pairs = set(zip(clusters.tolist(), found.tolist(), strict=True))
    assert len(pairs) == CLASSES  # the same grouping, renamed
    assert (found[LABELS >= 0] == LABELS[LABELS >= 0]).mean() > 0.9
    assert cluster_accuracy(TRUE[UNLABELLED], found[UNLABELLED], TRUE[UNLABELLED] < KNOWN).all > 0.9
    assert not journal.entries  # no training, no log


def test_the_clusters_are_kept_by_the_run(tmp_path):
    first, task = trained_and_task(journal=new_journal(tmp_path))
    kept = task.journal.kept("kmeans")
    assert kept["clusters"].numpy().tolist() == kmeans(task.frozen(), CLASSES, 0).clusters.tolist()
    task.journal.keep("kmeans", {**kept, "centres": kept["centres"].flip(0)})
    again, _ = trained_and_task(journal=new_journal(tmp_path))
    assert not torch.equal(again.predictor.classifier.weight, first.predictor.classifier.weight)  # read, not made again


def test_probabilities_fall_with_the_distance():
    trained, _ = trained_and_task()
    unit = torch.nn.functional.normalize(trained.prediction.features, dim=1)
    distances = torch.cdist(unit, trained.predictor.classifier.weight)
    assert torch.equal(distances.argsort(dim=1), trained.prediction.probabilities.argsort(dim=1, descending=True))
    assert torch.allclose(trained.prediction.probabilities.sum(dim=1), torch.ones(N))


def test_fewer_different_images_than_classes_leave_classes_empty():
    rows = np.repeat(np.eye(4, 16), 3, axis=0)
    labels = np.array([0, 0, -1, 1, -1, -1, 2, 2, -1, -1, -1, -1])
    trained, _ = trained_and_task(Embeddings(rows), labels, classes=6)
    found = trained.prediction.classes.numpy()
    assert found.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
