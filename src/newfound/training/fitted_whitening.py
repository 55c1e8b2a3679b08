"""Whitening as a run has it: fitted to the labelled images once, kept, and behind the standardisation from then on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from newfound.distributed import from_first
from newfound.errors import SettingError
from newfound.screen import Screen
from newfound.sources import Source
from newfound.training.task import Journal, Pretrained, Whitened
from newfound.whitening import NONE, length_kept, scatter_of_groups, whitening_matrix
from newfound.whitening_check import WhiteningCheck, check_whitening

NAME = "whitening"
Views = Callable[[NDArray[np.int64]], NDArray[np.floating]]  # of images: n×d or n×V×d


def whitened(
    pretrained: Pretrained, labels: NDArray[np.int64], asked: str | float | None, journal: Journal, screen: Screen
) -> tuple[Pretrained, WhiteningCheck | None]:
    """The network with whitened features, if that was ``asked`` for and serves, and what was found on the way.

    ``asked`` is the setting; labels are -1 for unlabelled. It does not depend on the seed.
    """
    if asked is None or asked in ("none", NONE):
        return pretrained, None
    kept = journal.kept(NAME)
    if kept is None:
        features = pretrained.features  # by all processes together
        kept = from_first(lambda: _fitted(features, pretrained.source, labels, asked))
        journal.keep(NAME, kept)
        screen.say(f"whitening: {_found(kept)}")
    return (Whitened(pretrained, kept["matrix"]) if "matrix" in kept else pretrained), _found(kept)


def _fitted(
    features: NDArray[np.float32], source: Source, labels: NDArray[np.int64], asked: str | float
) -> dict[str, Tensor]:
    """The check and, if it is for whitening, the matrix, as tensors."""

    def views(images: NDArray[np.int64]) -> NDArray[np.floating]:
        kept = source.kept_views(images)
        return features[images] if kept is None else kept

    given = asked if isinstance(asked, int | float) else None
    found = check_whitening(features, labels, views=views) if given is None else WhiteningCheck((), (), given)
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in vars(found).items()}
    if found.shrinkage != NONE:
        tensors["matrix"] = _matrix(features, labels, views, found.shrinkage)
    return tensors


def _matrix(features: NDArray[np.float32], labels: NDArray[np.int64], views: Views, shrinkage: float) -> Tensor:
    """d×d; features times it are on average as long as before."""
    groups = (views(np.flatnonzero(labels == k)) for k in np.unique(labels[labels >= 0]))
    with threadpool_limits(1):  # with several, the last bits of a sum are left to chance
        scatter = scatter_of_groups(groups, features.shape[1])
        if not scatter.any():
            raise SettingError("whitening", shrinkage, "has no effect: no two labelled views of a class differ")
        try:
            matrix = whitening_matrix(scatter, shrinkage)
        except ValueError as error:
            raise SettingError("whitening", shrinkage, f"cannot be used: {error}") from error
        return torch.from_numpy(length_kept(matrix, features)).float()


def _found(tensors: dict[str, Tensor]) -> WhiteningCheck:
    return WhiteningCheck.from_json({name: tensor.tolist() for name, tensor in tensors.items() if name != "matrix"})
