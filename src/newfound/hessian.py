"""How curved the loss is where a training ended: the Hessian's largest eigenvalue, trace and spectral density.

The Hessian is that of what is minimised: a target that the loss detaches is a constant here too. It is never written
down. All there is of it is its product with a vector, a gradient of a gradient, and from such products

- Hutchinson's estimate of the trace: E[zᵀHz] over random signs z;
- Lanczos' tridiagonal matrix, a small picture of H as seen from a random start. Its eigenvalues (Ritz values) lie
  inside the spectrum and reach its ends first; with the squared first entries of its eigenvectors as weights they are a
  Gauss quadrature for the density of eigenvalues (stochastic Lanczos quadrature).

Memory, beside that of a gradient of a gradient on one batch: Lanczos keeps one vector per step to stay orthogonal, so
steps · P · 4 bytes for P parameters in float32 (30 steps, 9 million: 1.1 GB). ``keep`` limits it, at a price:
without the early vectors rounding lets Lanczos forget what it has found, and ends of the spectrum turn up more than
once. They stay right, and the copies share one weight, but other eigenvalues come later.

Curvature has the units of the weights. Where only a weight's direction matters, as in the cosine classifier, shorter
weights are the same classifier with a larger Hessian: compare two trainings with the lengths of their weights in view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from newfound.random_streams import HESSIAN_LANCZOS, HESSIAN_TRACE

BLOCK = 1 << 16  # numbers that are added in their own precision

Product = Callable[[Tensor], Tensor]  # v to Hv, both flat


class HessianOperator:
    """v to Hv for the mean of several losses, one batch in memory at a time.

    Each loss is a callable that computes one batch again, in float32 or float64 throughout: under autocast a second
    derivative is mostly rounding. It must give the same value each time (fixed views, no dropout). Frozen parameters
    are left out, as they are from training.

    >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> hessian = HessianOperator([lambda: (w**3).sum(), lambda: w[0] * w[1]], [w])
    >>> hessian.dim, hessian(torch.tensor([1.0, 0.0])).tolist()  # half of [6, 0] + [0, 1]
    (2, [3.0, 0.5])
    """

    def __init__(self, losses: Sequence[Callable[[], Tensor]], parameters: Sequence[Tensor]) -> None:
        self.losses, self.parameters = list(losses), [p for p in parameters if p.requires_grad]
        if not self.losses or not self.parameters:
            raise ValueError("a Hessian needs at least one loss, and one parameter that requires a gradient")
        kinds = {(p.dtype, p.device) for p in self.parameters}
        if len(kinds) > 1 or self.parameters[0].dtype not in (torch.float32, torch.float64):
            raise ValueError(f"expected parameters all in float32 or all in float64, on one device; found {kinds}")
        self.dim = sum(p.numel() for p in self.parameters)
        self._values: dict[int, float] = {}  # of each loss when it was first computed

    def __call__(self, vector: Tensor) -> Tensor:
        if vector.shape != (self.dim,):
            raise ValueError(f"expected a flat vector of {self.dim} numbers; found shape {tuple(vector.shape)}")
        product = torch.zeros_like(vector)
        for number in range(len(self.losses)):
            product += self._product(number, vector)
        if not bool(product.isfinite().all()):
            raise ValueError("the Hessian times a vector is not finite, though the loss is")
        return product / len(self.losses)

    @torch.enable_grad()
    def _product(self, number: int, vector: Tensor) -> Tensor:
        """One batch's Hv: the gradient of ⟨gradient, v⟩."""
        loss = self._loss(number)
        slopes = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
        along = self._split(vector)
        curved = [(slope, v) for slope, v in zip(slopes, along, strict=True) if slope.requires_grad]
        if not curved:  # the loss is linear
            return torch.zeros_like(vector)
        outputs, weights = zip(*curved, strict=True)
        parts = torch.autograd.grad(outputs, self.parameters, weights, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def _split(self, vector: Tensor) -> list[Tensor]:
        pieces = torch.split(vector, [p.numel() for p in self.parameters])
        return [piece.view_as(p) for piece, p in zip(pieces, self.parameters, strict=True)]

    def _loss(self, number: int) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
            loss = self.losses[number]()
        if not loss.requires_grad:
            raise ValueError(f"loss {number} does not depend on any parameter")
        value = loss.item()
        if not math.isfinite(value):
            raise ValueError(f"loss {number} is {value}: a Hessian needs a finite loss")
        first = self._values.setdefault(number, value)
        if not math.isclose(first, value, rel_tol=1e-4, abs_tol=1e-6):
            raise ValueError(f"loss {number} was {first} and is now {value}: it must not draw anything at random")
        return loss


class Estimate(NamedTuple):
    mean: float
    standard_error: float


class Eigenvalue(NamedTuple):
    value: float
    residual: float  # an eigenvalue lies no further than this from the value, rounding aside


class Density(NamedTuple):
    """A share of ``weights`` of all eigenvalues lies around each of ``nodes``; all three are 1-D and equally long."""

    nodes: NDArray[np.float64]
    weights: NDArray[np.float64]  # sum 1
    residuals: NDArray[np.float64]  # an eigenvalue lies no further than this from its node, rounding aside

    @property
    def largest(self) -> Eigenvalue:
        return self._at(int(self.nodes.argmax()))

    @property
    def smallest(self) -> Eigenvalue:
        return self._at(int(self.nodes.argmin()))

    def _at(self, i: int) -> Eigenvalue:
        return Eigenvalue(float(self.nodes[i]), float(self.residuals[i]))


def largest_eigenvalue(hvp: Product, dim: int, *, iterations: int, seed: int, like: Tensor | None = None) -> Eigenvalue:
    """The largest eigenvalue (by value, not magnitude), from below, in the memory of a few vectors.

    ``like``, here and below, is a tensor whose type and device the vectors given to ``hvp`` shall have.

    >>> h = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> round(largest_eigenvalue(lambda v: h @ v, 2, iterations=2, seed=0).value, 4)
    3.0
    """
    return spectral_density(hvp, dim, steps=iterations, samples=1, seed=seed, keep=2, like=like).largest


def trace(hvp: Product, dim: int, *, samples: int, seed: int, like: Tensor | None = None) -> Estimate:
    """Hutchinson's estimate from ``samples`` products with random signs: what is on the diagonal enters exactly.

    >>> h = torch.tensor([1.0, 2.0, 3.0])
    >>> trace(lambda v: h * v, 3, samples=2, seed=0)
    Estimate(mean=6.0, standard_error=0.0)
    """
    if samples < 2:
        raise ValueError(f"a standard error needs at least 2 samples; found {samples}")
    found = []
    for sample in range(samples):
        coins = np.random.default_rng([seed, HESSIAN_TRACE, sample]).integers(2, size=dim)
        z = _tensor(coins, like) * 2 - 1
        found.append(_dot(z, hvp(z)))
    return Estimate(float(np.mean(found)), float(np.std(found, ddof=1)) / samples**0.5)


def spectral_density(
    hvp: Product,
    dim: int,
    *,
    steps: int,
    samples: int,
    seed: int,
    keep: int | None = None,
    like: Tensor | None = None,
) -> Density:
    """Where the eigenvalues lie, from ``samples`` runs of Lanczos of ``steps`` products each.

    A run that starts at the unit vector v has Σ weights · nodesᵏ = vᵀHᵏv for every k below 2 · steps, and v is drawn
    evenly from the sphere, so that the mean over v is the mean of λᵏ over all eigenvalues. ``keep`` is how many of the
    latest vectors are stored, all of them if None. Where a lone eigenvalue lies is found well; its weight, one in P on
    average, varies from start to start by more than that.

    >>> h = torch.tensor([1.0, 1.0, 5.0])
    >>> density = spectral_density(lambda v: h * v, 3, steps=3, samples=1, seed=0)
    >>> density.nodes.round(4).tolist(), round(float(density.weights.sum()), 6)
    ([1.0, 5.0], 1.0)
    """
    if min(dim, steps, samples) < 1 or (keep is not None and keep < 2):
        raise ValueError("expected at least one dimension, step and sample, and at least two vectors to keep")
    if keep is None or keep >= dim:
        steps = min(steps, dim)  # then nothing is left to find
    runs = []
    for sample in range(samples):
        start = np.random.default_rng([seed, HESSIAN_LANCZOS, sample]).standard_normal(dim)
        runs.append(_quadrature(*_lanczos(hvp, _tensor(start, like), steps, keep)))
    nodes, weights, residuals = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    return Density(nodes, weights / samples, residuals)


def smoothed_density(nodes: ArrayLike, weights: ArrayLike, grid: ArrayLike, width: float) -> NDArray[np.float64]:
    """The density at each point of ``grid``: a Gaussian of standard deviation ``width`` around each node.

    It integrates to 1. A spectrum of a trained network is a spike at 0 and a few eigenvalues far out with weights of
    one in P, so plot the logarithm.

    >>> smoothed_density([0.0, 4.0], [0.75, 0.25], [0.0, 4.0], width=1.0).round(3).tolist()
    [0.299, 0.1]
    """
    if not width > 0:
        raise ValueError(f"expected a width above 0; found {width}")
    away = (np.asarray(grid, np.float64)[:, None] - np.asarray(nodes, np.float64)) / width  # points×nodes
    bumps = np.exp(-0.5 * away**2) / (width * math.sqrt(2 * math.pi))
    density: NDArray[np.float64] = bumps @ np.asarray(weights, np.float64)
    return density


@dataclass(frozen=True)
class Spectrum:
    """What a figure needs to know of a Hessian; numbers and tuples only."""

    dim: int  # P
    largest: float
    largest_residual: float  # an eigenvalue lies no further than this from it; small: more steps would not help
    smallest: float
    smallest_residual: float
    trace: float
    trace_error: float  # standard error
    nodes: tuple[float, ...]
    weights: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON.

        >>> Spectrum(1, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, (2.0,), (1.0,)).to_dict()["nodes"]
        [2.0]
        """
        return {**asdict(self), "nodes": list(self.nodes), "weights": list(self.weights)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Spectrum:
        """What ``to_dict`` gave.

        >>> spectrum = Spectrum(1, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, (2.0,), (1.0,))
        >>> Spectrum.from_dict(spectrum.to_dict()) == spectrum
        True
        """
        return cls(**{**stored, "nodes": tuple(stored["nodes"]), "weights": tuple(stored["weights"])})


def hessian_spectrum(
    losses: Sequence[Callable[[], Tensor]],
    parameters: Sequence[Tensor],
    *,
    steps: int = 30,
    samples: int = 4,
    trace_samples: int = 32,
    seed: int = 0,
    keep: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Spectrum:
    """Everything at once, in ``trace_samples`` + ``steps`` · ``samples`` products over all the losses.

    ``on_progress`` is told after each product how many are done and how many there are at most.

    >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> spectrum = hessian_spectrum([lambda: (w**3).sum()], [w])
    >>> round(spectrum.smallest, 4), round(spectrum.largest, 4), round(spectrum.trace, 4)
    (6.0, 12.0, 18.0)
    """
    hessian = HessianOperator(losses, parameters)
    hvp = _counted(hessian, trace_samples + steps * samples, on_progress)
    like = hessian.parameters[0]
    estimate = trace(hvp, hessian.dim, samples=trace_samples, seed=seed, like=like)
    density = spectral_density(hvp, hessian.dim, steps=steps, samples=samples, seed=seed, keep=keep, like=like)
    return Spectrum(
        hessian.dim,
        *density.largest,
        *density.smallest,
        *estimate,
        nodes=tuple(density.nodes.tolist()),
        weights=tuple(density.weights.tolist()),
    )


def _lanczos(hvp: Product, start: Tensor, steps: int, keep: int | None) -> tuple[list[float], list[float]]:
    """The tridiagonal matrix: its diagonal, and what is beside it; the last of that is the length of what remains.

    Making each new vector orthogonal to the last two is Lanczos' recurrence; to all of them, what the recurrence would
    be without rounding. Where nothing remains, the vectors span all that H makes of the start, and it ends early.
    """
    rows = steps if keep is None else min(keep, steps)
    basis = start.new_empty(rows, len(start))
    vector, diagonal, beside = start / _dot(start, start) ** 0.5, list[float](), list[float]()
    for step in range(steps):
        basis[step % rows] = vector
        rest = hvp(vector)
        diagonal.append(_dot(vector, rest))
        kept = basis[: step + 1]
        for _ in range(2):  # once leaves rounding behind
            rest = torch.addmv(rest, kept.T, _components(kept, rest), alpha=-1)
        beside.append(_dot(rest, rest) ** 0.5)
        if beside[-1] <= 10 * torch.finfo(start.dtype).eps * max(map(abs, diagonal + beside)):
            break
        vector = rest / beside[-1]
    return diagonal, beside


def _dot(a: Tensor, b: Tensor) -> float:
    """Added in double precision: norm() of 9 million float32 is wrong in its fourth digit, and how wrong any sum in
    single precision is depends on the processor. On the CPU, as some devices have no doubles."""
    return float((a * b).cpu().sum(dtype=torch.float64))


def _components(basis: Tensor, vector: Tensor) -> Tensor:
    """Of a vector along each row of a basis: short sums in single precision, which are added in double."""
    blocks = zip(torch.split(basis, BLOCK, dim=1), torch.split(vector, BLOCK), strict=True)
    sums = torch.stack([rows @ part for rows, part in blocks])
    return sums.cpu().sum(dim=0, dtype=torch.float64).to(vector)


def _quadrature(diagonal: list[float], beside: list[float]) -> Density:
    values, vectors = eigh_tridiagonal(diagonal, beside[:-1])  # columns are vectors
    return Density(values, vectors[0] ** 2, beside[-1] * np.abs(vectors[-1]))


def _tensor(values: NDArray[Any], like: Tensor | None) -> Tensor:
    like = torch.empty(0) if like is None else like
    return torch.from_numpy(values).to(like.device, like.dtype)


def _counted(hvp: Product, total: int, on_progress: Callable[[int, int], None] | None) -> Product:
    """The same product, reporting each time."""
    done = 0

    def counted(vector: Tensor) -> Tensor:
        nonlocal done
        product = hvp(vector)
        done += 1
        if on_progress is not None:
            on_progress(done, total)
        return product

    return counted
