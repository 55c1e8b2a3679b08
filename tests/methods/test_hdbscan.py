"""HDBSCAN as a method: its own number of classes, and images in none of them."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helping.contract import FACTS, FAR_APART, new_journal
from helping.groups import CLASSES, KNOWN, LABELS, QUIET, SOURCE, TRUE, N
from helping.pictures import write_folder
from helping.quick_discovery import discover, rows
from helping.tasks import Listening, adapted, decided_for, facts_of, new_task
from newfound import CategoryDiscovery, fitting
from newfound.app.main import main
from newfound.errors import SettingError
from newfound.methods import decide, hdbscan
from newfound.methods.hdbscan import centres, fit
from newfound.runs.results import read_results
from newfound.settings import Settings
from newfound.sources.vectors import Embeddings

ROWS = FAR_APART.evaluation(np.arange(N)).numpy()
FAST = {"image_size": 32, "bank_views": 2, "batch_size": 12}


def stopped(capsys, *words):
    """What the command line says when it refuses these words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["newfound", *words])
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def trained_on(source=FAR_APART, labels=LABELS, journal=None, screen=QUIET, **changes):
    settings, pretrained = decided_for("hdbscan", labels, **changes), adapted(source, source.evaluation([0]).shape[1])
    return fit(new_task(settings, pretrained, labels, journal=journal, screen=screen), settings.method)


def with_outliers():
    """Six groups around a circle, and four samples at right angles to all of them; rows, labels."""
    angles = np.pi / 3 * TRUE + 0.05 * np.random.default_rng(0).normal(size=N)
    circle = np.pad(np.stack([np.cos(angles), np.sin(angles)], axis=1), ((0, 0), (0, 4)))
    rows = np.concatenate([circle, 10 * np.eye(4, 6, k=2)])
    return rows + 0.01 * np.random.default_rng(1).normal(size=rows.shape), np.concatenate([LABELS, np.full(4, -1)])


def test_planted_groups_are_the_classes_and_known_ones_have_their_names():
    trained = trained_on()
    found = trained.prediction.classes.numpy()
    assert found.max() + 1 == CLASSES
    assert (found == TRUE)[TRUE < KNOWN].all()
    assert trained.none.mean() < 0.05
    assert len(trained.predictor.classifier.weight) == CLASSES


def test_outliers_are_in_none_of_the_classes():
    rows, labels = with_outliers()
    trained = trained_on(Embeddings(rows), labels, directions=6)
    assert trained.none[N:].all()
    assert trained.none[:N].mean() < 0.1
    assert trained.prediction.probabilities.shape == (N + 4, CLASSES)


def test_the_smallest_cluster_is_half_the_labelled_part_of_a_class():
    labels = np.repeat([0, 1, -1], [40, 20, 100])
    assert decided_for("hdbscan", labels).method.min_cluster_size == 15
    assert decided_for("hdbscan", np.full(50, -1)).method.min_cluster_size == 5
    assert decided_for("hdbscan", labels, min_cluster_size=7).method.min_cluster_size == 7


@pytest.mark.parametrize(
    ("setting", "value"), [("min_cluster_size", 1), ("min_samples", 0), ("directions", -1), ("temperature", 0.0)]
)
def test_settings_that_make_no_sense_are_refused(setting, value):
    with pytest.raises(SettingError, match=setting):
        decided_for("hdbscan", **{setting: value})


def test_a_number_of_classes_is_refused(tmp_path, capsys):
    with pytest.raises(SettingError, match="classes=6 has no effect with hdbscan, which finds its own number"):
        decide(Settings(6, "hdbscan", device="cpu"), FACTS)
    folder = str(write_folder(tmp_path)[0])
    assert "--classes 6 has no effect with hdbscan" in stopped(
        capsys, "discover", folder, "--method=hdbscan", "--classes=6"
    )


def test_classes_are_not_counted_first():
    def unwanted():
        raise AssertionError("features were asked for")

    settings = Settings(method="hdbscan", device="cpu")
    same, facts, count = fitting.with_count(settings, facts_of(LABELS, 0), unwanted, LABELS, QUIET)
    assert (same, facts.classes, count) == (settings, KNOWN, None)


def test_a_class_in_two_places_is_one_class(monkeypatch):
    """Groups 0 and 1 have the same label."""
    monkeypatch.setattr(hdbscan, "density_clusters", lambda *_: TRUE)
    labels = np.where(LABELS > 0, LABELS - 1, LABELS)
    assert trained_on(labels=labels).prediction.classes.tolist() == np.maximum(TRUE - 1, 0).tolist()


# A known class without a group of its own


def in_no_cluster():
    """Rows, labels, clusters: class 3 has three labelled images, apart from everything."""
    rows = np.concatenate([ROWS, [[20.0, -20.0] * 8] * 3])
    return rows, np.concatenate([LABELS, [KNOWN] * 3]), np.concatenate([TRUE, [-1] * 3])


def in_the_cluster_of_another():
    """The same, but those images are in group 0, which another class claims."""
    labels = LABELS.copy()
    labels[np.flatnonzero((TRUE == 0) & (LABELS < 0))[:3]] = KNOWN
    return ROWS, labels, TRUE


