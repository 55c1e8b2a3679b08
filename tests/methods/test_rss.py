"""The selection, on given features; and both trainings on embeddings: small, quick, and nothing but the method."""

import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helping.contract import new_journal, without_seconds
from helping.groups import CLASSES, DIM, KNOWN, LABELS, REFEREE, SOURCE, TRUE, N
from helping.tasks import Interrupted, Listening, adapted, decided_for, facts_of, fitted, new_task, stopping_after
from newfound import fitting
from newfound.errors import SettingError
from newfound.methods import rss, sdas
from newfound.methods.rss import Selection, agreement, select, share_at, with_selected
from newfound.runs.first_training import check_serves
from newfound.runs.folder import RunFolder
from newfound.runs.journal import MemoryJournal
from newfound.screen import Screen
from newfound.training.learner import Between, Prediction
from newfound.training.loop import train

# The golden files: an independent program in double precision (there is no released implementation).

CASES = {  # 01: a new class nobody is put into, and exact copies; 02: fewer images than neighbours, one candidate
    "rss_selection_00": 1e-7,
    "rss_selection_01": 1e-6,
    "rss_selection_02": 1e-7,
}


class Golden:
    def __init__(self, path):
        self.data = np.load(path, allow_pickle=False)
        self.features, self.n_known = torch.tensor(self.data["features"]), int(self.data["n_known"])
        self.probabilities, self.labels = self.data["probabilities"], self.data["labels"]
        self.classes = np.where(self.labels >= 0, self.labels, self.probabilities.argmax(axis=1))
        self.candidates = np.flatnonzero((self.labels < 0) & (self.classes >= self.n_known))
        self.how = {name: self.data[name].item() for name in ("quota", "neighbours", "least_consistency")}

    def selection(self, **changes):
        how = {**self.how, **changes}
        return select(self.features, self.probabilities, self.labels, self.n_known, **how)


@pytest.fixture(params=CASES)
def case(request, golden):
    made = Golden(golden / "peers" / f"{request.param}.npz")
    made.tolerance = CASES[request.param]
    return made


@pytest.fixture
def plain(golden):
    return Golden(golden / "peers" / "rss_selection_00.npz")


def test_consistency_and_score_match_the_reference(case):
    found = agreement(case.features, case.classes, case.candidates, case.how["neighbours"])
    for name in ("consistency", "score"):
        expected = case.data[name]
        assert np.array_equal(np.flatnonzero(~np.isnan(expected)), case.candidates)
        np.testing.assert_allclose(getattr(found, name), expected[case.candidates], atol=case.tolerance, rtol=0)


def test_the_selection_matches_the_reference(case):
    """Scores that are equal but for rounding might change places on another processor: they are compared as a set."""
    found = case.selection()
    assert found.classes.tolist() == case.data["selected_class"].tolist()
    score = case.data["score"]
    for mine, theirs in zip(found.images, case.data["selected_image"], strict=True):
        assert mine == theirs or score[mine] == pytest.approx(score[theirs], abs=1e-6)
    assert set(found.images) == set(case.data["selected_image"])


def test_labels_by_epoch_match_the_reference(case):
    selection = Selection(case.data["selected_image"], case.data["selected_class"], 1.0)
    for epoch, expected in zip(case.data["at_epochs"].tolist(), case.data["labels_at_epochs"], strict=True):
        share = share_at(epoch, case.data["epochs"].item(), case.data["first_share"].item())
        assert np.array_equal(with_selected(case.labels, selection, share), expected)


# Examples by hand, and what must not matter.


def plane(*degrees):
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_by_hand():
    """0 and 10 agree, 20 does not; the last one's nearer neighbour, at 20, disagrees."""
    classes = np.array([2, 2, 1, 2])
    found = agreement(plane(0, 10, 20, 180), classes, np.array([0, 1, 3]), neighbours=2)
    assert found.consistency == pytest.approx([0.553492, 0.5, 0.492931], abs=1e-6)
    near, far, across = (2 * math.sin(math.radians(angle / 2)) for angle in (10, 20, 160))
    further = 2 * math.sin(math.radians(85))
    assert found.scale == pytest.approx((near + far + near + near + across + further) / 6, rel=1e-12)
    assert found.score[0] == pytest.approx(math.exp(-near / found.scale) / 2, rel=1e-12)
    one_hot = np.eye(3)[classes]
    assert select(plane(0, 10, 20, 180), one_hot, np.full(4, -1), 2, quota=9, neighbours=2).images[0] == 0


