import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from helping.contract import new_journal, without_seconds
from helping.groups import CLASSES, KNOWN, LABELS, SOURCE, TRUE, N
from helping.tasks import Interrupted, adapted, batch_of, decided_for, fitted, new_task, stopping_after
from newfound.errors import SettingError
from newfound.methods import orca
from newfound.methods.orca import entropy, margin_cross_entropy, orca_losses, pair_loss, partners, uncertainty
from newfound.runs.journal import MemoryJournal
from newfound.runs.tensor_files import load_tensors
from newfound.training import loop
from newfound.training.heads import CosineClassifier
from newfound.training.loop import train
from newfound.training.samplers import all_alike, half_labelled

# The golden files: the released step in double precision.


@pytest.mark.parametrize("case", ["orca_losses_00", "orca_losses_01"])  # 01: classes with one labelled image
def test_parts_and_gradients_match_the_released_step(golden, case):
    data = np.load(golden / "peers" / f"{case}.npz", allow_pickle=False)
    features, labels = torch.tensor(data["features"], requires_grad=True), torch.tensor(data["labels"])
    classifier = CosineClassifier.holding({"weight": torch.tensor(data["weight"])})
    pairs = torch.tensor(data["pairs"])
    assert len(data["uncertainties"]) >= 2
    for i, uncertain in enumerate(data["uncertainties"].tolist()):
        logits = orca.SCALE * classifier(features.flatten(0, 1))
        np.testing.assert_allclose(logits[: len(labels)].detach(), data["logits_view1"], atol=1e-10)
        parts = orca_losses(logits, labels, pairs, margin=min(uncertain, 0.5))
        for name, part in parts.items():
            assert part.item() == pytest.approx(float(data[f"{name}_{i}"]), abs=1e-10), name
        of_features, of_weight = torch.autograd.grad(parts["total"], [features, classifier.weight])
        np.testing.assert_allclose(of_features, data[f"grad_features_{i}"], atol=1e-8, rtol=0)
        np.testing.assert_allclose(of_weight, data[f"grad_weight_{i}"], atol=1e-8, rtol=0)


@pytest.mark.parametrize("case", ["orca_losses_00", "orca_losses_01"])
def test_neighbours_match_the_released_step_and_some_draw_gives_its_pairs(golden, case):
    data = np.load(golden / "peers" / f"{case}.npz", allow_pickle=False)
    first, labels, pairs = torch.tensor(data["features"][0]), torch.tensor(data["labels"]), torch.tensor(data["pairs"])
    unlabelled = labels < 0
    draws = [torch.full((len(labels),), r) for r in np.linspace(0, 1, 40, endpoint=False)]
    found = torch.stack([partners(first, labels, draw) for draw in draws])
    assert (found[:, unlabelled] == pairs[unlabelled]).all()
    assert (found == pairs).any(dim=0).all()


def test_margin_loss_entropy_and_uncertainty_match_the_released_ones(golden):
    data = np.load(golden / "peers" / "orca_parts_00.npz", allow_pickle=False)
    logits, labels = torch.tensor(data["logits"], requires_grad=True), torch.tensor(data["labels"])
    for i, margin in enumerate(data["margins"].tolist()):
        loss = margin_cross_entropy(logits, labels, margin)
        assert loss.item() == pytest.approx(float(data[f"margin_loss_{i}"]), abs=1e-10)
        gradient = torch.autograd.grad(loss, logits)[0]
        np.testing.assert_allclose(gradient, data[f"margin_grad_{i}"], atol=1e-8, rtol=0)
    for distribution, expected in zip(torch.tensor(data["distributions"]), data["entropies"], strict=True):
        assert entropy(distribution).item() == pytest.approx(float(expected), abs=1e-10)
    assert uncertainty(torch.tensor(data["probabilities"])) == pytest.approx(float(data["uncertainty"]), abs=1e-10)


# Limits and examples by hand.


def batch(seed=0, images=9, classes=5):
    random = torch.Generator().manual_seed(seed)
    logits = 20 * torch.rand(2 * images, classes, generator=random, dtype=torch.float64) - 10
    labels = torch.randint(-1, classes, (images,), generator=random)
    labels[:2] = torch.tensor([0, -1])  # some of either kind
    return logits.requires_grad_(), labels, torch.randint(0, images, (images,), generator=random)


def test_by_hand():
    assert margin_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), 0.5).item() == pytest.approx(0.006715, abs=1e-6)
    assert margin_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), 0.0).item() == pytest.approx(math.log(2))
    p, q = torch.tensor([[[0.25, 0.75]], [[0.9, 0.1]]], dtype=torch.float64)
    assert pair_loss(p.log(), q.log()).item() == pytest.approx(-math.log(0.25 * 0.9 + 0.75 * 0.1), abs=1e-12)


