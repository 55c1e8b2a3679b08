import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helping.contract import new_journal
from helping.groups import CLASSES, KNOWN, LABELS, N
from helping.tasks import Interrupted, batch_of, decided_for, fitted, new_task, stopping_after
from newfound.errors import SettingError
from newfound.methods.uno import UNO, swapped_targets, uno_losses, warmed_rate
from newfound.runs.tensor_files import load_tensors
from newfound.training.classifiers import PrototypeHead, SplitClassifier
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Batch
from newfound.training.loop import train

CASES = ["uno_losses_00", "uno_losses_01"]  # 01: nothing is labelled
STEPS = N // 48  # of an epoch


def loaded(golden, case):
    data = np.load(golden / "peers" / f"{case}.npz", allow_pickle=False)
    return {name: torch.tensor(data[name]) for name in data.files}


def by_head(logits):
    """2 views×H×B×K to one 2B×K per head."""
    return [logits[:, j].flatten(0, 1) for j in range(logits.shape[1])]


def random_logits(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


# The golden files: the released implementation in double precision.


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("variant", "new_only"), [("plus", False), ("ncd", True)])
def test_losses_and_gradients_match_the_released_implementation(golden, case, variant, new_only):
    data = loaded(golden, case)
    known, new, over = (data[f"logits_{name}"].requires_grad_() for name in ("known", "new", "over"))
    parts = uno_losses(
        known.flatten(0, 1), by_head(new), by_head(over), data["labels"], temperature=data["temperature"].item(),
        new_only=new_only,
    )  # fmt: skip
    for ours, theirs in (("cluster", "cluster_per_head"), ("over", "over_per_head"), ("total", "total")):
        np.testing.assert_allclose(parts[ours].detach(), data[f"{variant}_{theirs}"], atol=1e-10, rtol=0)
    parts["total"].backward()
    for tensor, name in ((known, "known"), (new, "new"), (over, "over")):
        np.testing.assert_allclose(tensor.grad, data[f"{variant}_grad_{name}"], atol=1e-8, rtol=0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", ["plus", "ncd"])
@pytest.mark.parametrize(("head", "suffix"), [("new", ""), ("over", "_over")])
def test_targets_match_the_released_implementation(golden, case, variant, head, suffix):
    data = loaded(golden, case)
    known, logits, expected = data["logits_known"], data[f"logits_{head}"], data[f"{variant}_targets{suffix}"]
    first = known.shape[2] if variant == "ncd" else 0
    for view in range(2):
        for j in range(logits.shape[1]):
            both = torch.cat([known[view], logits[view, j]], dim=1)
            ours = swapped_targets(both, data["labels"], 0.05, 3, first)
            np.testing.assert_allclose(ours, expected[view, j], atol=1e-10, rtol=0)


NAMES = {  # of the tensors of a head: ours, and the released ones of head j
    "hidden.weight": "projectors.{}.mlp.0.weight", "hidden.bias": "projectors.{}.mlp.0.bias",
    "norm.gain": "projectors.{}.mlp.1.weight", "norm.shift": "projectors.{}.mlp.1.bias",
    "norm.running_mean": "projectors.{}.mlp.1.running_mean", "norm.running_variance": "projectors.{}.mlp.1.running_var",
    "out.weight": "projectors.{}.mlp.3.weight", "out.bias": "projectors.{}.mlp.3.bias",
    "prototypes.weight": "prototypes.{}.prototypes.weight",
}  # fmt: skip


def released_names():
    """Of all tensors of two heads and their twins."""
    names = {"known.weight": "head_lab.prototypes.weight"}
    for ours, theirs in (("new", "head_unlab"), ("over", "head_unlab_over")):
        for j in range(2):
            names |= {f"{ours}.{j}.{name}": f"{theirs}.{released.format(j)}" for name, released in NAMES.items()}
    return names


@pytest.fixture
def released(golden):
    """The stored numbers, a learner in double precision with the stored weights, and the stored batch."""
    data = loaded(golden, "uno_heads_00")
    settings = decided_for("uno", heads=2)
    learner = UNO(new_task(settings), settings.method)
    learner.tail, learner.known = nn.Identity(), CosineClassifier(12, 4)
    learner.new = nn.ModuleList(PrototypeHead(12, 3, 16, 6) for _ in range(2))
    learner.over = nn.ModuleList(PrototypeHead(12, 9, 16, 6) for _ in range(2))
    learner.double()
    names = released_names()
    learner.load_state_dict({ours: data[f"w/{theirs}"] for ours, theirs in names.items()}, strict=False)
    tokens = data["features"].flatten(0, 1).requires_grad_()
    return data, learner, Batch(tokens, torch.arange(8), data["labels"], 0, 0, 1, seed=0, stage=1)


def test_a_whole_step_matches_the_released_heads(released):
    data, learner, batch = released
    learner.normalise()
    step = learner.losses(batch)
    assert step.parts["total"].item() == pytest.approx(data["total"].item(), abs=1e-10)
    assert step.parts["cluster"].item() == pytest.approx(data["cluster_per_head"].mean().item(), abs=1e-10)
    assert step.parts["over"].item() == pytest.approx(data["over_per_head"].mean().item(), abs=1e-10)
    step.parts["total"].backward()
    by_features = batch.tokens.grad.view(2, 8, -1)
    np.testing.assert_allclose(by_features, data["grad_features"], atol=1e-8, rtol=0)
    names, parameters = released_names(), dict(learner.named_parameters())
    assert len(parameters) == 1 + 4 * 7
    for name, parameter in parameters.items():
        np.testing.assert_allclose(parameter.grad, data[f"grad/{names[name]}"], atol=1e-8, rtol=0, err_msg=name)

    learner.after_step(batch, step.kept)
    np.testing.assert_allclose(learner.memory["head_losses"], data["cluster_per_head"], atol=1e-10, rtol=0)
    after = {ours: theirs for ours, theirs in names.items() if f"after/{theirs}" in data}
    assert len(after) == 1 + 4 * 3
    for ours, theirs in after.items():
        np.testing.assert_allclose(learner.state_dict()[ours], data[f"after/{theirs}"], atol=1e-10, rtol=0)


def test_evaluation_matches_the_released_heads(released):
    data, learner, batch = released
    learner.normalise()
    learner.after_step(batch, learner.losses(batch).kept)
    view = data["features"][0]
    with torch.inference_mode():
        for j, head in enumerate(learner.new):
            expected = torch.cat([data["eval_logits_known"], data["eval_logits_new"][j]], dim=1)
            np.testing.assert_allclose(SplitClassifier(learner.known, head)(view), expected, atol=1e-10, rtol=0)
        learner.memory.put("head_losses", torch.tensor([5.0, 5.0]))
        assert torch.equal(learner.predictor().probabilities(view).argmax(dim=1), data["eval_prediction"])
    assert data["best_head"] == 0


@pytest.mark.parametrize("case", [0, 1])
def test_the_learning_rate_matches_the_released_one(golden, case):
    data = np.load(golden / "peers" / "uno_schedule_00.npz", allow_pickle=False)
    epochs, warmup, highest, lowest = data[f"epochs_warmup_base_min_{case}"].tolist()
    epochs, warmup = int(epochs), int(warmup)
    rates = [warmed_rate(e, epochs, warmup, highest, lowest) for e in range(epochs)]
    np.testing.assert_allclose(rates, data[f"rates_{case}"], atol=1e-10, rtol=0)
    settings = decided_for("uno", epochs=epochs)  # a twentieth of the epochs
    learner = UNO(new_task(settings), settings.method)
    ours = [learner.learning_rate(e, new_task(settings).training) for e in range(epochs)]
    np.testing.assert_allclose(ours, rates, atol=1e-10, rtol=0)


def test_a_short_warm_up_is_at_the_lowest_rate_and_none_at_the_highest():
    assert warmed_rate(0, 4, 1, 0.1, 0.001) == 0.001
    assert warmed_rate(1, 4, 1, 0.1, 0.001) == pytest.approx(0.1)
    assert warmed_rate(0, 4, 0, 0.1, 0.001) == pytest.approx(0.1)
    assert warmed_rate(0, 1, 1, 0.1, 0.001) == 0.001


@pytest.mark.parametrize(("base", "lowest"), [(0.1, 0.001), (0.4, 0.001), (0.01, 0.001), (0.0005, 0.0005)])
def test_the_lowest_rate_is_the_published_constant_unless_the_full_one_is_lower(base, lowest):
    settings = decided_for("uno", learning_rate=base, warmup_epochs=2)
    learner, training = UNO(new_task(settings), settings.method), new_task(settings).training
    assert learner.learning_rate(0, training) == lowest
    assert learner.learning_rate(1, training) == pytest.approx(base)
    assert min(learner.learning_rate(e, training) for e in range(4)) == lowest


@pytest.mark.parametrize("warmup", [4, 5])
def test_a_warm_up_that_leaves_no_epoch_at_the_full_rate_is_refused(warmup):
    with pytest.raises(SettingError, match="leaves no epoch at the full learning rate: there are only 4 epochs"):
        decided_for("uno", epochs=4, warmup_epochs=warmup)
    assert decided_for("uno", epochs=4, warmup_epochs=3).method.warmup_epochs == 3


def test_the_default_warm_up_leaves_an_epoch_at_the_full_rate():
    assert [decided_for("uno", epochs=e).method.warmup_epochs for e in (1, 2, 39, 40, 200)] == [0, 1, 1, 2, 10]


# The loss


def test_with_labels_alone_it_is_the_cross_entropy_of_both_views():
    known, new, over = random_logits(8, 2), random_logits(8, 3, seed=1), random_logits(8, 6, seed=2)
    labels = torch.tensor([0, 4, 1, 2])
    parts = uno_losses(known, [new], [over], labels)
    of = [F.cross_entropy(torch.cat([known, own], dim=1) / 0.1, labels.repeat(2)) for own in (new, over)]
    torch.testing.assert_close(torch.stack([parts["cluster"][0], parts["over"][0]]), torch.stack(of))
    torch.testing.assert_close(parts["total"], sum(of) / 2)


@pytest.mark.parametrize("labels", [[-1, -1, -1, -1], [-1, 0, 1, 0], [0, 0, 1, 1]])  # one alone is unlabelled: 1
@pytest.mark.parametrize("n_new", [3, 0])
def test_any_share_of_labels_gives_finite_numbers(labels, n_new):
    known = random_logits(8, 2).requires_grad_()
    parts = uno_losses(known, [random_logits(8, n_new)], [random_logits(8, 3 * n_new)], torch.tensor(labels))
    assert parts["total"].isfinite()
    assert torch.autograd.grad(parts["total"], known)[0].isfinite().all()


def test_no_gradient_flows_through_the_targets():
    """Central differences of the loss with fixed targets."""
    logits, labels = random_logits(8, 4).requires_grad_(), torch.tensor([-1, 0, -1, 1])
    total = uno_losses(logits[:, :2], [logits[:, 2:]], [logits[:, 2:]], labels)["total"]
    gradient = torch.autograd.grad(total, logits)[0]
    one, other = logits.detach().chunk(2)
    targets = torch.cat([swapped_targets(view, labels, 0.05, 3) for view in (other, one)])

    def with_fixed_targets(rows):
        return -(targets * F.log_softmax(rows / 0.1, dim=1)).sum(dim=1).mean().item()

    assert total.item() == pytest.approx(with_fixed_targets(logits.detach()))
    for row in range(4):  # of view 1
        for column in range(4):
            step = torch.zeros(8, 4, dtype=torch.float64)
            step[row, column] = 1e-6
            slope = (with_fixed_targets(logits.detach() + step) - with_fixed_targets(logits.detach() - step)) / 2e-6
            assert gradient[row, column].item() == pytest.approx(slope, abs=1e-6)


def test_a_twin_with_as_many_classes_and_equal_weights_has_the_same_loss():
    settings = decided_for("uno", heads=1, overclustering=1)
    task = new_task(settings)
    learner = UNO(task, settings.method)
    learner.over.load_state_dict(learner.new.state_dict())
    learner.begin(task)
    parts = learner.losses(batch_of(task, np.arange(0, N, 6))).parts
    assert torch.equal(parts["cluster"], parts["over"])
    torch.testing.assert_close(parts["total"], parts["cluster"])


def test_pseudo_labels_may_be_known_classes_unless_they_may_not():
    logits, labels = random_logits(6, 5), torch.full((6,), -1)
    assert (swapped_targets(logits, labels, 0.05, 3)[:, :2] > 0).all()
    new_only = swapped_targets(logits, labels, 0.05, 3, first=2)
    assert not new_only[:, :2].any()
    torch.testing.assert_close(new_only.sum(dim=1), torch.ones(6, dtype=torch.float64))


# Whole runs


class Watching(UNO):
    """Counts, and looks at the lengths of directions and prototypes before every step."""

    normalised = 0
    lengths = ()

    def normalise(self):
        super().normalise()
        self.normalised += 1

    def after_step(self, batch, kept):
        super().after_step(batch, kept)
        classifiers = (self.known, *(head.prototypes for head in self.every_head))
        self.lengths = (*self.lengths, *(c.weight.detach().norm(dim=1) for c in classifiers))


def watched(**changes):
    settings = decided_for("uno", **{"heads": 2, "epochs": 2, **changes})
    task = new_task(settings)
    learner = Watching(task, settings.method)
    return learner, train(task, learner)


@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_prototypes_have_length_one_before_every_step_and_are_normalised_once_per_step(rho):
    learner, _ = watched(rho=rho)
    assert learner.normalised == 1 + 2 * STEPS
    assert len(learner.lengths) == 2 * STEPS * 5
    for lengths in learner.lengths:
        torch.testing.assert_close(lengths, torch.ones_like(lengths), atol=1e-6, rtol=0)


def test_running_statistics_follow_once_per_step_first_view_first():
    settings = decided_for("uno", rho=0.05, heads=1)
    task = new_task(settings)
    learner = UNO(task, settings.method)
    learner.begin(task)
    batch = batch_of(task, np.arange(0, N, 6))
    reference = nn.BatchNorm1d(32)
    with torch.no_grad():
        hidden = learner.new[0].hidden(learner.tail(batch.tokens))
        for view in hidden.chunk(2):
            reference(view)
    before = copy.deepcopy(learner.state_dict())
    kept = learner.losses(batch).kept
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())
    learner.after_step(batch, kept)
    norm = learner.new[0].norm
    torch.testing.assert_close(norm.running_mean, reference.running_mean)
    torch.testing.assert_close(norm.running_variance, reference.running_var)