def test_all_neighbours_agreeing_is_one_and_none_is_nought():
    features, classes = plane(0, 1, 2, 90, 91, 92, 180), np.array([1, 1, 1, 0, 0, 0, 1])
    found = agreement(features, classes, np.array([0, 1, 6]), neighbours=2)
    assert found.consistency.tolist() == [1.0, 1.0, 0.0]
    assert found.score[0] > 0
    assert found.score[2] == 0.0
    chosen = select(features, np.eye(2)[classes], np.full(7, -1), 1, quota=9, neighbours=2, least_consistency=0.01)
    assert chosen.images.tolist() == [1, 0, 2]  # the middle one has the nearest neighbours


def test_copies_of_one_image_are_all_nearest_and_count_alike():
    features = torch.ones(5, 3)
    found = agreement(features, np.array([1, 1, 1, 0, 0]), np.arange(3), neighbours=4)
    assert found.scale == 0.0
    assert found.consistency.tolist() == [0.5, 0.5, 0.5]
    assert found.score.tolist() == [0.5, 0.5, 0.5]


def test_of_equal_scores_the_lower_number_comes_first_and_the_quota_counts_by_class():
    probabilities = np.eye(4)[[3, 2, 3, 2, 2, 3, 0]]
    features = torch.eye(4)[[3, 2, 3, 2, 2, 3, 0]]
    chosen = select(features, probabilities, np.full(7, -1), 2, quota=2, neighbours=2)
    assert chosen.images.tolist() == [1, 3, 0, 2]
    assert chosen.classes.tolist() == [2, 2, 3, 3]


def test_without_a_limit_every_candidate_is_selected(plain):
    everything = plain.selection(quota=len(plain.labels), least_consistency=0.0)
    assert sorted(everything.images) == plain.candidates.tolist()
    assert np.array_equal(everything.classes, plain.classes[everything.images])
    assert not len(plain.selection(least_consistency=1.01).images)


def test_labelled_images_are_neighbours_but_never_selected(plain):
    labelled = np.flatnonzero(plain.labels >= 0)
    chosen = plain.selection(quota=len(plain.labels), least_consistency=0.0)
    assert not np.isin(chosen.images, labelled).any()
    for share in (0.3, 1.0):
        assert np.array_equal(with_selected(plain.labels, chosen, share)[labelled], plain.labels[labelled])
    poisoned = plain.probabilities.copy()
    poisoned[labelled] = np.roll(poisoned[labelled], 1, axis=1)  # what is predicted for them does not matter
    again = select(plain.features, poisoned, plain.labels, plain.n_known, **plain.how)
    assert np.array_equal(again.images, plain.selection().images)
    without = select(
        plain.features, plain.probabilities, np.where(plain.labels >= 0, 0, plain.labels), plain.n_known, **plain.how
    )  # fmt: skip
    assert np.array_equal(without.images, plain.selection().images)  # known is known: which class, nobody asks


@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_scaling_and_rotating_change_nothing(seed, scale):
    random = np.random.default_rng(seed)
    features = torch.from_numpy(random.normal(size=(40, 5)))
    rotation = torch.linalg.qr(torch.from_numpy(random.normal(size=(5, 5)))).Q
    classes, images = random.integers(0, 3, 40), np.arange(40)
    expected = agreement(features, classes, images, neighbours=6)
    for changed in (
        features * scale,
        features * torch.from_numpy(random.uniform(0.1, 9, (40, 1))),
        features @ rotation,
    ):
        found = agreement(changed, classes, images, neighbours=6)
        np.testing.assert_allclose(found.consistency, expected.consistency, atol=1e-9)
        np.testing.assert_allclose(found.score, expected.score, atol=1e-9)