def test_without_margin_it_is_plain_cross_entropy():
    logits, labels, _ = batch()
    first = logits[:9]
    plain = F.cross_entropy(first, labels, ignore_index=-1)
    found = margin_cross_entropy(first, labels, 0.0)
    assert found.item() == pytest.approx(plain.item(), abs=1e-12)
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (found, plain)]
    np.testing.assert_allclose(*gradients, atol=1e-12)


@given(seed=st.integers(0, 1000))
def test_a_larger_margin_is_a_smaller_loss_with_smaller_gradients_of_other_classes(seed):
    logits, labels, _ = batch(seed)
    losses, gradients = [], []
    for margin in (0.0, 0.1, 0.3, 0.5):
        loss = margin_cross_entropy(logits[:9], labels, margin)
        gradient = torch.autograd.grad(loss, logits)[0][:9]
        losses.append(loss.item())
        gradients.append(gradient[(labels >= 0)[:, None] & (torch.arange(5) != labels[:, None])])
    assert all(after < before for before, after in pairwise(losses))
    assert all((after < before).all() for before, after in pairwise(gradients))
    assert (gradients[-1] > 0).all()


@given(seed=st.integers(0, 1000), classes=st.integers(2, 12))
def test_even_predictions_have_nothing_to_gain(seed, classes):
    """Pairs agree to log K whatever the partners, and the entropy is log K."""
    partner = torch.randint(0, 6, (6,), generator=torch.Generator().manual_seed(seed))
    parts = orca_losses(torch.zeros(12, classes).double(), torch.full((6,), -1), partner, margin=0.5)
    assert parts["pair"].item() == pytest.approx(math.log(classes), abs=1e-12)
    assert parts["entropy"].item() == pytest.approx(math.log(classes), abs=1e-12)
    assert parts["total"].item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("label", [-1, 1])
def test_batches_of_one_kind_are_finite(label):
    logits, _, partner = batch()
    labels = torch.full((9,), label)
    parts = orca_losses(logits, labels, partner, margin=0.3)
    gradient = torch.autograd.grad(parts["total"], logits)[0]
    assert all(part.isfinite() for part in parts.values())
    assert gradient.isfinite().all()
    assert (parts["cross_entropy"].item() == 0.0) == (label < 0)


def test_predictions_that_exclude_each_other_are_finite():
    """The logarithm ends at -100; a class that nobody is put into has a probability of 0."""
    logits = torch.tensor([[500.0, 0.0, -500.0], [0.0, 500.0, -500.0]], requires_grad=True)
    parts = orca_losses(logits, torch.tensor([-1]), torch.tensor([0]), margin=0.5)
    assert parts["pair"].item() == 100.0
    assert parts["total"].isfinite()
    assert torch.autograd.grad(parts["total"], logits)[0].isfinite().all()


def test_only_the_weights_of_the_parts_enter_the_total():
    logits, labels, partner = batch()
    parts = orca_losses(logits, labels, partner, margin=0.2, pair_weight=3.0, entropy_weight=0.5)
    plain = orca_losses(logits, labels, partner, margin=0.2)
    assert all(parts[name].item() == plain[name].item() for name in ("pair", "cross_entropy", "entropy"))
    expected = 3 * plain["pair"] + plain["cross_entropy"] - 0.5 * plain["entropy"]
    assert parts["total"].item() == pytest.approx(expected.item(), abs=1e-12)


def test_the_gradient_reaches_both_views_and_labels_only_the_first():
    logits, labels, partner = batch()
    pair = torch.autograd.grad(orca_losses(logits, labels, partner, margin=0.2)["pair"], logits)[0]
    assert (pair[:9].abs().sum(dim=1) > 0).all()
    asked = torch.zeros(9, dtype=torch.bool)
    asked[partner] = True
    assert torch.equal(pair[9:].abs().sum(dim=1) > 0, asked)
    for name in ("cross_entropy", "entropy"):
        gradient = torch.autograd.grad(orca_losses(logits, labels, partner, margin=0.2)[name], logits)[0]
        assert gradient[:9].abs().sum() > 0
        assert gradient[9:].abs().sum() == 0


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"each of 3 images; found shapes \(3, 2\) and \(3,\)"):
        orca_losses(torch.zeros(3, 2), torch.tensor([0, 1, -1]), torch.zeros(3, dtype=torch.long), margin=0.5)


def test_uncertainty_of_even_and_of_sure_predictions():
    assert uncertainty(torch.full((7, 4), 0.25)) == 0.75
    assert uncertainty(torch.eye(4)) == 0.0


# Partners