def test_half_precision_is_for_tail_and_mlps_alone():
    settings = decided_for("uno", heads=1)
    task = new_task(settings)
    learner = UNO(task, settings.method)
    learner.begin(task)
    batch = batch_of(task, np.arange(0, N, 6))
    single, half = (learner.losses(replace(batch, precision=p)) for p in ("float32", "bfloat16"))
    for name, part in half.parts.items():
        assert part.dtype == torch.float32
        assert part != single.parts[name]
        torch.testing.assert_close(part, single.parts[name], rtol=0.05, atol=0)  # three digits, then / 0.05
    assert half.kept["moments"].dtype == torch.float32


def test_head_losses_are_those_of_the_last_epoch(tmp_path):
    journal, settings = new_journal(tmp_path), decided_for("uno", heads=1, epochs=3)
    task = new_task(settings, journal=journal)
    learner = UNO(task, settings.method)
    train(task, learner)
    assert learner.memory["head_losses"].item() == pytest.approx(STEPS * journal.log()[-1]["cluster"], rel=1e-5)


def test_the_head_with_the_smallest_loss_answers_and_the_first_of_equals():
    learner, _ = watched(heads=3, epochs=1)
    for losses, best in (([3.0, 1.0, 2.0], 1), ([2.0, 1.0, 1.0], 1), ([1.0, 1.0, 1.0], 0), ([3.0, 2.0, 1.0], 2)):
        learner.memory.put("head_losses", torch.tensor(losses))
        assert learner.predictor().classifier.new is learner.new[best]