@pytest.mark.parametrize("planted", [in_no_cluster, in_the_cluster_of_another])
def test_a_known_class_without_a_group_is_predicted_by_its_labelled_images(planted, monkeypatch):
    rows, labels, clusters = planted()
    monkeypatch.setattr(hdbscan, "density_clusters", lambda *_: clusters)
    screen = Listening()
    trained = trained_on(Embeddings(rows), labels, screen=screen)
    mean = F.normalize(trained.prediction.features, dim=1)[torch.from_numpy(labels == KNOWN)].mean(dim=0)
    torch.testing.assert_close(trained.predictor.classifier.weight[KNOWN], mean)
    assert int(trained.predictor.probabilities(mean[None]).argmax()) == KNOWN
    assert screen.warnings == [
        "no dense group for 1 of 4 known classes, known by the mean of their labelled images alone: a smaller "
        "min_cluster_size= may find more groups"
    ]


def test_where_every_known_class_has_a_group_nothing_is_warned_of(monkeypatch):
    monkeypatch.setattr(hdbscan, "density_clusters", lambda *_: TRUE)
    screen = Listening()
    trained_on(screen=screen)
    assert not screen.warnings


def test_the_mean_of_a_group_is_that_of_all_its_images():
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 5.0]])
    found = centres(features, np.array([1, 1, -1]), np.array([0, -1, 0]), n_known=1)
    assert found.tolist() == [[0.5, 0.5], [0.5, 0.5]]  # class 0 has labels alone, class 1 a group


def test_the_clusters_are_kept_by_the_run(tmp_path, monkeypatch):
    first = trained_on(journal=new_journal(tmp_path))
    monkeypatch.setattr(hdbscan, "density_clusters", None)  # not asked again
    again = trained_on(journal=new_journal(tmp_path))
    assert torch.equal(first.prediction.probabilities, again.prediction.probabilities)
    assert np.array_equal(first.none, again.none)


def test_nothing_dense_leaves_everything_out(monkeypatch):
    monkeypatch.setattr(hdbscan, "density_clusters", lambda features, *_: np.full(len(features), -1))
    trained = trained_on(SOURCE, np.full(N, -1))
    assert trained.none.all()
    assert trained.prediction.probabilities.shape == (N, 2)
    assert torch.isfinite(trained.prediction.probabilities).all()


# Whole runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """On pictures of one colour each, of which the density says nothing: clusters are as planted here."""
    root = tmp_path_factory.mktemp("run")
    images, truth = write_folder(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdbscan, "density_clusters", planted)
        discover(images, method="hdbscan", out=root / "out", truth=truth, bank_dir=root / "bank", **FAST)
    return root / "out"


def planted(features, labels, *_):
    """The labelled images of a class, two clusters of others, and every fifth image in none."""
    clusters = np.where(labels >= 0, labels, labels.max() + 1 + np.arange(len(labels)) % 2)
    return np.where(np.arange(len(labels)) % 5 == 0, -1, clusters)


def test_a_run_says_which_images_are_none_of_these(run):
    table = rows(run / "assignments.csv")
    none = [row for i, row in enumerate(table) if i % 5 == 0]
    assert {(row["class"], row["is_new"], row["confidence"]) for row in none} == {("none of these", "", "")}
    assert all(row["runner_up"] for row in none)
    assert "none of these" not in {row["class"] for i, row in enumerate(table) if i % 5}
    assert "none of these" not in {row["name"] for row in rows(run / "classes.csv")}
    results = read_results(run)
    assert np.flatnonzero(results.assignment.classes < 0).tolist() == list(range(0, len(table), 5))
    assert results.settings.classes is None


def test_a_run_is_scored_with_them_as_wrong(run):
    from newfound.atomic import load_json

    metrics = load_json(run / "metrics.json")
    assert metrics["images_none_of_these"] > 0
    assert metrics["all"] <= 1 - metrics["images_none_of_these"] / metrics["images_scored"]
    assert sum(metrics["confusion"].values()) == metrics["images_scored"] - metrics["images_none_of_these"]


def test_a_finished_run_is_resumed_without_clustering_again(run, monkeypatch):
    monkeypatch.setattr(hdbscan, "density_clusters", None)
    before = (run / "assignments.csv").read_bytes()
    settings = read_results(run).settings
    discover(Path(read_results(run).root), settings, out=run, resume=True)
    assert (run / "assignments.csv").read_bytes() == before


# The estimator


@pytest.mark.parametrize(("names", "none"), [(np.arange(CLASSES), -1), (np.array(list("abcdef")), "none of these")])
def test_the_estimator_marks_samples_in_no_class(names, none):
    rows, labels = with_outliers()
    y = [names[k] if k >= 0 else None for k in labels.tolist()]
    found = CategoryDiscovery(method="hdbscan", settings={"directions": 6}, random_state=0).fit(rows, y)
    assert (found.labels_[N:] == none).all()
    assert none not in found.classes_
    assert none not in found.predict(rows)
    assert found.class_count_ is None


def test_the_estimator_predicts_a_class_that_has_no_group(monkeypatch):
    rows, labels, clusters = in_no_cluster()
    monkeypatch.setattr(hdbscan, "density_clusters", lambda *_: clusters)
    assert CategoryDiscovery(method="hdbscan", random_state=0).fit(rows, labels).predict(rows[-1:]).tolist() == [KNOWN]
