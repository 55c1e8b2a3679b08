"""Two trainings and the anchors between them, on embeddings: small, quick, and nothing but the method."""

import copy
import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from helping.groups import CLASSES, DIM, KNOWN, LABELS, QUIET, REFEREE, SOURCE, TRUE, UNLABELLED, N
from newfound.anchors import calibrate, select_anchors
from newfound.backbones.adapter import AdapterTail
from newfound.methods import sdas, simgcd
from newfound.methods.simgcd import SimGCD
from newfound.runs import folder as run_folder
from newfound.runs.folder import RunFolder
from newfound.runs.scoring import Truth
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.training.heads import Projector
from newfound.training.loop import Job, Prediction, draw_batches, train

pytestmark = pytest.mark.usefixtures("small_projector")


class Run:
    """A run on the groups; ``fit`` may be called again to go on."""

    def __init__(self, path, referee=None, labels=LABELS, folder=RunFolder, **changes):
        options = {"epochs": 5, "batch_size": 48, "alpha": 2, "device": "cpu", **changes}
        options["alpha"] = None if changes.get("method") == "simgcd" else options["alpha"]
        self.settings = Settings(CLASSES, **options).resolved(KNOWN, N, (LABELS >= 0).sum() / KNOWN)
        self.run = folder(path)
        self.job = Job(SOURCE, labels, self.settings, self.run, QUIET, referee)

    def new_model(self):
        torch.manual_seed(self.settings.seed)
        tail = AdapterTail(DIM, 8)
        tail.fit_standardisation([SOURCE.evaluation(range(N))])
        model = SimGCD(tail, DIM, self.settings)
        model.projector = Projector(DIM, 32, 16)  # as quick as the rest
        return model

    def fit(self):
        method = {"sdas": sdas, "simgcd": simgcd}[self.settings.method]
        with self.run.begun(self.settings, {"data": {"fingerprint": "d"}, "backbone": {"fingerprint": "b"}}):
            return method.fit(self.job, self.new_model)


def timeless(log):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in log]


def test_both_trainings_are_logged_and_the_second_has_anchors(tmp_path):
    run = Run(tmp_path / "run")
    trained = run.fit()
    log = run.run.log()
    assert [(line["stage"], line["epoch"]) for line in log] == [(s, e) for s in (1, 2) for e in range(1, 6)]
    assert all(line["anchors"] == 0 for line in log[:5])
    anchors = run.run.anchors()
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


def test_the_first_training_is_simgcd_with_the_penalty(tmp_path):
    two = Run(tmp_path / "two")
    two.fit()
    one = Run(tmp_path / "one", method="simgcd", rho=0.05)
    one.fit()
    assert [line for line in timeless(two.run.log()) if line["stage"] == 1] == timeless(one.run.log())


def test_calibration_happens_once_and_on_the_first_training(tmp_path):
    run = Run(tmp_path / "run")
    run.fit()
    first = Run(tmp_path / "one", method="simgcd", rho=0.05)
    said = first.fit().prediction
    probabilities = said.probabilities.numpy()[UNLABELLED]
    features = torch.nn.functional.normalize(said.features, dim=1).numpy()[UNLABELLED]
    omega, gamma = calibrate(probabilities, KNOWN, run.settings.anchors_per_class)
    lines = run.run.anchors()
    assert {(line["omega"], line["gamma"]) for line in lines} == {(omega, gamma)}
    expected = select_anchors(
        probabilities, features, KNOWN, omega=omega, gamma=gamma, beta=run.settings.beta, k=run.settings.k
    )
    assert lines[0]["anchors"] == len(expected.index)
    assert lines[0]["eta"] == expected.eta
    assert lines[0]["overlap"] is None
    assert lines[1]["overlap"] == 1.0  # alpha = 2: the second epoch keeps them


def test_each_later_epoch_takes_anchors_from_the_epoch_before(tmp_path):
    """A model is asked after each epoch; what it says then decides the labels of the next one."""
    run = Run(tmp_path / "run")
    asked = []
    choose = sdas.DynamicAnchors._choose

    class Watching(sdas.DynamicAnchors):
        def __call__(self, epoch, said, before):
            labels = super().__call__(epoch, said, before)
            if epoch >= 2:
                again = choose(self, said)
                expected = LABELS.copy()
                expected[again.index] = again.label
                assert np.array_equal(labels, expected)
                assert (said.classes.numpy()[again.index] == again.label).all()
            asked.append(labels)
            return labels

    original, sdas.DynamicAnchors = sdas.DynamicAnchors, Watching
    try:
        run.fit()
    finally:
        sdas.DynamicAnchors = original
    assert np.array_equal(asked[0], asked[1])
    assert len(asked) == 5


