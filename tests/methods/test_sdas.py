"""Two trainings and the anchors between them, on embeddings: small, quick, and nothing but the method."""

import json
from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pytest
import torch

from helping.contract import new_journal, without_seconds
from helping.groups import CLASSES, DIM, KNOWN, LABELS, REFEREE, TRUE, UNLABELLED, N
from helping.tasks import Interrupted, Listening, decided_for, facts_of, fitted, new_task, stopping_after
from newfound.anchors import calibrate, select_anchors
from newfound.evaluate import cluster_accuracy
from newfound.methods import sdas
from newfound.runs import checkpoints
from newfound.runs.first_training import check_serves
from newfound.runs.folder import RunFolder
from newfound.runs.journal import MemoryJournal, RunJournal
from newfound.runs.scoring import Truth
from newfound.training.learner import Prediction
from newfound.training.loop import train
from newfound.training.samplers import half_labelled

SECTIONS = {"data": {"fingerprint": "d"}, "backbone": {"fingerprint": "b"}}
FINGERPRINTS = {"data": "d", "backbone": "b"}


def decided(method="sdas", **changes):
    own = {"alpha": 2} if method == "sdas" else {}
    return decided_for(method, **{"epochs": 5, **own, **changes})


class Run:
    """A run on the groups, in a folder; ``fit`` may be called again to resume it."""

    def __init__(self, path, referee=None, labels=LABELS, kind=RunJournal, **changes):
        self.settings, self.labels, self.referee = decided(**changes), labels, referee
        self.run = RunFolder(path)
        self.journal = kind(path)

    def fit(self):
        with self.begun():
            return fitted(self.settings, labels=self.labels, journal=self.journal, referee=self.referee)

    def begun(self):
        return self.run.begun(self.settings, SECTIONS)


def test_both_trainings_are_logged_and_the_second_has_anchors():
    journal = MemoryJournal()
    trained = fitted(decided(), journal=journal)
    log, anchors = journal.entries, journal.pseudo_label_entries
    assert [(line["stage"], line["epoch"]) for line in log] == [(s, e) for s in (1, 2) for e in range(1, 6)]
    assert all(line["anchors"] == 0 for line in log[:5])
    assert [line["epoch"] for line in anchors] == [1, 2, 3, 4, 5]
    assert [line["anchors"] for line in anchors] == [line["anchors"] for line in log[5:]]
    for line in anchors:
        assert len(line["per_class"]) == CLASSES - KNOWN
        assert sum(line["per_class"]) == line["anchors"]
        assert max(line["per_class"]) <= line["eta"]
        assert not {"clean", "overall", "oracle"} & set(line)
    is_anchor = (trained.labels >= 0) & (LABELS < 0)
    assert is_anchor.sum() == anchors[-1]["anchors"] > 0
    assert (trained.labels[is_anchor] >= KNOWN).all()
    assert np.array_equal(trained.labels[LABELS >= 0], LABELS[LABELS >= 0])


def test_the_first_training_is_simgcd_with_the_penalty():
    two, one = MemoryJournal(), MemoryJournal()
    fitted(decided(), journal=two)
    fitted(decided("simgcd", rho=0.05), journal=one)
    assert [line for line in without_seconds(two.entries) if line["stage"] == 1] == without_seconds(one.entries)


def test_calibration_happens_once_and_on_the_first_training():
    settings, journal = decided(), MemoryJournal()
    fitted(settings, journal=journal)
    first = fitted(decided("simgcd", rho=0.05)).prediction
    omega, gamma = calibrate(first.probabilities.numpy()[UNLABELLED], KNOWN, settings.method.anchors_per_class)
    lines = journal.pseudo_label_entries
    assert {(line["omega"], line["gamma"]) for line in lines} == {(omega, gamma)}
    expected = chosen(first, settings.method, omega, gamma)
    assert lines[0]["anchors"] == len(expected.index)
    assert lines[0]["eta"] == expected.eta
    assert lines[0]["overlap"] is None
    assert lines[1]["overlap"] == 1.0  # alpha = 2: the second epoch keeps them