@given(seed=st.integers(0, 1000))
def test_the_order_of_the_images_matters_among_ties_alone(seed):
    """Two images that are each other's only agreeing neighbour have the same score."""
    random = np.random.default_rng(seed)
    features, order = torch.from_numpy(random.normal(size=(60, 5))), random.permutation(60)
    probabilities = random.dirichlet(np.ones(4), size=60)
    labels = np.where(random.random(60) < 0.3, random.integers(0, 2, 60), -1)
    classes, how = np.where(labels >= 0, labels, probabilities.argmax(axis=1)), {"quota": 60, "neighbours": 4}
    score = agreement(features, classes, np.arange(60), neighbours=4).score
    shuffled = features[torch.from_numpy(order)]
    np.testing.assert_allclose(agreement(shuffled, classes[order], np.arange(60), 4).score, score[order], atol=1e-12)
    expected = select(features, probabilities, labels, 2, **how, least_consistency=0.3)
    found = select(shuffled, probabilities[order], labels[order], 2, **how, least_consistency=0.3)
    assert np.array_equal(found.classes, expected.classes)
    assert set(order[found.images]) == set(expected.images)
    for k in (2, 3):
        ranked = [score[images[found.classes == k]] for images in (order[found.images], expected.images)]
        np.testing.assert_allclose(*ranked, atol=1e-12)


def test_nobody_to_ask():
    alone = select(torch.ones(1, 2), np.array([[0.0, 1.0]]), np.array([-1]), 1, quota=1)
    assert (len(alone.images), alone.scale) == (0, 0.0)
    nothing_new = select(torch.eye(3), np.eye(3), np.full(3, -1), 3, quota=1)
    assert len(nothing_new.images) == 0


