"""k-means as a method: nothing is trained, and the table is the nearest centre."""

import numpy as np
import torch

from helping.groups import CLASSES, DIM, KNOWN, LABELS, QUIET, SOURCE, TRUE, UNLABELLED, N
from newfound.backbones.adapter import AdapterTail
from newfound.evaluate import cluster_accuracy
from newfound.methods import kmeans
from newfound.methods.simgcd import SimGCD
from newfound.runs.folder import RunFolder
from newfound.settings import Settings
from newfound.sources.vectors import Embeddings
from newfound.training.loop import Job, batches_of


def fitted(path, source=SOURCE, labels=LABELS, classes=CLASSES):
    settings = Settings(classes, method="kmeans", device="cpu").resolved(KNOWN, len(source), 10.0)

    def new_model():
        tail = AdapterTail(DIM, 8)
        tail.fit_standardisation([source.evaluation(range(len(source)))])
        return SimGCD(tail, DIM, settings)

    with torch.inference_mode():
        frozen = torch.cat([new_model().tail(source.evaluation(batch)) for batch in batches_of(source, 64)]).numpy()
    grouping = kmeans.kmeans(frozen, classes, 0)
    job = Job(source, labels, settings, RunFolder(path), QUIET, grouping=grouping)
    return kmeans.fit(job, new_model), grouping


def test_classes_are_the_clusters_under_the_names_of_known_classes(tmp_path):
    trained, grouping = fitted(tmp_path / "run")
    found = trained.prediction.classes.numpy()
    pairs = set(zip(grouping.clusters.tolist(), found.tolist(), strict=True))
    assert len(pairs) == CLASSES  # the same grouping, renamed
    assert (found[LABELS >= 0] == LABELS[LABELS >= 0]).mean() > 0.9
    assert cluster_accuracy(TRUE[UNLABELLED], found[UNLABELLED], TRUE[UNLABELLED] < KNOWN).all > 0.9
    assert not (tmp_path / "run").exists()  # no training, no log


def test_probabilities_fall_with_the_distance(tmp_path):
    trained, _ = fitted(tmp_path / "run")
    unit = torch.nn.functional.normalize(trained.prediction.features, dim=1)
    distances = torch.cdist(unit, trained.model.classifier.weight)
    assert torch.equal(distances.argsort(dim=1), trained.prediction.probabilities.argsort(dim=1, descending=True))
    assert torch.allclose(trained.prediction.probabilities.sum(dim=1), torch.ones(N))


def test_fewer_different_images_than_classes_leave_classes_empty(tmp_path):
    rows = np.repeat(np.eye(4, DIM), 3, axis=0)
    labels = np.array([0, 0, -1, 1, -1, -1, 2, 2, -1, -1, -1, -1])
    trained, _ = fitted(tmp_path / "run", Embeddings(rows), labels, classes=6)
    found = trained.prediction.classes.numpy()
    assert found.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