WITHOUT_PRETRAIN = {"strategy": "without-pretrain", "warmup_epochs": 2}


@pytest.mark.parametrize(
    ("changes", "stop", "pause"),
    [({}, stop, 0) for stop in [(1, 1), (1, 5), (2, 1), (2, 3), (2, 5)]]
    + [({}, stop, 3) for stop in [(1, 3), (2, 2), (2, 4)]]
    + [({"strategy": "fixed"}, stop, 0) for stop in [(1, 5), (2, 3)]]
    + [(WITHOUT_PRETRAIN, (1, epoch), pause) for epoch, pause in ((1, 0), (3, 0), (3, 3), (5, 0))],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch, stop, changes, pause):
    monkeypatch.setattr(run_folder, "CHECKPOINT_PAUSE", pause)
    monkeypatch.setattr(run_folder, "monotonic", count().__next__)  # 3: of every third epoch, and the last
    whole = Run(tmp_path / "whole", REFEREE, **changes)
    expected = whole.fit()

    class Stopping(RunFolder):
        def save_epoch(self, model, optimiser, checkpoint, entry):
            super().save_epoch(model, optimiser, checkpoint, entry)
            if (entry["stage"], entry["epoch"]) == stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(tmp_path / "stopped", REFEREE, folder=Stopping, **changes).fit()
    assert (RunFolder(tmp_path / "stopped").epochs_done(stop[0]) < stop[1]) == (pause > 0)
    for name in ("log.jsonl", "anchors.jsonl"):  # killed while the next epoch was at work, in the middle of a line
        with open(tmp_path / "stopped" / name, "a") as file:
            file.write(json.dumps({"stage": stop[0], "epoch": stop[1] + 1, "omega": 9.0}) + '\n{"epo')
    resumed = Run(tmp_path / "stopped", REFEREE, **changes)
    found = resumed.fit()
    assert torch.equal(found.prediction.probabilities, expected.prediction.probabilities)
    assert np.array_equal(found.labels, expected.labels)
    assert (tmp_path / "stopped" / "anchors.jsonl").read_bytes() == (tmp_path / "whole" / "anchors.jsonl").read_bytes()
    assert timeless(resumed.run.log()) == timeless(whole.run.log())
    again = resumed.fit()  # a finished run is only evaluated
    assert torch.equal(again.prediction.probabilities, expected.prediction.probabilities)
    assert np.array_equal(again.labels, expected.labels)


def test_an_earlier_first_training_serves_and_is_not_needed_afterwards(tmp_path):
    whole = Run(tmp_path / "whole").fit()
    first = Run(tmp_path / "one", method="simgcd", rho=0.05)
    first.fit()
    run = Run(tmp_path / "run", stage1=tmp_path / "one")
    first.run.check_serves(run.settings, {"data": "d", "backbone": "b"})
    with run.run.begun(run.settings, {}):
        run.run.take_stage1(first.run)
    (tmp_path / "one").rename(tmp_path / "gone")
    taken = run.fit()
    assert torch.equal(taken.prediction.probabilities, whole.prediction.probabilities)
    assert [line["stage"] for line in run.run.log()] == [1] * 5 + [2] * 5


def test_a_first_training_of_another_length_is_taken_as_it_is_and_passed_on(tmp_path):
    first = Run(tmp_path / "one", method="simgcd", epochs=3)
    first.fit()
    earlier = first.run
    for name in ("run", "next"):
        run = Run(tmp_path / name, stage1=earlier.path)
        with run.run.begun(run.settings, {"data": {"fingerprint": "d"}, "backbone": {"fingerprint": "b"}}):
            earlier.check_serves(run.settings, {"data": "d", "backbone": "b"})
            run.run.take_stage1(earlier)
        run.fit()
        earlier = run.run
        assert [line["stage"] for line in run.run.log()] == [1] * 3 + [2] * 5