@given(epochs=st.integers(1, 60), first=st.floats(0, 1), sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_the_labelled_ones_never_become_fewer_and_are_all_there_in_the_end(epochs, first, sizes):
    classes = np.repeat(np.arange(len(sizes)), sizes) + 1
    selection, labels = Selection(np.arange(len(classes)), classes, 1.0), np.full(len(classes) + 1, -1)
    by_epoch = [with_selected(labels, selection, share_at(epoch, epochs, first)) for epoch in range(epochs)]
    for before, after in pairwise(by_epoch):
        assert ((before == after) | (before < 0)).all()
    assert set(by_epoch[0][:-1]) - {-1} == set(classes)  # at least one of each class
    if epochs > 1:
        assert np.array_equal(by_epoch[-1][:-1], classes)
    assert all(labels_then[-1] == -1 for labels_then in by_epoch)


# Whole runs


def decided(**changes):
    return decided_for("rss", **{"epochs": 5, **changes})


def test_the_first_training_is_simgcd_and_the_second_has_the_selection():
    settings, journal, alone = decided(), MemoryJournal(), MemoryJournal()
    trained = fitted(settings, journal=journal, referee=REFEREE)
    first = fitted(decided_for("simgcd", epochs=5), journal=alone, referee=REFEREE).prediction
    assert without_seconds(journal.entries)[:5] == without_seconds(alone.entries)
    assert [line["stage"] for line in journal.entries] == [1] * 5 + [2] * 5
    s = settings.method
    assert s.selected_per_class == 20  # of each known class, 20 images are labelled
    chosen = select(first.features, first.probabilities.numpy(), LABELS, KNOWN, quota=20)
    assert np.array_equal(trained.labels, with_selected(LABELS, chosen, 1.0))
    lines = journal.pseudo_label_entries
    assert [line["share"] for line in lines] == [0.5, 0.75, 1.0, 1.0, 1.0]
    assert all(line["quota"] == 20 and line["scale"] == chosen.scale for line in lines)
    counts = [line["anchors"] for line in lines]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == len(chosen.images)
    for line in lines:
        assert 0 < line["clean"] <= line["overall"] == line["anchors"] == sum(line["per_class"])


def test_hidden_truth_does_not_matter():
    wrong = replace(REFEREE, classes=np.random.default_rng(1).permutation(REFEREE.classes))
    one, other = (fitted(decided(), referee=referee) for referee in (None, wrong))
    assert torch.equal(one.prediction.probabilities, other.prediction.probabilities)
    assert np.array_equal(one.labels, other.labels)


def test_all_at_once_equals_fixed_anchors_with_these_images(monkeypatch):
    journal = MemoryJournal()
    mine = fitted(decided(first_share=1.0), journal=journal)
    assert {line["anchors"] for line in journal.pseudo_label_entries} == {
        int(((mine.labels >= 0) & (LABELS < 0)).sum())
    }

    class WithTheseImages(sdas.Anchored):
        def between_epochs(self, epoch, prediction):
            assert super().between_epochs(epoch, prediction).labels is not None
            return Between(mine.labels, self.initial)

    monkeypatch.setattr(sdas, "Anchored", WithTheseImages)
    fixed = fitted(decided_for("sdas", epochs=5, strategy="fixed", rho=0.0))
    assert torch.equal(mine.prediction.probabilities, fixed.prediction.probabilities)
    assert torch.equal(mine.prediction.features, fixed.prediction.features)


def test_with_nothing_selected_the_answer_is_the_first_training():
    settings, screen, journal = decided(), Listening(), MemoryJournal()
    settings = replace(settings, method=replace(settings.method, least_consistency=1.1))
    found = fitted(settings, screen=screen, journal=journal)
    first = fitted(decided_for("simgcd", epochs=5))
    assert torch.equal(found.prediction.probabilities, first.prediction.probabilities)
    assert np.array_equal(found.labels, LABELS)
    assert [line["stage"] for line in journal.entries] == [1] * 5
    assert screen.warnings == [
        "no image of a new class agrees with its neighbours: there is nothing to retrain with, and the first training "
        "is the result"
    ]


def test_with_nothing_selected_progress_is_complete_after_the_first_training(monkeypatch):
    monkeypatch.setattr(rss, "selected", lambda *_: Selection(np.empty(0, np.int64), np.empty(0, np.int64), 0.0))
    screen, journal = Bars(quiet=True), MemoryJournal()
    fitting.fit(decided(), facts_of(LABELS), adapted(SOURCE), LABELS, journal, screen)
    assert len(journal.entries) == 5
    assert screen.bars == [[(1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (5, 5)]]


def test_progress_spans_both_trainings():
    screen = Bars(quiet=True)
    fitting.fit(decided(), facts_of(LABELS), adapted(SOURCE), LABELS, MemoryJournal(), screen)
    assert screen.bars == [[(done, 10) for done in range(1, 11)]]


class Bars(Screen):
    """Keeps what its bars of progress show: done, and of how many."""

    def track(self, what, total, done=0):
        self.bars = [*getattr(self, "bars", []), shown := []]
        return nullcontext(SimpleNamespace(update=lambda done, note="", total=total: shown.append((done, total))))


def sure_of(classes):
    """The prediction of a model that is sure of these classes, with features to match."""
    probabilities = np.full((N, CLASSES), 0.01)
    probabilities[np.arange(N), classes] = 0.95
    features = torch.eye(CLASSES, DIM)[torch.from_numpy(classes)]
    return Prediction(features, torch.from_numpy(probabilities))


def warned_of(prediction):
    screen = Listening()
    task, s = new_task(decided(), screen=screen), decided().method
    rss._warn(task, rss.selected(task, s, prediction), prediction)
    return screen.warnings


def test_what_a_person_is_warned_of():
    assert warned_of(sure_of(TRUE)) == []
    assert warned_of(sure_of(np.zeros(N, int)))[0].startswith("no image was put into a new class: there is nothing to")
    without_one = np.where(TRUE == 5, 4, TRUE)
    assert warned_of(sure_of(without_one)) == [
        "in some new classes no image agrees with its neighbours: they get no labels; anchors.jsonl has the counts"
    ]


@pytest.mark.parametrize("labels", [TRUE, np.where(np.arange(N) % 2 == 0, TRUE, -1)], ids=["all labelled", "all known"])
def test_no_new_class_is_one_training_and_is_reported(labels):
    journal, screen = MemoryJournal(), Listening()
    settings = decided(labels=labels)
    fitted(settings, labels=labels, journal=journal, screen=screen)
    assert [line["stage"] for line in journal.entries] == [1] * 5
    assert not journal.pseudo_label_entries
    assert rss.trainings(settings.method, facts_of(labels)) == 1
    assert screen.said[0].endswith(": one training, without anchors")


@pytest.mark.parametrize("stop", [(1, 5), (2, 1), (2, 3)])
def test_a_run_that_was_stopped_selects_the_same_again(tmp_path, stop):
    expected = fitted(decided(), journal=new_journal(tmp_path / "whole"))
    stage, epoch = stop
    with pytest.raises(Interrupted):
        fitted(decided(), journal=new_journal(tmp_path / "stopped", stopping_after(epoch, stage)))
    found = fitted(decided(), journal=new_journal(tmp_path / "stopped"))
    assert torch.equal(found.prediction.probabilities, expected.prediction.probabilities)
    assert np.array_equal(found.labels, expected.labels)
    assert (tmp_path / "stopped" / "anchors.jsonl").read_bytes() == (tmp_path / "whole" / "anchors.jsonl").read_bytes()


@pytest.mark.parametrize("method", ["simgcd", "sdas"])
def test_an_earlier_first_training_serves(tmp_path, method):
    sections = {"data": {"fingerprint": "d"}, "backbone": {"fingerprint": "b"}}
    earlier, run = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "run")
    first = decided_for(method, epochs=5, rho=0.0)
    with earlier.begun(first, sections):
        fitted(first, journal=earlier.journal)
    settings = decided(stage1=earlier.path)
    assert check_serves(earlier, settings, facts_of(LABELS), {"data": "d", "backbone": "b"}) == {}
    with run.begun(settings, sections):
        run.journal.take_first_training(earlier.journal)
        taken = fitted(settings, journal=run.journal)
    assert torch.equal(taken.prediction.probabilities, fitted(decided()).prediction.probabilities)


def test_the_second_training_begins_with_a_fresh_model(monkeypatch):
    begun = []

    def watched(task, learner, **options):
        begun.append({name: tensor.clone() for name, tensor in learner.state_dict().items()})
        return train(task, learner, **options)

    monkeypatch.setattr(rss, "train", watched)
    fitted(decided())
    first, second = begun
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


# Settings


def test_by_default_a_class_gets_as_many_as_a_known_one_has_labels():
    assert decided().method.selected_per_class == 20
    labels = LABELS.copy()
    labels[np.flatnonzero(LABELS == 0)[:2]] = -1
    assert decided(labels=labels).method.selected_per_class == 19  # 58 / 3 = 19.3
    labels[np.flatnonzero(labels == 1)[:3]] = -1
    assert decided(labels=labels).method.selected_per_class == 18  # 55 / 3 = 18.3
    labels[np.flatnonzero(labels == 2)[:2]] = -1
    assert decided(labels=labels).method.selected_per_class == 18  # 53 / 3 = 17.7
    labels[labels == 2] = -1
    assert decided(labels=labels).method.selected_per_class == 18  # 35 / 2 = 17.5: halves are rounded up
    assert decided(labels=np.full(N, -1)).method.selected_per_class == N // (2 * CLASSES)
    assert decided(selected_per_class=7).method.selected_per_class == 7


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("neighbours", 0, "at least 1"),
        ("selected_per_class", 0, "at least 1"),
        ("least_consistency", 1.5, "between 0 and 1"),
        ("first_share", -0.1, "between 0 and 1"),
        ("student_temperature", 0.0, "a number above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, value, what):
    with pytest.raises(SettingError, match=f"{setting} must be {what}"):
        decided(**{setting: value})


def test_there_is_no_penalty_by_default_and_published_presets_are_simgcds():
    assert decided().rho == 0.0
    assert decided(preset="cifar100").method.entropy_weight == 4.0
    assert decided(preset="cub").method.start == "random"
