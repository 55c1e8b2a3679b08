import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.losses import simgcd_losses
from newfound.sharpness import SharpnessAware
from newfound.training.heads import CosineClassifier, Projector, parameter_groups
from newfound.training.schedules import teacher_temperature

DTYPES = [(torch.float64, "f64", 1e-10), (torch.float32, "f32", 1e-6)]


def perceptron(data, dtype):
    activation = getattr(nn, str(data["activation"]))
    shapes = [data[f"init/{i}.weight"].shape for i in (0, 2, 4)]
    layers = [nn.Linear(n_in, n_out) for n_out, n_in in shapes]
    network = nn.Sequential(layers[0], activation(), layers[1], activation(), layers[2]).to(dtype)
    network.load_state_dict({k[5:]: torch.tensor(data[k]) for k in data.files if k.startswith("init/")})
    return network


def sgd(groups, data):
    return torch.optim.SGD(groups, float(data["lr"]), float(data["momentum"]), weight_decay=float(data["weight_decay"]))


@pytest.mark.parametrize("name", ["sam_00_mlp_onegroup.npz", "sam_01_mlp_groups_frozen.npz"])
@pytest.mark.parametrize(("dtype", "suffix", "atol"), DTYPES)
def test_five_steps_match_the_released_sam(golden, name, dtype, suffix, atol):
    data = np.load(golden / name, allow_pickle=False)
    network = perceptron(data, dtype)
    if "frozen" in name:
        network[0].weight.requires_grad_(False)
        optimiser = sgd(parameter_groups(network, weight_decay=float(data["weight_decay"])), data)
    else:
        optimiser = sgd(network.parameters(), data)
    sharpness_aware = SharpnessAware(optimiser, float(data["rho"]))
    for k in range(5):
        x, y = torch.tensor(data["batches_x"][k], dtype=dtype), torch.tensor(data["batches_y"][k])
        losses = []

        def gradients(x=x, y=y, losses=losses):
            optimiser.zero_grad()
            loss = F.cross_entropy(network(x), y)
            loss.backward()
            losses.append(loss.item())
            return loss.item()

        first = sharpness_aware.step(gradients)
        assert first == losses[0]
        np.testing.assert_allclose(losses, [data[f"loss1_{suffix}"][k], data[f"loss2_{suffix}"][k]], atol=atol)
        for key, parameter in network.named_parameters():
            np.testing.assert_allclose(parameter.detach(), data[f"step{k + 1}_{suffix}/{key}"], atol=atol, rtol=0)


@pytest.mark.parametrize(("dtype", "suffix", "atol"), DTYPES)
def test_the_whole_simgcd_loss_is_recomputed_uphill(golden, dtype, suffix, atol):
    data = np.load(golden / "sam_03_simgcd_head.npz", allow_pickle=False)
    out_dim, hidden = data["init/mlp.4.weight"].shape
    n_classes, dim = data["init/last_layer.weight_v"].shape
    projector, classifier = Projector(dim, hidden, out_dim).to(dtype), CosineClassifier(dim, n_classes).to(dtype)
    mlp = {k[len("init/mlp.") :]: torch.tensor(data[k]) for k in data.files if k.startswith("init/mlp.")}
    projector.load_state_dict(mlp)
    classifier.load_state_dict({"weight": torch.tensor(data["init/last_layer.weight_v"])})
    optimiser = sgd(parameter_groups(projector, classifier, weight_decay=float(data["weight_decay"])), data)
    sharpness_aware = SharpnessAware(optimiser, float(data["rho"]))
    for k in range(5):
        features = torch.tensor(data["batches_features"][k], dtype=dtype)
        labels = torch.tensor(np.where(data["batches_mask"][k], data["batches_labels"][k], -1))
        temperature = teacher_temperature(int(data["batches_epoch"][k]), 30, 0.07, 0.04)

        def gradients(features=features, labels=labels, temperature=temperature):
            optimiser.zero_grad()
            parts = simgcd_losses(
                projector(features),
                classifier(features),
                labels,
                teacher_temperature=temperature,
                entropy_weight=float(data["memax_weight"]),
                supervised_weight=float(data["sup_weight"]),
            )
            parts["total"].backward()
            return parts["total"].item()

        assert sharpness_aware.step(gradients) == pytest.approx(data[f"loss1_{suffix}"][k], abs=10 * atol)
        ours = {f"mlp.{key}": p for key, p in projector.named_parameters()} | {"last_layer.weight_v": classifier.weight}
        for key, parameter in ours.items():
            np.testing.assert_allclose(parameter.detach(), data[f"step{k + 1}_{suffix}/{key}"], atol=atol, rtol=0)