def test_a_kill_while_the_first_training_is_copied_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    first = Run(tmp_path / "one", method="simgcd", rho=0.05)
    first.fit()
    expected = Run(tmp_path / "whole").fit()
    run = Run(tmp_path / "run", stage1=tmp_path / "one")
    with run.run.begun(run.settings, {}):
        with monkeypatch.context() as patch:
            patch.setattr(run_folder, "_save_tensors", lambda *_: 1 / 0)  # after the log, before the checkpoint
            with pytest.raises(ZeroDivisionError):
                run.run.take_stage1(first.run)
        assert not run.run.has_stage1()
        run.run.take_stage1(first.run)
    assert torch.equal(run.fit().prediction.probabilities, expected.prediction.probabilities)
    assert [line["stage"] for line in run.run.log()] == [1] * 5 + [2] * 5


def test_calibration_survives_a_lost_log(tmp_path):
    """A power cut may keep the checkpoint and lose lines: training 1 says the same as before."""
    expected = Run(tmp_path / "whole").fit()

    class Stopping(RunFolder):
        def save_epoch(self, model, optimiser, checkpoint, entry):
            super().save_epoch(model, optimiser, checkpoint, entry)
            if (entry["stage"], entry["epoch"]) == (2, 3):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(tmp_path / "run", folder=Stopping).fit()
    (tmp_path / "run" / "anchors.jsonl").write_text("")
    assert torch.equal(Run(tmp_path / "run").fit().prediction.probabilities, expected.prediction.probabilities)


def test_truth_is_only_counted(tmp_path):
    plain = Run(tmp_path / "plain").fit()
    run = Run(tmp_path / "scored", REFEREE)
    scored = run.fit()
    assert torch.equal(plain.prediction.probabilities, scored.prediction.probabilities)
    for line in run.run.anchors():
        assert 0 <= line["clean"] <= line["overall"] == line["anchors"]
    assert all(0 <= line["all"] <= 1 for line in run.run.log())
    lies = replace(REFEREE, classes=np.random.default_rng(1).permutation(REFEREE.classes))
    lied = Run(tmp_path / "lied", lies).fit()
    assert torch.equal(lied.prediction.probabilities, plain.prediction.probabilities)


def test_the_oracle_drops_what_is_not_clean_and_says_so(tmp_path):
    source_truth = replace(
        REFEREE, classes=np.where(REFEREE.classes == 5, 4, REFEREE.classes)
    )  # one group less is true
    run = Run(tmp_path / "run", source_truth, oracle_clean_anchors=True)
    screen = Listening()
    run.job = replace(run.job, screen=screen)
    trained = run.fit()
    lines = run.run.anchors()
    assert all("oracle" in line for line in [*lines, *run.run.log()])
    kept = ((trained.labels >= 0) & (LABELS < 0)).sum()
    assert kept == lines[-1]["anchors"] == sum(lines[-1]["per_class"]) == lines[-1]["clean"] < lines[-1]["overall"]
    assert lines[1]["overlap"] == 1.0
    assert not screen.warnings  # every class had anchors before the oracle dropped some


def test_the_oracle_keeps_what_the_truth_does_not_name(tmp_path):
    half = Truth(
        REFEREE.images[::2], REFEREE.classes[::2], REFEREE.known[::2], len(REFEREE.images) // 2, tuple("abcdef")
    )
    run = Run(tmp_path / "run", half, oracle_clean_anchors=True)
    run.fit()
    for line in run.run.anchors():
        assert line["anchors"] >= line["clean"] + 1
        assert line["overall"] < line["anchors"] + 30


def test_fixed_anchors_stay(tmp_path):
    run = Run(tmp_path / "run", strategy="fixed")
    run.fit()
    lines = run.run.anchors()
    assert len(lines) == 5
    assert all(line["overlap"] == 1.0 for line in lines[1:])


def test_without_a_first_training_anchors_begin_after_the_warm_up(tmp_path):
    run = Run(tmp_path / "run", strategy="without-pretrain", warmup_epochs=3)
    run.fit()
    assert {line["stage"] for line in run.run.log()} == {1}
    assert [line["anchors"] > 0 for line in run.run.log()] == [False, False, False, True, True]
    assert [line["epoch"] for line in run.run.anchors()] == [4, 5]


@pytest.mark.parametrize("selection", ["max-prob", "max-density"])
def test_other_selections_take_a_fixed_number(tmp_path, selection):
    run = Run(tmp_path / "run", selection=selection, anchors_per_class=7.0)
    run.fit()
    for line in run.run.anchors():
        assert line["eta"] == 7
        assert all(count <= 7 for count in line["per_class"])
        assert line["omega"] is None