@given(seed=st.integers(0, 1000), images=st.integers(2, 20))
def test_partners_of_labelled_images_are_of_their_class_and_unlabelled_ones_have_neighbours(seed, images):
    random = torch.Generator().manual_seed(seed)
    features = torch.randn(images, 4, generator=random, dtype=torch.float64)
    labels = torch.randint(-1, 3, (images,), generator=random)
    draws = torch.rand(images, generator=random)
    found = partners(features, labels, draws)
    similarity = F.cosine_similarity(features[:, None], features[None], dim=2)
    for i, (j, label) in enumerate(zip(found.tolist(), labels.tolist(), strict=True)):
        if label < 0:
            others = [o for o in range(images) if o != i]
            assert j == max(others, key=lambda o: similarity[i, o].item())
        else:
            others = [o for o in range(images) if o != i and labels[o] == label]
            assert j == (others[int(draws[i].item() * len(others))] if others else i)
    lengths = 0.1 + 9 * torch.rand(images, 1, generator=random, dtype=torch.float64)
    assert torch.equal(partners(features * lengths, labels, draws), found)


def test_draws_are_even_and_never_beyond_the_last():
    labels, features = torch.zeros(6, dtype=torch.long), torch.eye(6)
    random = np.random.default_rng(0)
    drawn = [partners(features, labels, torch.from_numpy(random.random(6, dtype=np.float32)))[2] for _ in range(2000)]
    counts = np.bincount(drawn, minlength=6)
    assert counts[2] == 0
    assert all(300 < count < 500 for count in np.delete(counts, 2))
    highest = torch.full((6,), float(np.nextafter(np.float32(1), np.float32(0))))
    assert partners(features, labels, highest).tolist() == [5, 5, 5, 5, 5, 4]


def test_a_copy_is_a_neighbour_and_an_image_alone_is_its_own():
    labels = torch.tensor([-1, -1, -1])
    copies = torch.tensor([[0.3, 0.1], [0.3, 0.1], [0.3, 0.1]])
    found = partners(copies, labels, torch.zeros(3))
    assert (found != torch.arange(3)).all()
    assert partners(copies[:1], labels[:1], torch.zeros(1)).tolist() == [0]


# Whole runs


def learner_and_task(**changes):
    settings = decided_for("orca", **changes)
    task = new_task(settings)
    learner = orca.ORCA(task, settings.method)
    learner.begin(task)
    for name, tensor in learner.between_epochs(0, None).memory.items():
        learner.memory.put(name, tensor)
    return learner, task


def seen_partners(monkeypatch):
    seen = []

    def watched(features, labels, draws):
        seen.append((partners(features, labels, draws), labels, draws))
        return seen[-1][0]

    monkeypatch.setattr(orca, "partners", watched)
    return seen


def test_partners_depend_on_seed_and_step(monkeypatch):
    seen = seen_partners(monkeypatch)
    learner, task = learner_and_task()
    images = np.arange(0, N, 4)
    for step in (3, 3, 4):
        learner.losses(batch_of(task, images, step=step))
    again, same, other = (found for found, _, _ in seen)
    assert torch.equal(again, same)
    assert not torch.equal(again, other)
    labelled = task.labels[images] >= 0
    assert not torch.equal(again[labelled], torch.arange(len(images))[labelled])