def chosen(prediction, s, omega, gamma):
    """Anchors among the unlabelled images, by DAS."""
    probabilities = prediction.probabilities.numpy()[UNLABELLED]
    features = torch.nn.functional.normalize(prediction.features, dim=1).numpy()[UNLABELLED]
    return select_anchors(probabilities, features, KNOWN, omega=omega, gamma=gamma, beta=s.beta, k=s.k)


def test_each_later_epoch_takes_anchors_from_the_epoch_before(monkeypatch):
    """The model predicts after each epoch; that prediction decides the labels of the next one."""
    settings, asked = decided(), []

    class Watching(sdas.Anchored):
        def between_epochs(self, epoch, prediction):
            between = super().between_epochs(epoch, prediction)
            if epoch >= 2:
                again = chosen(prediction, settings.method, between.facts["omega"], between.facts["gamma"])
                expected = LABELS.copy()
                expected[UNLABELLED[again.index]] = again.label
                assert np.array_equal(between.labels, expected)
                assert (prediction.classes.numpy()[UNLABELLED[again.index]] == again.label).all()
            asked.append((between.labels, prediction))
            return between

    monkeypatch.setattr(sdas, "Anchored", Watching)
    trained = fitted(settings)
    assert len(asked) == 5
    assert np.array_equal(asked[0][0], asked[1][0])
    assert np.array_equal(asked[-1][0], trained.labels)
    assert asked[0][1] is None
    predictions = [prediction.probabilities for _, prediction in asked[1:]]
    assert all(not torch.equal(a, b) for a, b in pairwise(predictions))


WITHOUT_PRETRAIN = {"strategy": "without-pretrain", "warmup_epochs": 2}


@pytest.mark.parametrize(
    ("changes", "stop", "pause"),
    [({}, stop, 0) for stop in [(1, 1), (1, 5), (2, 1), (2, 3), (2, 5)]]
    + [({}, stop, 3) for stop in [(1, 3), (2, 2), (2, 4)]]
    + [({"strategy": "fixed"}, stop, 0) for stop in [(1, 5), (2, 3)]]
    + [(WITHOUT_PRETRAIN, (1, epoch), pause) for epoch, pause in ((1, 0), (3, 0), (3, 3), (5, 0))],
)
def test_a_run_that_was_stopped_resumes_to_the_same_bits(tmp_path, monkeypatch, stop, changes, pause):
    monkeypatch.setattr(checkpoints, "PAUSE", pause)
    monkeypatch.setattr(checkpoints, "monotonic", count().__next__)  # 3: of every third epoch, and the last
    whole = Run(tmp_path / "whole", REFEREE, **changes)
    expected = whole.fit()
    stage, epoch = stop
    with pytest.raises(Interrupted):
        Run(tmp_path / "stopped", REFEREE, kind=stopping_after(epoch, stage), **changes).fit()
    assert (RunFolder(tmp_path / "stopped").journal.epochs_done(stage) < epoch) == (pause > 0)
    for name in ("log.jsonl", "anchors.jsonl"):  # killed while the next epoch was at work, in the middle of a line
        with open(tmp_path / "stopped" / name, "a") as file:
            file.write(json.dumps({"stage": stage, "epoch": epoch + 1, "omega": 9.0}) + '\n{"epo')
    resumed = Run(tmp_path / "stopped", REFEREE, **changes)
    found = resumed.fit()
    assert torch.equal(found.prediction.probabilities, expected.prediction.probabilities)
    assert np.array_equal(found.labels, expected.labels)
    assert (tmp_path / "stopped" / "anchors.jsonl").read_bytes() == (tmp_path / "whole" / "anchors.jsonl").read_bytes()
    assert without_seconds(resumed.journal.log()) == without_seconds(whole.journal.log())
    again = resumed.fit()  # a finished run is only evaluated
    assert torch.equal(again.prediction.probabilities, expected.prediction.probabilities)
    assert np.array_equal(again.labels, expected.labels)