def test_a_stop_keeps_running_statistics_and_head_losses(tmp_path):
    settings = decided_for("uno", heads=2)
    with pytest.raises(Interrupted):
        fitted(settings, journal=new_journal(tmp_path, stopping_after(2)))
    tensors, _ = load_tensors(tmp_path / "checkpoint" / "stage1.safetensors")
    assert tensors["model.memory.head_losses"].shape == (2,)
    assert (tensors["model.memory.head_losses"] > 0).all()
    assert (tensors["model.new.1.norm.running_mean"] != 0).any()
    task = new_task(settings, journal=new_journal(tmp_path))
    restored = UNO(task, settings.method)
    task.journal.restore(1, restored, torch.optim.SGD(restored.parameters(), 0.1))
    for name, tensor in restored.state_dict().items():
        assert torch.equal(tensor, tensors[f"model.{name}"])


def test_known_classes_start_at_labelled_means_or_at_random():
    rows = F.normalize(torch.from_numpy(new_task(decided_for("uno")).frozen()), dim=1)
    means = torch.stack([rows[torch.from_numpy(k == LABELS)].mean(dim=0) for k in range(KNOWN)])
    for start in ("clusters", "random"):
        settings = decided_for("uno", start=start)
        task = new_task(settings)
        learner = UNO(task, settings.method)
        learner.begin(task)
        assert torch.allclose(learner.known.weight, F.normalize(means, dim=1), atol=1e-6) == (start == "clusters")


@pytest.mark.parametrize(("labels", "classes"), [(LABELS, KNOWN), (np.full(N, -1), CLASSES)])
def test_without_new_or_without_known_classes_it_trains(labels, classes):
    settings = decided_for("uno", labels, classes, epochs=2)
    trained = fitted(settings, labels=labels)
    assert trained.prediction.probabilities.shape == (N, classes)
    assert trained.prediction.probabilities.isfinite().all()


def test_heads_by_device_and_preset():
    assert decided_for("uno", heads=None).method.heads == 1
    cub = decided_for("uno", preset="cub", batch_size=None)
    assert (cub.method.heads, cub.method.start, cub.batch_size) == (5, "random", 256)
    own = decided_for("uno", epochs=60)
    assert (own.method.start, own.method.warmup_epochs, own.weight_decay) == ("clusters", 3, 1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [("heads", 0), ("overclustering", 0), ("sinkhorn_epsilon", 0.0), ("student_temperature", math.inf),
     ("warmup_epochs", -1), ("sinkhorn_iterations", 0)],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        decided_for("uno", **{name: value})