def test_both_passes_of_the_penalty_draw_alike(monkeypatch):
    seen = seen_partners(monkeypatch)
    fitted(decided_for("orca", epochs=1, rho=0.05))
    assert len(seen) == 2 * (N // 48)
    for (one, labels, draws), (other, _, other_draws) in zip(seen[::2], seen[1::2], strict=True):
        assert torch.equal(draws, other_draws)
        assert torch.equal(one[labels >= 0], other[labels >= 0])
    assert not torch.equal(seen[0][2], seen[2][2])


def margins(**changes):
    journal = MemoryJournal()
    settings = decided_for("orca", **changes)
    fitted(settings, journal=journal)
    return [line["margin"] for line in journal.entries]


def test_the_margin_is_the_uncertainty_before_each_epoch(monkeypatch):
    asked = []

    class Watching(orca.ORCA):
        def between_epochs(self, epoch, prediction):
            between = super().between_epochs(epoch, prediction)
            asked.append((prediction, between.memory["margin"].item()))
            return between

    monkeypatch.setattr(orca, "ORCA", Watching)
    journal = MemoryJournal()
    fitted(decided_for("orca", epochs=4), journal=journal)
    assert asked[0][0] is None
    for prediction, margin in asked[1:]:
        of_unlabelled = prediction.probabilities[torch.from_numpy(LABELS < 0)]
        assert margin == pytest.approx(min(0.5, 1 - of_unlabelled.max(dim=1).values.mean().item()), abs=1e-6)
    assert [line["margin"] for line in journal.entries] == [margin for _, margin in asked]
    assert asked[-1][1] < 0.5


def test_before_the_first_epoch_the_model_is_asked_as_it_is():
    learner, _ = learner_and_task(start="random", largest_margin=1.0)
    learner.eval()
    with torch.no_grad():
        logits = 10 * learner.classifier(learner.tail(SOURCE.evaluation(range(N))))
    expected = 1 - logits.softmax(dim=1)[torch.from_numpy(LABELS < 0)].max(dim=1).values.mean().item()
    assert learner.memory["margin"].item() == pytest.approx(expected, abs=1e-5)
    assert 0.1 < expected < 1 - 1 / CLASSES


def test_the_margin_stays_within_its_limit():
    assert margins(epochs=2, start="random", largest_margin=0.2)[0] == pytest.approx(0.2)
    assert max(margins(epochs=3, start="random", largest_margin=0.05)) == pytest.approx(0.05)
    assert margins(epochs=2, largest_margin=0.0) == [0.0, 0.0]


def test_with_nothing_unlabelled_there_is_no_margin():
    journal = MemoryJournal()
    found = fitted(decided_for("orca", labels=TRUE, epochs=2), labels=TRUE, journal=journal)
    assert [line["margin"] for line in journal.entries] == [0.0, 0.0]
    assert found.prediction.probabilities.isfinite().all()


def test_with_nothing_labelled_it_trains():
    labels, journal = np.full(N, -1), MemoryJournal()
    found = fitted(decided_for("orca", labels=labels, epochs=2), labels=labels, journal=journal)
    assert all(line["cross_entropy"] == 0.0 for line in journal.entries)
    assert found.prediction.probabilities.isfinite().all()


def test_the_margin_is_made_again_and_not_saved(tmp_path):
    """So it cannot but be a function of the saved model: killed before an epoch, a run finds the same one."""
    whole, stopped = new_journal(tmp_path / "whole"), tmp_path / "stopped"
    expected = fitted(decided_for("orca"), journal=whole)
    with pytest.raises(Interrupted):
        fitted(decided_for("orca"), journal=new_journal(stopped, stopping_after(2)))
    tensors, _ = load_tensors(stopped / "checkpoint" / "stage1.safetensors")
    assert not any("margin" in name for name in tensors)
    resumed = new_journal(stopped)
    found = fitted(decided_for("orca"), journal=resumed)
    assert torch.equal(found.prediction.probabilities, expected.prediction.probabilities)
    assert without_seconds(resumed.log()) == without_seconds(whole.log())


@pytest.mark.parametrize(("batches", "draw"), [("alike", all_alike), ("half-labelled", half_labelled)])
def test_batches_are_drawn_as_asked(monkeypatch, batches, draw):
    settings = decided_for("orca", epochs=1, batches=batches)
    drawn = []

    def watched(learner, descent, batch):
        drawn.append(batch.images)
        return one_step(learner, descent, batch)

    one_step = loop.one_step
    monkeypatch.setattr(loop, "one_step", watched)
    fitted(settings)
    expected = draw(LABELS, 48, settings.seed, 0)
    assert [images.tolist() for images in drawn] == [images.tolist() for images in expected]


def test_an_image_drawn_twice_does_no_harm():
    learner, task = learner_and_task()
    parts = learner.losses(batch_of(task, np.array([7, 7, 200, 200]))).parts
    assert all(part.isfinite() for part in parts.values())


def test_prediction_is_the_cosine_classifier_at_a_tenth():
    settings = decided_for("orca", epochs=2)
    task = new_task(settings, adapted(SOURCE))
    learner = orca.ORCA(task, settings.method)
    trained = train(task, learner, draw=all_alike)
    logits = 10 * learner.classifier(trained.prediction.features)
    torch.testing.assert_close(trained.prediction.probabilities, logits.softmax(dim=1).detach())
    assert trained.predictor.temperature == 0.1
    assert trained.predictor.classifier is learner.classifier
    assert logits.shape[1] == CLASSES > KNOWN


# Settings


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("largest_margin", 1.5, "between 0 and 1"),
        ("largest_margin", -0.5, "between 0 and 1"),
        ("pair_weight", -1.0, "0 or more"),
        ("entropy_weight", math.inf, "0 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, value, what):
    with pytest.raises(SettingError, match=f"{setting} must be {what}"):
        decided_for("orca", **{setting: value})


def test_published_values_are_those_of_a_preset_and_clusters_the_start_elsewhere():
    cifar = decided_for("orca", preset="cifar100", batch_size=None)
    assert (cifar.method.start, cifar.batch_size, cifar.weight_decay) == ("random", 512, 5e-4)
    assert decided_for("orca", preset="cub", batch_size=None).batch_size == 128
    assert decided_for("orca").method.start == "clusters"
