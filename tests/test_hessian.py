import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from helping.tasks import adapted, batch_of, decided_for, new_task
from newfound.backbones.vit import ViTSpec, ViTTail
from newfound.hessian import (
    HessianOperator,
    Spectrum,
    hessian_spectrum,
    largest_eigenvalue,
    smoothed_density,
    spectral_density,
    trace,
)
from newfound.losses import simgcd_losses
from newfound.methods.simgcd import SimGCD
from newfound.sources.vectors import Embeddings
from newfound.training.heads import Projector

F64 = torch.zeros((), dtype=torch.float64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def exact_hessian(loss_of, parameters):
    """P×P, written down by PyTorch's own function. ``loss_of`` takes the parameters' values by name."""
    names, values = zip(*parameters.items(), strict=True)
    sizes = [v.numel() for v in values]

    def flat_loss(flat):
        pieces = [part.view_as(v) for part, v in zip(flat.split(sizes), values, strict=True)]
        return loss_of(dict(zip(names, pieces, strict=True)))

    start = torch.cat([v.detach().reshape(-1) for v in values])
    return torch.autograd.functional.hessian(flat_loss, start)


def columns(operator):
    """The matrix an operator stands for."""
    like = operator.parameters[0]
    return torch.stack([operator(v) for v in torch.eye(operator.dim, dtype=like.dtype)], dim=1)


def change_of_slope(operator, v, step=1e-5):
    """Hv by differences of the gradient of the first loss."""
    at, slopes = parameters_to_vector(operator.parameters).detach(), []
    for to in (at + step * v, at - step * v, at):  # and back
        vector_to_parameters(to, operator.parameters)
        slopes.append(parameters_to_vector(torch.autograd.grad(operator.losses[0](), operator.parameters)))
    return (slopes[0] - slopes[1]) / (2 * step)


def perceptron():
    """A small network in float64, three batches, and the exact Hessian of the mean loss."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(3, 8, 3, generator=generator()).double(), torch.arange(24).reshape(3, 8) % 3

    def mean_loss(values):
        return sum(F.cross_entropy(torch.func.functional_call(network, values, (x[i],)), y[i]) for i in range(3)) / 3

    losses = [lambda i=i: F.cross_entropy(network(x[i]), y[i]) for i in range(3)]
    return network, losses, exact_hessian(mean_loss, dict(network.named_parameters()))


def symmetric(dim, seed=0):
    m = torch.randn(dim, dim, generator=generator(seed), dtype=torch.float64)
    return m + m.T


def sphere(dim, seed, sample):
    """The unit vector from which a run of Lanczos starts."""
    v = np.random.default_rng([seed, 5, sample]).standard_normal(dim)
    return v / np.linalg.norm(v)


# The product.


def test_the_operator_is_the_hessian_of_the_mean_loss():
    network, losses, exact = perceptron()
    found = columns(HessianOperator(losses, list(network.parameters())))
    assert_allclose(found, exact, rtol=0, atol=1e-10)


def test_frozen_parameters_are_left_out():
    network, losses, exact = perceptron()
    network[0].weight.requires_grad_(False)
    operator = HessianOperator(losses, list(network.parameters()))
    assert operator.dim == exact.shape[0] - 15
    assert_allclose(columns(operator), exact[15:, 15:], rtol=0, atol=1e-10)


def test_unused_and_linear_parameters_have_no_curvature():
    used, linear, unused = (nn.Parameter(torch.tensor([2.0], dtype=torch.float64)) for _ in range(3))
    operator = HessianOperator([lambda: torch.sum(used**2 + 3 * linear)], [unused, linear, used])
    assert columns(operator).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 2]]
    assert columns(HessianOperator([lambda: torch.sum(linear)], [linear])).tolist() == [[0]]


def test_neither_weights_nor_gradients_are_touched_and_no_grad_does_not_matter():
    network, losses, exact = perceptron()
    before = [p.detach().clone() for p in network.parameters()]
    with torch.no_grad():
        product = HessianOperator(losses, list(network.parameters()))(exact[0])
    assert_allclose(product, exact @ exact[0], atol=1e-10)
    assert not product.requires_grad
    assert all(p.grad is None and p.equal(b) for p, b in zip(network.parameters(), before, strict=True))


def test_fused_attention_is_avoided():
    """Its backward has no backward of its own."""
    torch.manual_seed(0)
    spec = ViTSpec(patch_size=4, embed_dim=8, depth=2, num_heads=2, image_size=8)
    tail, tokens = ViTTail(spec, 0).double(), torch.randn(3, 5, 8, generator=generator(), dtype=torch.float64)
    operator = HessianOperator([lambda: tail(tokens).pow(4).mean()], list(tail.parameters()))
    v, w = torch.randn(2, operator.dim, generator=generator(), dtype=torch.float64)
    assert float(w @ operator(v)) == pytest.approx(float(v @ operator(w)), rel=1e-9)
    assert_allclose(operator(v), change_of_slope(operator, v), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused_by_number(value):
    w = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=f"loss 1 is {value}"):
        hessian_spectrum([lambda: torch.sum(w**2), lambda: torch.sum(w * value)], [w])


def test_a_second_derivative_that_is_not_finite_is_refused():
    w = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="not finite, though the loss is"):
        hessian_spectrum([lambda: w.abs().pow(1.5).sum()], [w])


def test_a_loss_that_draws_at_random_is_refused():
    w, random = nn.Parameter(torch.ones(4)), generator()
    with pytest.raises(ValueError, match="must not draw anything at random"):
        hessian_spectrum([lambda: torch.sum(w**2 * torch.rand(4, generator=random))], [w])


def test_what_makes_no_hessian_is_refused():
    w = nn.Parameter(torch.ones(2))

    def loss():
        return torch.sum(w**2)

    for losses, parameters in [([], [w]), ([loss], []), ([loss], [w.detach()])]:
        with pytest.raises(ValueError, match="at least one loss, and one parameter"):
            HessianOperator(losses, parameters)
    with pytest.raises(ValueError, match="all in float32 or all in float64"):
        HessianOperator([loss], [w, nn.Parameter(torch.ones(1, dtype=torch.float64))])
    with pytest.raises(ValueError, match="all in float32 or all in float64"):
        HessianOperator([loss], [nn.Parameter(torch.ones(1, dtype=torch.bfloat16))])
    with pytest.raises(ValueError, match="does not depend on any parameter"):
        HessianOperator([lambda: torch.ones(())], [w])(torch.ones(2))
    with pytest.raises(ValueError, match="flat vector of 2 numbers"):
        HessianOperator([loss], [w])(torch.ones(3))


# Eigenvalues.


def test_full_lanczos_finds_both_ends_of_the_spectrum():
    network, losses, exact = perceptron()
    spectrum = hessian_spectrum(losses, list(network.parameters()), steps=len(exact), samples=1, trace_samples=2)
    eigenvalues = torch.linalg.eigvalsh(exact)
    assert spectrum.largest == pytest.approx(eigenvalues[-1].item(), abs=1e-6)
    assert spectrum.smallest == pytest.approx(eigenvalues[0].item(), abs=1e-6)
    assert spectrum.dim == len(exact)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_eigenvalue_by_value_in_two_vectors_of_memory(seed):
    h = symmetric(60, seed) - 30 * torch.eye(60, dtype=torch.float64)  # the most negative is larger in magnitude
    found = largest_eigenvalue(lambda v: h @ v, 60, iterations=100, seed=seed, like=F64)
    assert found.value == pytest.approx(torch.linalg.eigvalsh(h)[-1].item(), abs=1e-6)
    assert found.residual < 1e-3


def test_few_iterations_say_how_far_off_they_may_be():
    h = symmetric(60)
    eigenvalues = torch.linalg.eigvalsh(h)
    found = largest_eigenvalue(lambda v: h @ v, 60, iterations=8, seed=0, like=F64)
    assert 1e-6 < (eigenvalues - found.value).abs().min() <= found.residual
    assert found.value < eigenvalues[-1]


def test_limited_memory_finds_the_same_ends_and_a_similar_density():
    eigenvalues = torch.cat(
        [torch.linspace(-0.1, 0.1, 290), torch.tensor([-2, -1, 1, 2, 4, 6, 8, 10, 20, 50])]
    ).double()
    whole, part = (
        spectral_density(lambda v: eigenvalues * v, 300, steps=60, samples=2, seed=0, keep=keep, like=F64)
        for keep in (None, 2)
    )
    assert part.largest.value == pytest.approx(50, abs=1e-9)
    assert part.smallest.value == pytest.approx(-2, abs=1e-9)
    assert (whole.nodes > 49).sum() == 2 < (part.nodes > 49).sum()  # one per run, and copies
    for bound in (-1.5, 0.5, 15, 49):  # between eigenvalues: how much of the weight lies above
        assert whole.weights[whole.nodes > bound].sum() == pytest.approx(
            part.weights[part.nodes > bound].sum(), rel=1e-6
        )


# The trace.


def test_the_trace_of_a_diagonal_is_exact():
    h = torch.randn(50, generator=generator(), dtype=torch.float64)
    found = trace(lambda v: h * v, 50, samples=3, seed=0, like=F64)
    assert found.mean == pytest.approx(h.sum().item(), abs=1e-12)
    assert found.standard_error == pytest.approx(0, abs=1e-12)


def test_the_trace_lies_within_its_standard_error():
    h = symmetric(20)
    away = []
    for seed in range(40):
        found = trace(lambda v: h @ v, 20, samples=50, seed=seed, like=F64)
        away.append((found.mean - h.trace().item()) / found.standard_error)
    assert np.max(np.abs(away)) < 4
    assert 0.7 < np.std(away) < 1.3
    of_one_sample = (2 * (h.square().sum() - h.diagonal().square().sum())).sqrt().item()  # what theory says
    assert found.standard_error == pytest.approx(of_one_sample / 50**0.5, rel=0.3)


def test_the_standard_error_of_two_samples_is_half_their_distance():
    found = [trace(lambda v: v.flip(0), 2, samples=2, seed=seed) for seed in range(20)]  # each sample is 2 or -2
    assert {(round(f.mean, 6), round(f.standard_error, 6)) for f in found} == {(-2, 0), (0, 2), (2, 0)}


def test_one_sample_has_no_standard_error():
    with pytest.raises(ValueError, match="at least 2 samples"):
        trace(lambda v: v, 3, samples=1, seed=0)


# The density.


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_moments_below_twice_the_steps_are_exact_for_each_start(steps):
    h = symmetric(12) / 5
    found = spectral_density(lambda v: h @ v, 12, steps=steps, samples=3, seed=7, like=F64)
    for k in range(2 * steps):
        power = torch.linalg.matrix_power(h, k).numpy()
        wanted = np.mean([sphere(12, 7, sample) @ power @ sphere(12, 7, sample) for sample in range(3)])
        assert (found.weights * found.nodes**k).sum() == pytest.approx(wanted, abs=1e-10)


@pytest.mark.long
def test_moments_over_many_starts_are_those_of_the_spectrum():
    h = symmetric(12)
    found = spectral_density(lambda v: h @ v, 12, steps=4, samples=2000, seed=0, like=F64)
    frobenius = h.square().sum().item()
    assert found.weights.sum() == pytest.approx(1)
    error = math.sqrt(2 * frobenius / 2000) / 12  # standard error of the first moment
    assert (found.weights * found.nodes).sum() == pytest.approx(h.trace().item() / 12, abs=4 * error)
    assert (found.weights * found.nodes**2).sum() == pytest.approx(frobenius / 12, rel=0.05)


def test_with_all_steps_each_run_finds_each_eigenvalue():
    h = symmetric(15)
    found = spectral_density(lambda v: h @ v, 15, steps=100, samples=300, seed=0, like=F64)
    nodes, weights = found.nodes.reshape(300, 15), found.weights.reshape(300, 15)
    assert_allclose(nodes, np.broadcast_to(torch.linalg.eigvalsh(h), nodes.shape), rtol=0, atol=1e-9)
    assert_allclose(weights.sum(axis=0), 1 / 15, rtol=0.35)
    assert found.residuals.max() < 1e-10


@pytest.mark.parametrize("keep", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lanczos_ends_early_where_there_is_nothing_more_to_find(dtype, keep):
    def density(matrix):
        h = torch.as_tensor(matrix, dtype=dtype)
        return spectral_density(lambda v: h @ v, len(h), steps=6, samples=2, seed=0, keep=keep, like=h)

    zero = density(np.zeros((5, 5)))
    assert zero.nodes.tolist() == [0, 0]
    assert zero.weights.tolist() == [0.5, 0.5]
    assert_allclose(density(3 * np.eye(5)).nodes, 3, rtol=1e-6)
    assert_allclose(density([[-2.0]]).nodes, [-2, -2], rtol=1e-6)
    ones = density(np.ones((5, 5)))  # rank 1: eigenvalue 5 once, 0 four times
    heavy = ones.weights > 1e-6
    near = np.minimum(np.abs(ones.nodes), np.abs(ones.nodes - 5))
    assert heavy.sum() == 4
    assert near[heavy].max() < 1e-5
    assert ones.weights.sum() == pytest.approx(1)
    assert ones.largest.value == pytest.approx(5, rel=1e-6)


def test_the_identity_may_return_its_argument():
    assert_allclose(spectral_density(lambda v: v, 4, steps=4, samples=1, seed=0).nodes, 1, rtol=1e-6)


def test_millions_of_float32_are_added_without_losing_digits():
    dim = 2_000_000
    h = torch.ones(dim)
    h[::2] = 3
    found = spectral_density(lambda v: h * v, dim, steps=2, samples=1, seed=0)
    # Each of the vectors' numbers is rounded to 6e-8 of itself, at random; all else is added in double precision.
    assert_allclose(found.nodes, [1, 3], rtol=1e-6)
    assert trace(lambda v: h * v, dim, samples=2, seed=0).mean == 2 * dim  # ±1 · h · ±1: nothing to round


def test_bad_numbers_are_refused():
    for bad in ({"steps": 0}, {"samples": 0}, {"keep": 1}):
        with pytest.raises(ValueError, match="at least"):
            spectral_density(lambda v: v, 3, **{"steps": 2, "samples": 1, "seed": 0, **bad})
    with pytest.raises(ValueError, match="width above 0"):
        smoothed_density([0.0], [1.0], [0.0], width=0.0)


matrices = st.integers(1, 8).flatmap(
    lambda n: st.lists(st.floats(-10, 10, width=16), min_size=n * n, max_size=n * n).map(
        lambda entries: np.reshape(entries, (n, n)) + np.reshape(entries, (n, n)).T
    )
)


@settings(max_examples=100, deadline=None)
@given(matrix=matrices, steps=st.integers(1, 10), keep=st.none() | st.integers(2, 4), seed=st.integers(0, 99))
def test_ritz_values_lie_inside_the_spectrum_and_near_an_eigenvalue(matrix, steps, keep, seed):
    h, eigenvalues = torch.tensor(matrix), np.linalg.eigvalsh(matrix)
    found = spectral_density(lambda v: h @ v, len(h), steps=steps, samples=2, seed=seed, keep=keep, like=h)
    slack = 1e-9 * (1 + np.abs(eigenvalues).max())
    assert found.nodes.min() >= eigenvalues[0] - slack
    assert found.nodes.max() <= eigenvalues[-1] + slack
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1)
    if keep is None:
        nearest = np.abs(found.nodes[:, None] - eigenvalues).min(axis=1)
        assert (nearest <= found.residuals + slack).all()
        if steps >= len(h):
            assert found.largest.value == pytest.approx(eigenvalues[-1], abs=1e-6)
            assert found.smallest.value == pytest.approx(eigenvalues[0], abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(matrix=matrices, seed=st.integers(0, 99))
def test_the_trace_lies_between_its_bounds(matrix, seed):
    h, eigenvalues = torch.tensor(matrix), np.linalg.eigvalsh(matrix)
    found = trace(lambda v: h @ v, len(h), samples=4, seed=seed, like=h)
    slack = 1e-9 * (1 + np.abs(eigenvalues).max())
    assert len(h) * eigenvalues[0] - slack <= found.mean <= len(h) * eigenvalues[-1] + slack


def test_the_smoothed_density_integrates_to_one():
    h = symmetric(15)
    found = spectral_density(lambda v: h @ v, 15, steps=6, samples=3, seed=0, like=F64)
    grid = np.linspace(-40, 40, 4001)
    density = smoothed_density(found.nodes, found.weights, grid, width=0.7)
    assert density.sum() * 0.02 == pytest.approx(1, abs=1e-9)
    assert (density * grid).sum() * 0.02 == pytest.approx((found.weights * found.nodes).sum(), abs=1e-9)


# All together.


def test_the_same_seed_gives_the_same_spectrum_and_json_keeps_it():
    network, losses, _ = perceptron()
    options = {"steps": 5, "samples": 2, "trace_samples": 3}
    one, two, other = (hessian_spectrum(losses, list(network.parameters()), **options, seed=s) for s in (3, 3, 4))
    assert one == two != other
    assert Spectrum.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    smoothed_density(one.nodes, one.weights, [0.0, 1.0], width=0.1)


def test_float32_agrees_with_float64():
    network, losses, exact = perceptron()
    precise = hessian_spectrum(losses, list(network.parameters()), steps=10, samples=1)
    network.float()
    x, y = torch.randn(3, 8, 3, generator=generator()), torch.arange(24).reshape(3, 8) % 3
    rough = hessian_spectrum(
        [lambda i=i: F.cross_entropy(network(x[i]), y[i]) for i in range(3)],
        list(network.parameters()),
        steps=10,
        samples=1,
    )
    assert rough.largest == pytest.approx(precise.largest, rel=1e-5)
    assert rough.trace == pytest.approx(precise.trace, rel=1e-5)
    assert abs(precise.trace - exact.trace().item()) < 4 * precise.trace_error


def test_progress_counts_the_products():
    w, told = nn.Parameter(torch.arange(5.0)), []
    hessian_spectrum(
        [lambda: torch.sum(w**3)], [w], steps=4, samples=2, trace_samples=3, on_progress=lambda *n: told.append(n)
    )
    assert told == [(done, 11) for done in range(1, 12)]


# The real loss.


class Batches(nn.Module):
    """A SimGCD small enough for its whole Hessian, and two batches of two views of 6, the second without labels."""

    def __init__(self):
        super().__init__()
        rows = np.random.default_rng(0).normal(size=(12, 3, 8))
        labels = np.array([0, 1, 0, -1, -1, -1] + [-1] * 6)
        settings = decided_for("simgcd", labels, 4)
        task = new_task(settings, adapted(Embeddings(rows), 8), labels)
        self.batches = [batch_of(task, np.arange(6), epoch=5), batch_of(task, np.arange(6, 12), epoch=5)]
        self.model = SimGCD(task, settings.method)
        torch.manual_seed(0)
        self.model.projector = Projector(8, 16, 8)
        with torch.no_grad():
            for p in self.model.parameters():  # away from the start, whose zeros leave much of the Hessian empty
                p.add_(0.3 * torch.randn(p.shape))
        self.register_buffer("tokens", torch.stack([batch.tokens for batch in self.batches]))

    def total(self, i):
        return self.model.losses(self.batches[i]).parts["total"]

    def forward(self, i):
        """The same in any precision: the model itself continues in float32 after the features."""
        m, features = self.model, self.model.tail(self.tokens[i])
        return simgcd_losses(
            m.projector(features), m.classifier(features), self.batches[i].labels, **m.weights(epoch=5)
        )["total"]


@pytest.fixture(scope="module")
def exact():
    batches = Batches().double()

    def mean_loss(values):
        return sum(torch.func.functional_call(batches, values, (i,)) for i in range(2)) / 2

    return exact_hessian(mean_loss, dict(batches.named_parameters()))


@pytest.mark.long
def test_the_simgcd_loss_has_the_exact_hessian(exact):
    batches = Batches().double()
    operator = HessianOperator([lambda: batches(0), lambda: batches(1)], list(batches.parameters()))
    v = torch.randn(operator.dim, 3, generator=generator(), dtype=torch.float64)
    assert_allclose(torch.stack([operator(w) for w in v.T], dim=1), exact @ v, rtol=0, atol=1e-10)


@pytest.mark.long
def test_the_trained_loss_itself_has_the_exact_spectrum(exact):
    batches, eigenvalues = Batches(), torch.linalg.eigvalsh(exact)
    losses = [lambda: batches.total(0), lambda: batches.total(1)]
    assert batches.total(0).item() == pytest.approx(batches(0).item(), rel=1e-6)
    found = hessian_spectrum(losses, list(batches.parameters()), steps=40, samples=2)
    assert found.largest == pytest.approx(eigenvalues[-1].item(), rel=1e-4)
    assert found.smallest == pytest.approx(eigenvalues[0].item(), rel=1e-3)
    assert abs(found.trace - exact.trace().item()) < 4 * found.trace_error
    assert sum(found.weights) == pytest.approx(1)