def test_an_earlier_first_training_serves_and_is_not_needed_afterwards(tmp_path):
    whole = fitted(decided())
    first = Run(tmp_path / "one", method="simgcd", rho=0.05)
    first.fit()
    run = Run(tmp_path / "run", stage1=tmp_path / "one")
    assert check_serves(first.run, run.settings, facts_of(LABELS), FINGERPRINTS) == {}
    with run.begun():
        run.journal.take_first_training(first.journal)
    (tmp_path / "one").rename(tmp_path / "gone")
    taken = run.fit()
    assert torch.equal(taken.prediction.probabilities, whole.prediction.probabilities)
    assert [line["stage"] for line in run.journal.log()] == [1] * 5 + [2] * 5


def test_a_first_training_of_another_length_is_taken_as_it_is_and_passed_on(tmp_path):
    earlier = Run(tmp_path / "one", method="simgcd", rho=0.05, epochs=3)
    earlier.fit()
    for name, beta, otherwise in (("run", 0.5, {"epochs": 3, "warmup_epochs": 1}), ("next", 0.6, {})):
        run = Run(tmp_path / name, stage1=earlier.run.path, beta=beta)  # of which a first training knows nothing
        with run.begun():
            assert check_serves(earlier.run, run.settings, facts_of(LABELS), FINGERPRINTS) == otherwise
            run.journal.take_first_training(earlier.journal)
        run.fit()
        earlier = run
        assert [line["stage"] for line in run.journal.log()] == [1] * 3 + [2] * 5


def test_a_kill_while_the_first_training_is_copied_leaves_a_run_that_can_be_resumed(tmp_path, monkeypatch):
    first = Run(tmp_path / "one", method="simgcd", rho=0.05)
    first.fit()
    expected = fitted(decided())
    run = Run(tmp_path / "run", stage1=tmp_path / "one")
    with run.begun():
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save_tensors", lambda *_: 1 / 0)  # after the log, before the checkpoint
            with pytest.raises(ZeroDivisionError):
                run.journal.take_first_training(first.journal)
        assert not run.journal.has_first_training()
        run.journal.take_first_training(first.journal)
    assert torch.equal(run.fit().prediction.probabilities, expected.prediction.probabilities)
    assert [line["stage"] for line in run.journal.log()] == [1] * 5 + [2] * 5


def test_calibration_survives_a_lost_log(tmp_path):
    """A power cut may keep the checkpoint and lose lines, of which nothing is read back."""
    expected = fitted(decided())
    with pytest.raises(Interrupted):
        fitted(decided(), journal=new_journal(tmp_path, stopping_after(3, stage=2)))
    (tmp_path / "anchors.jsonl").write_text("")
    resumed = fitted(decided(), journal=new_journal(tmp_path))
    assert torch.equal(resumed.prediction.probabilities, expected.prediction.probabilities)


def test_truth_is_only_counted():
    plain, journal = fitted(decided()), MemoryJournal()
    scored = fitted(decided(), journal=journal, referee=REFEREE)
    assert torch.equal(plain.prediction.probabilities, scored.prediction.probabilities)
    assert len(journal.pseudo_label_entries) == 5
    for line in journal.pseudo_label_entries:
        assert 0 < line["clean"] <= line["overall"] == line["anchors"]
    found = scored.prediction.classes.numpy()[UNLABELLED]
    score = cluster_accuracy(TRUE[UNLABELLED], found, TRUE[UNLABELLED] < KNOWN)
    last = journal.entries[-1]
    assert (last["all"], last["old"], last["new"]) == (score.all, score.old, score.new)
    lies = replace(REFEREE, classes=np.random.default_rng(1).permutation(REFEREE.classes))
    lied = fitted(decided(), journal=(wrong := MemoryJournal()), referee=lies)
    assert torch.equal(lied.prediction.probabilities, plain.prediction.probabilities)
    assert wrong.entries[-1]["all"] < last["all"]