def small_problem():
    torch.manual_seed(0)
    network = nn.Linear(6, 3)
    return network, torch.randn(8, 6), torch.randint(3, (8,))


def step(network, optimiser, rho, x, y):
    def gradients():
        optimiser.zero_grad()
        F.cross_entropy(network(x), y).backward()

    wrapper = SharpnessAware(optimiser, rho)
    wrapper.step(gradients)
    return wrapper


def test_rho_zero_is_the_plain_optimiser_to_the_bit():
    network, x, y = small_problem()
    other = copy.deepcopy(network)
    one, two = torch.optim.SGD(network.parameters(), 0.1, 0.9), torch.optim.SGD(other.parameters(), 0.1, 0.9)
    for _ in range(4):
        step(network, one, 0.0, x, y)
        two.zero_grad()
        F.cross_entropy(other(x), y).backward()
        two.step()
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), other.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted():
    network, x, y = small_problem()
    before = copy.deepcopy(network.state_dict())
    x[0, 0] = float("inf")
    wrapper = step(network, torch.optim.SGD(network.parameters(), 0.1), 0.05, x, y)
    assert wrapper.skipped_steps == 1
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_weights_are_restored_even_if_the_second_pass_fails():
    network, x, y = small_problem()
    before = copy.deepcopy(network.state_dict())
    calls = []

    def gradients():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        network.zero_grad()
        F.cross_entropy(network(x), y).backward()

    with pytest.raises(RuntimeError):
        SharpnessAware(torch.optim.SGD(network.parameters(), 0.1), 0.05).step(gradients)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_it_works_around_another_optimiser():
    network, x, y = small_problem()
    before = F.cross_entropy(network(x), y).item()
    optimiser = torch.optim.AdamW(network.parameters(), 0.05)
    for _ in range(20):
        step(network, optimiser, 0.05, x, y)
    assert F.cross_entropy(network(x), y).item() < before


def test_a_second_gradient_that_is_not_finite_changes_nothing_either():
    network, x, y = small_problem()
    before = copy.deepcopy(network.state_dict())
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    wrapper, calls = SharpnessAware(optimiser, 0.05), []

    def gradients():
        calls.append(1)
        optimiser.zero_grad()
        wrapper.backward(F.cross_entropy(network(x), y) * (1.0 if len(calls) == 1 else float("inf")))
        return len(calls)

    assert wrapper.step(gradients) is None
    assert wrapper.skipped_steps == 1
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_a_gradient_scaler_changes_nothing_but_the_range(rho):
    """The scale is a power of two: the same bits with and without it, over steps in which it grows."""
    networks, scales = [], []
    for enabled in (False, True):
        network, x, y = small_problem()
        optimiser = torch.optim.SGD(network.parameters(), 0.1, 0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, enabled=enabled)
        wrapper = SharpnessAware(optimiser, rho, scaler)

        def gradients(network=network, optimiser=optimiser, wrapper=wrapper, x=x, y=y):
            optimiser.zero_grad()
            wrapper.backward(F.cross_entropy(network(x), y))

        for _ in range(5):
            wrapper.step(gradients)
        networks.append(network)
        scales.append(scaler.get_scale())
        assert wrapper.skipped_steps == 0
    assert scales == [1.0, 2.0**12]
    for plain, scaled in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(plain, scaled, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.05])
@pytest.mark.parametrize("bad_call", [1, 2])
def test_an_overflow_halves_the_scale_and_skips_the_step(rho, bad_call):
    network, x, y = small_problem()
    before = copy.deepcopy(network.state_dict())
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    wrapper = SharpnessAware(optimiser, rho, torch.amp.GradScaler("cpu", init_scale=2.0**10))
    calls = []

    def gradients():
        calls.append(1)
        optimiser.zero_grad()
        wrapper.backward(F.cross_entropy(network(x), y) * (float("inf") if len(calls) == bad_call else 1.0))
        return "taken"

    if rho == 0 and bad_call == 2:
        assert wrapper.step(gradients) == "taken"
        before = copy.deepcopy(network.state_dict())
    assert wrapper.step(gradients) is None
    assert wrapper.skipped_steps == 1
    assert wrapper.scaler.get_scale() == 2.0**9
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert wrapper.step(gradients) == "taken"