@pytest.mark.parametrize("labels", [TRUE, np.where(np.arange(N) % 2 == 0, TRUE, -1)], ids=["all labelled", "all known"])
def test_no_new_class_is_one_training(tmp_path, labels):
    run = Run(tmp_path / "run", labels=labels)
    run.fit()
    assert {line["stage"] for line in run.run.log()} == {1}
    assert not run.run.anchors()


class Confident:
    """A model that is sure of the classes it is told to name."""

    @staticmethod
    def said(classes):
        probabilities = np.full((N, CLASSES), 0.01)
        probabilities[np.arange(N), classes] = 0.95
        return Prediction(torch.randn(N, DIM), torch.from_numpy(probabilities))


class Listening(Screen):
    def __init__(self):
        super().__init__(quiet=True)
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def test_nothing_new_is_said_and_trains_without_anchors(tmp_path):
    run = Run(tmp_path / "run")
    screen = Listening()
    with run.run.begun(run.settings, {}):
        anchoring = sdas.DynamicAnchors(replace(run.job, screen=screen), Confident.said(np.zeros(N, int)), stage=2)
        labels = anchoring(0, None, LABELS)
        anchoring(1, None, labels)
    assert np.array_equal(labels, LABELS)
    assert screen.warnings == ["no image was put into a new class: there are no anchors until one is"]
    line = run.run.anchors()[0]
    assert (line["anchors"], line["eta"], line["threshold"], line["omega"]) == (0, 0, None, None)


def test_calibration_waits_until_something_is_new(tmp_path):
    run = Run(tmp_path / "run", alpha=1, anchors_per_class=5.0)
    later = Confident.said(np.random.default_rng(0).integers(KNOWN, CLASSES, N))
    later.probabilities[:] *= torch.linspace(0.5, 1, N)[:, None]
    with run.run.begun(run.settings, {}):
        for _ in range(2):  # and again by a run that goes on
            anchoring = sdas.DynamicAnchors(run.job, Confident.said(np.zeros(N, int)), stage=2)
            labels = anchoring(0, None, LABELS)
            anchoring(1, later, labels)
    lines = run.run.anchors()
    assert lines[0]["omega"] is None
    assert lines[1]["eta"] == 5
    assert (lines[1]["omega"], lines[1]["gamma"]) == (lines[3]["omega"], lines[3]["gamma"])


def test_a_class_of_one_image_is_warned_of(tmp_path):
    run = Run(tmp_path / "run", anchors_per_class=2.0)
    classes = np.repeat([3, 4], N // 2)
    classes[UNLABELLED[-1]] = 5
    said = Confident.said(classes)
    said.probabilities[::3] *= 0.5  # so that some are more certain than the mean
    screen = Listening()
    with run.run.begun(run.settings, {}):
        anchoring = sdas.DynamicAnchors(replace(run.job, screen=screen), said, stage=2)
        labels = anchoring(0, None, LABELS)
    assert set(labels[LABELS < 0]) == {-1, 3, 4}
    assert screen.warnings == ["new classes with fewer than two images get no anchors; anchors.jsonl has the counts"]


def test_the_sampler_counts_anchors_as_labelled():
    """Half of the draws fall on labelled images and anchors together, each of them alike."""
    anchored = LABELS.copy()
    anchored[UNLABELLED[:20]] = 4
    drawn = np.concatenate([b for epoch in range(60) for b in draw_batches(anchored, 48, 0, epoch)])
    assert 0.48 < (anchored[drawn] >= 0).mean() < 0.52
    counts = np.bincount(drawn, minlength=N)
    assert counts[UNLABELLED[:20]].mean() == pytest.approx(counts[LABELS >= 0].mean(), rel=0.1)


def test_the_second_training_begins_with_a_fresh_model(tmp_path, monkeypatch):
    """What the first training learnt is in the anchors alone."""
    run = Run(tmp_path / "run")
    begun = []

    def watched(job, model, progress, **options):
        begun.append(copy.deepcopy(model.state_dict()))
        return train(job, model, progress, **options)

    monkeypatch.setattr(sdas, "train", watched)
    run.fit()
    assert len(begun) == 2
    assert all(torch.equal(begun[0][name], begun[1][name]) for name in begun[0])