def test_the_oracle_drops_what_is_not_clean_and_says_so():
    lumped = replace(REFEREE, classes=np.where(REFEREE.classes == 5, 4, REFEREE.classes))  # one group less is true
    journal, screen = MemoryJournal(), Listening()
    trained = fitted(decided(oracle_clean_anchors=True), journal=journal, screen=screen, referee=lumped)
    lines = journal.pseudo_label_entries
    assert len(lines) == 5
    assert all("oracle" in line for line in [*lines, *journal.entries])
    kept = ((trained.labels >= 0) & (LABELS < 0)).sum()
    assert kept == lines[-1]["anchors"] == sum(lines[-1]["per_class"]) == lines[-1]["clean"] < lines[-1]["overall"]
    assert lines[1]["overlap"] == 1.0
    assert not screen.warnings  # every class had anchors before the oracle dropped some


def test_the_oracle_keeps_what_the_truth_does_not_name():
    """Of the named half, one group is said to be another: its anchors go, the unnamed ones stay."""
    half = Truth(
        REFEREE.images[::2], np.where(REFEREE.classes[::2] == 5, 4, REFEREE.classes[::2]), REFEREE.known[::2],
        len(REFEREE.images) // 2, tuple("abcdef"),
    )  # fmt: skip
    plain, journal = MemoryJournal(), MemoryJournal()
    fitted(decided(), journal=plain, referee=half)
    trained = fitted(decided(oracle_clean_anchors=True), journal=journal, referee=half)
    before, first = plain.pseudo_label_entries[0], journal.pseudo_label_entries[0]  # of the same first training
    assert (first["clean"], first["overall"]) == (before["clean"], before["overall"])
    assert first["anchors"] == before["anchors"] - (before["overall"] - before["clean"]) < before["anchors"]
    assert first["anchors"] > first["clean"] > 0
    last = journal.pseudo_label_entries[-1]
    anchors = np.flatnonzero((trained.labels >= 0) & (LABELS < 0))
    unnamed = np.setdiff1d(anchors, half.images)
    assert len(anchors) == last["anchors"] == last["clean"] + len(unnamed)
    assert len(unnamed) > 0


def test_fixed_anchors_stay():
    journal = MemoryJournal()
    fitted(decided(strategy="fixed"), journal=journal)
    lines = journal.pseudo_label_entries
    assert len(lines) == 5
    assert all(line["overlap"] == 1.0 for line in lines[1:])


def test_without_a_first_training_anchors_begin_after_the_warm_up():
    journal = MemoryJournal()
    fitted(decided(strategy="without-pretrain", warmup_epochs=3), journal=journal)
    assert [line["stage"] for line in journal.entries] == [1] * 5
    assert [line["anchors"] > 0 for line in journal.entries] == [False, False, False, True, True]
    assert [line["epoch"] for line in journal.pseudo_label_entries] == [4, 5]


@pytest.mark.parametrize("selection", ["max-prob", "max-density"])
def test_other_selections_take_a_fixed_number(selection):
    journal = MemoryJournal()
    fitted(decided(selection=selection, anchors_per_class=7.0), journal=journal)
    assert len(journal.pseudo_label_entries) == 5
    for line in journal.pseudo_label_entries:
        assert line["eta"] == 7
        assert line["per_class"] == [7, 7, 7]
        assert line["omega"] is None


@pytest.mark.parametrize("labels", [TRUE, np.where(np.arange(N) % 2 == 0, TRUE, -1)], ids=["all labelled", "all known"])
def test_no_new_class_is_one_training(labels):
    journal = MemoryJournal()
    fitted(decided(), labels=labels, journal=journal)
    assert [line["stage"] for line in journal.entries] == [1] * 5
    assert not journal.pseudo_label_entries


