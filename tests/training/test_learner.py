"""What the loop does with each hook of a learner, on a learner that records it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helping.contract import new_journal
from helping.groups import CLASSES, DIM, LABELS, SOURCE, N
from helping.tasks import Interrupted, batch_of, decided_for, new_task, stopping_after
from newfound.methods.simgcd import SimGCD
from newfound.runs.journal import MemoryJournal
from newfound.training.learner import Batch, Between, Memory, Predictor, Step
from newfound.training.loop import train
from newfound.training.nearest_centre import NearestCentre

STEPS = N // 48  # of an epoch


def begun(kind=SimGCD, *, journal=None, seed=0, **changes):
    """A task, and a learner of this kind for it."""
    settings = decided_for("simgcd", seed=seed, **changes)
    task = new_task(settings, journal=journal)
    return task, kind(task, settings.method)


def weights_of(learner):
    return {name: parameter.detach().clone() for name, parameter in learner.named_parameters()}


# Memory


def test_what_is_put_into_memory_replaces_what_was_there_whatever_its_shape():
    memory = Memory()
    assert "queue" not in memory
    memory.put("queue", torch.zeros(3, 2))
    memory.put("queue", torch.ones(5, 4, dtype=torch.float64))
    assert "queue" in memory
    assert torch.equal(memory["queue"], torch.ones(5, 4, dtype=torch.float64))
    assert list(memory.state_dict()) == ["queue"]


def test_memory_holds_no_gradient():
    memory, weight = Memory(), torch.ones(2, requires_grad=True)
    memory.put("rows", weight * 2)
    assert not memory["rows"].requires_grad
    assert not list(memory.parameters())


def test_what_is_not_checkpointed_is_in_memory_but_not_in_the_state_dict():
    memory = Memory()
    memory.put("kept", torch.zeros(1))
    memory.put("made again", torch.zeros(2), checkpointed=False)
    assert "made again" in memory
    assert list(memory.state_dict()) == ["kept"]


@given(shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=2, max_size=2))
def test_memory_loads_any_shape(shapes):
    one, other = Memory(), Memory()
    one.put("rows", torch.randn(shapes[0]))
    one.put("more", torch.arange(3))
    other.put("rows", torch.randn(shapes[1]))
    other.load_state_dict(one.state_dict())
    for name in ("rows", "more"):
        assert torch.equal(other[name], one[name])
        assert other[name].dtype == one[name].dtype


def test_memory_of_a_learner_is_loaded_with_it():
    (_, one), (_, other) = begun(), begun(seed=1)
    one.memory.put("queue", torch.randn(7, 3))
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.memory["queue"], one.memory["queue"])
    assert torch.equal(other.classifier.weight, one.classifier.weight)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        other.load_state_dict({**one.state_dict(), "queue": torch.zeros(1)})  # of nobody's memory


# Groups


class InGroups(SimGCD):
    """Three groups, one of which learns at another rate."""

    rate = 1.0

    def groups(self, training):
        return [
            {"name": "tail", "params": list(self.tail.parameters()), "weight_decay": 0.0},
            {"name": "projector", "params": list(self.projector.parameters()), "weight_decay": 0.0},
            {"name": "classifier", "params": [self.classifier.weight], "weight_decay": 0.0, "rate": self.rate},
        ]


@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_groups_that_are_not_trained_do_not_move(rho):
    class Alternating(InGroups):
        def trains(self, step):
            return ("tail",) if step < STEPS else ("projector", "classifier")

        def after_epoch(self, epoch, features):
            after.append(weights_of(self))
            return {}

    after = []
    task, learner = begun(Alternating, epochs=2, rho=rho, start="random")
    before = weights_of(learner)
    train(task, learner)
    of_tail = {name for name in before if name.startswith("tail.")}
    assert {name for name in before if not torch.equal(before[name], after[0][name])} == of_tail
    assert {name for name in before if not torch.equal(after[0][name], after[1][name])} == set(before) - of_tail


def test_a_group_learns_at_its_rate():
    """After one step of one epoch it has moved that much further, and the others as far."""
    moves = []
    for rate in (1.0, 10.0):
        task, learner = begun(InGroups, epochs=1, batch_size=1000, start="random")
        learner.rate = rate
        before = weights_of(learner)
        train(task, learner)
        moves.append({name: parameter.detach() - before[name] for name, parameter in learner.named_parameters()})
    one, ten = moves
    for name in one:
        expected = one[name] * (10 if name == "classifier.weight" else 1)
        torch.testing.assert_close(ten[name], expected, rtol=1e-3, atol=1e-6)  # differences of weights about 1
    assert one["classifier.weight"].abs().max() > 1e-3


def test_a_group_follows_the_schedule_at_its_rate(monkeypatch):
    """Rates are shares of the learning rate of the epoch, not of the first one."""
    rates = []

    class Slower(InGroups):
        rate = 0.5

        def learning_rate(self, epoch, training):
            return 0.1 / (1 + epoch)

    original = torch.optim.SGD.step

    def step(self, *how):
        rates.append([group["lr"] for group in self.param_groups])
        return original(self, *how)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    journal = MemoryJournal()
    train(*begun(Slower, journal=journal, epochs=2))
    assert rates == [[0.1, 0.1, 0.05]] * STEPS + [[0.05, 0.05, 0.025]] * STEPS
    assert [entry["learning_rate"] for entry in journal.entries] == [0.1, 0.05]


# Steps


class CountsSteps(SimGCD):
    """Lists the losses it computed and the steps that were taken."""

    def __init__(self, task, s):
        super().__init__(task, s)
        self.computed, self.taken = [], []

    def losses(self, batch):
        step = super().losses(batch)
        self.computed.append(batch.step)
        return Step(step.parts, {"total": step.parts["total"].detach()})

    def after_step(self, batch, kept):
        assert not torch.is_grad_enabled()
        self.taken.append((batch.step, kept["total"].item()))


@pytest.mark.parametrize(("rho", "passes"), [(0.0, 1), (0.05, 2)])
def test_after_step_is_called_once_per_step_with_what_the_first_pass_kept(rho, passes):
    journal = MemoryJournal()
    task, learner = begun(CountsSteps, journal=journal, epochs=2, rho=rho)
    train(task, learner)
    assert learner.computed == [step for step in range(2 * STEPS) for _ in range(passes)]
    assert [step for step, _ in learner.taken] == list(range(2 * STEPS))
    for epoch, entry in enumerate(journal.entries):  # the log has the losses before the step
        totals = [total for _, total in learner.taken[epoch * STEPS : (epoch + 1) * STEPS]]
        assert entry["total"] == pytest.approx(np.mean(totals))


def test_after_step_sees_the_weights_after_the_step():
    class Watching(SimGCD):
        def losses(self, batch):
            return Step(super().losses(batch).parts, {"weight": self.classifier.weight.detach().clone()})

        def after_step(self, batch, kept):
            moved.append(not torch.equal(self.classifier.weight, kept["weight"]))

    moved = []
    train(*begun(Watching, epochs=1, rho=0.05))
    assert moved == [True] * STEPS


def test_after_step_is_not_called_for_a_skipped_step():
    class Infinite(CountsSteps):
        def losses(self, batch):
            step = super().losses(batch)
            factor = np.inf if batch.step in (1, 4) else 1.0
            return Step({**step.parts, "total": step.parts["total"] * factor}, step.kept)

    journal = MemoryJournal()
    task, learner = begun(Infinite, journal=journal, epochs=2, rho=0.05)
    train(task, learner)
    assert [step for step, _ in learner.taken] == [step for step in range(2 * STEPS) if step not in (1, 4)]
    assert journal.entries[-1]["skipped_steps"] == 2


# Between epochs


def test_between_epochs_comes_before_each_epoch_with_the_last_prediction():
    class Watching(SimGCD):
        def between_epochs(self, epoch, prediction):
            asked.append((epoch, prediction, self.classifier.weight.detach().clone()))
            return Between()

        def losses(self, batch):
            assert asked[-1][0] == batch.epoch
            return super().losses(batch)

    asked = []
    task, learner = begun(Watching, epochs=3, start="random")
    first = learner.classifier.weight.detach().clone()
    last = train(task, learner).prediction
    assert [epoch for epoch, _, _ in asked] == [0, 1, 2]
    assert asked[0][1] is None
    assert torch.equal(asked[0][2], first)
    for _, prediction, weight in asked[1:]:
        assert prediction.probabilities.shape == (N, CLASSES)
        cosines = NearestCentre(torch.nn.functional.normalize(weight, dim=1))(prediction.features)
        torch.testing.assert_close(prediction.probabilities, (cosines / 0.1).softmax(dim=1))
        assert not torch.equal(prediction.probabilities, last.probabilities)


def test_what_is_returned_between_epochs_is_in_memory_and_in_the_batches():
    class Labelling(SimGCD):
        temporary = ("passing",)

        def between_epochs(self, epoch, prediction):
            labels = LABELS.copy()
            labels[:] = epoch if epoch else LABELS
            memory = {"epoch": torch.tensor([epoch]), "passing": torch.zeros(epoch + 1)}
            return Between(labels if epoch else None, prediction, {"reason": "a test"}, memory)

        def losses(self, batch):
            expected = np.full(len(batch.images), batch.epoch) if batch.epoch else LABELS[batch.images]
            assert np.array_equal(batch.labels, expected)
            assert self.memory["epoch"].item() == batch.epoch
            assert len(self.memory["passing"]) == batch.epoch + 1
            return super().losses(batch)

    journal = MemoryJournal()
    task, learner = begun(Labelling, journal=journal, epochs=3)
    trained = train(task, learner)
    assert (trained.labels == 2).all()
    assert [line["epoch"] for line in journal.pseudo_label_entries] == [2, 3]
    assert {line["reason"] for line in journal.pseudo_label_entries} == {"a test"}
    assert "memory.epoch" in learner.state_dict()
    assert "memory.passing" not in learner.state_dict()


def test_after_epoch_sees_all_features_and_the_predictor_what_it_returns():
    class Centred(SimGCD):
        def after_epoch(self, epoch, features):
            torch.testing.assert_close(features, self.encode(SOURCE.evaluation(range(N))).detach())
            seen.append(features)
            return {"centres": torch.nn.functional.normalize(features[:CLASSES] * (1 + epoch), dim=1)}

        def predictor(self):
            return Predictor(self.tail, NearestCentre(self.memory["centres"]), 0.1)

    seen = []
    task, learner = begun(Centred, epochs=2)
    trained = train(task, learner)
    assert [features.shape for features in seen] == [(N, DIM)] * 2
    assert torch.equal(trained.prediction.features, seen[-1])
    centres = torch.nn.functional.normalize(seen[-1][:CLASSES], dim=1)
    torch.testing.assert_close(trained.predictor.classifier.weight, centres)
    cosines = torch.nn.functional.normalize(seen[-1], dim=1) @ centres.T
    torch.testing.assert_close(trained.prediction.probabilities, (cosines / 0.1).softmax(dim=1))
    assert trained.prediction.classes[:CLASSES].tolist() == list(range(CLASSES))


# Beginning


def test_begin_is_called_once_and_not_when_a_training_is_resumed(tmp_path):
    class Beginning(SimGCD):
        def begin(self, task):
            super().begin(task)
            beginnings.append(task)

    beginnings = []
    with pytest.raises(Interrupted):
        train(*begun(Beginning, journal=new_journal(tmp_path, stopping_after(2))))
    assert len(beginnings) == 1
    for _ in range(2):  # resumed, then only evaluated
        train(*begun(Beginning, journal=new_journal(tmp_path)))
    assert len(beginnings) == 1
    assert [entry["epoch"] for entry in new_journal(tmp_path).log()] == [1, 2, 3, 4]


# The batch


def test_random_is_the_same_in_both_passes_and_another_in_each_step():
    class Drawing(SimGCD):
        def losses(self, batch):
            drawn.append(batch.random().random())
            return super().losses(batch)

    drawn = []
    train(*begun(Drawing, epochs=2, rho=0.05))
    assert len(drawn) == 2 * 2 * STEPS
    assert drawn[::2] == drawn[1::2]
    assert len(set(drawn)) == 2 * STEPS


def test_random_depends_on_seed_stage_and_step_alone():
    def drawn(**how):
        empty = {"tokens": torch.empty(0), "images": torch.empty(0), "labels": torch.empty(0)}
        return Batch(**empty, **{"epoch": 0, "steps": 9, "seed": 0, "stage": 1, "step": 0, **how}).random().random()

    usual = drawn()
    assert drawn(epoch=3, steps=20) == usual
    assert len({usual, drawn(seed=1), drawn(stage=2), drawn(step=1)}) == 4


def test_done_is_the_share_of_steps_that_lie_behind():
    class Watching(SimGCD):
        def losses(self, batch):
            done.append(batch.done)
            return super().losses(batch)

    done = []
    train(*begun(Watching, epochs=2))
    assert done == [step / (2 * STEPS) for step in range(2 * STEPS)]


def test_a_batch_names_its_images_and_their_labels():
    class Watching(SimGCD):
        def losses(self, batch):
            expected = batch_of(task, batch.images.numpy(), step=batch.step)
            assert torch.equal(batch.tokens, expected.tokens)
            assert torch.equal(batch.labels, expected.labels)
            assert torch.equal(batch.everyone(batch.tokens), batch.tokens)  # there is one process
            seen.append(batch)
            return super().losses(batch)

    seen = []
    task, learner = begun(Watching, epochs=2)
    train(task, learner)
    assert [(batch.epoch, batch.step, batch.steps, batch.stage) for batch in seen] == [
        (step // STEPS, step, 2 * STEPS, 1) for step in range(2 * STEPS)
    ]
    assert {len(batch.images) for batch in seen} == {48}