def sure_of(classes):
    """The prediction of a model that is sure of these classes."""
    probabilities = np.full((N, CLASSES), 0.01)
    probabilities[np.arange(N), classes] = 0.95
    return Prediction(torch.randn(N, DIM, generator=torch.Generator().manual_seed(0)), torch.from_numpy(probabilities))


def anchored(settings, initial, screen=None):
    return sdas.Anchored(new_task(settings, screen=screen or Listening()), settings.method, initial)


def test_nothing_new_is_reported_and_trains_without_anchors():
    screen = Listening()
    learner = anchored(decided(), sure_of(np.zeros(N, int)), screen)
    for epoch in (0, 1):
        between = learner.between_epochs(epoch, None)
        assert np.array_equal(between.labels, LABELS)
        assert between.facts == {"eta": 0, "threshold": None, "omega": None, "gamma": None}
        assert not between.memory
    assert screen.warnings == ["no image was put into a new class: there are no anchors until one is"]


def test_calibration_waits_until_something_is_new():
    settings = decided(alpha=1, anchors_per_class=5.0)
    later = sure_of(np.random.default_rng(0).integers(KNOWN, CLASSES, N))
    later.probabilities[:] *= torch.linspace(0.5, 1, N)[:, None]
    omega, gamma = calibrate(later.probabilities.numpy()[UNLABELLED], KNOWN, 5.0)
    learner = anchored(settings, sure_of(np.zeros(N, int)))
    assert learner.between_epochs(0, None).facts["omega"] is None
    between = learner.between_epochs(1, later)
    assert between.facts["eta"] == 5
    assert (between.facts["omega"], between.facts["gamma"]) == (omega, gamma)
    assert between.memory["calibration"].tolist() == [omega, gamma]

    resumed = anchored(settings, sure_of(np.zeros(N, int)))  # and again by a run that is resumed
    assert resumed.between_epochs(1, later).facts == between.facts
    resumed.memory.put("calibration", between.memory["calibration"])
    surer = Prediction(later.features, later.probabilities**0.5)
    kept = resumed.between_epochs(2, surer)
    assert (kept.facts["omega"], kept.facts["gamma"]) == (omega, gamma)
    assert calibrate(surer.probabilities.numpy()[UNLABELLED], KNOWN, 5.0) != (omega, gamma)


def test_a_class_of_one_image_is_warned_of():
    classes = np.repeat([3, 4], N // 2)
    classes[UNLABELLED[-1]] = 5
    initial = sure_of(classes)
    initial.probabilities[::3] *= 0.5  # so that some are more certain than the mean
    screen = Listening()
    labels = anchored(decided(anchors_per_class=2.0), initial, screen).between_epochs(0, None).labels
    assert set(labels[LABELS < 0]) == {-1, 3, 4}
    assert screen.warnings == ["new classes with fewer than two images get no anchors; anchors.jsonl has the counts"]


def test_the_sampler_counts_anchors_as_labelled():
    """Half of the draws fall on labelled images and anchors together, each of them alike."""
    labels = LABELS.copy()
    labels[UNLABELLED[:20]] = 4
    drawn = np.concatenate([b for epoch in range(60) for b in half_labelled(labels, 48, 0, epoch)])
    assert 0.48 < (labels[drawn] >= 0).mean() < 0.52
    counts = np.bincount(drawn, minlength=N)
    assert counts[UNLABELLED[:20]].mean() == pytest.approx(counts[LABELS >= 0].mean(), rel=0.1)


def test_the_second_training_begins_with_a_fresh_model(monkeypatch):
    """What the first training learnt is in the anchors alone."""
    begun = []

    def watched(task, learner, **options):
        begun.append({name.removeprefix("student."): t.clone() for name, t in learner.state_dict().items()})
        return train(task, learner, **options)

    monkeypatch.setattr(sdas, "train", watched)
    fitted(decided())
    first, second = begun
    assert first.keys() == second.keys()
    assert "classifier.weight" in first
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
