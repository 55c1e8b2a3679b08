"""GCD (Vaze et al.): features learnt by contrast, supervised and not; classes found on them by semi-supervised k-means.

The projector is SimGCD's, 256 wide; the released code of GCD contrasts the 65,536 outputs of DINO's head. Clusters are
followed from epoch to epoch, for the log. The answer is the best of ten fresh starts on the last epoch's features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import normalize
from torch import Tensor, nn

from newfound.distributed import from_first, whole_batch
from newfound.errors import UserError
from newfound.losses import contrastive_losses
from newfound.semi_kmeans import semi_kmeans
from newfound.training.heads import NearestCentre
from newfound.training.loop import Job, Trained, predict, train

if TYPE_CHECKING:
    from newfound.methods.simgcd import SimGCD
    from newfound.settings import Settings

STARTS = 10
ITERATIONS_BETWEEN_EPOCHS = 20


def fit(job: Job, new_model: Callable[[], SimGCD]) -> Trained:
    """One training, then the classes."""
    started = new_model()
    model = GCD(started.tail, started.projector, torch.zeros_like(started.classifier.weight), job.settings)
    model.to(job.settings.device)
    if not job.run.has_stage1():  # a checkpoint has its own
        _group(job, model, starts=1)

    def follow() -> None:
        _group(
            job, model, initial_centres=model.classifier.weight.cpu().numpy(), max_iterations=ITERATIONS_BETWEEN_EPOCHS
        )

    with job.progress([1]) as progress:
        trained = train(job, model, progress, after_epoch=follow)
    with job.screen.track("semi-supervised k-means, starts", STARTS) as tracker:
        _group(job, model, starts=STARTS, on_start=tracker.update)
        tracker.update(STARTS)  # there is only one start where nothing is left to chance
    return replace(trained, prediction=predict(model, job.source, job.settings.batch_size))


def _group(job: Job, model: GCD, **how: Any) -> None:
    """Move the centres to clusters of the features as they are now."""
    features = predict(model, job.source, job.settings.batch_size).features
    if not bool(features.isfinite().all()):
        return  # training went astray, and its loop says so

    def centres() -> NDArray[np.float64]:
        rows, s = normalize(features.numpy()), job.settings
        try:
            return semi_kmeans(rows, job.labels, s.classes, seed=s.seed, **how).centres
        except ValueError as error:
            raise UserError(f"--method gcd cannot group these images: {error}") from error

    with torch.no_grad():
        model.classifier.weight.copy_(torch.from_numpy(from_first(centres)))


class GCD(nn.Module):
    """Tail of the backbone and projector, which are trained; centres of clusters, which are not."""

    def __init__(self, tail: nn.Module, projector: nn.Module, centres: Tensor, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.tail = tail
        self.projector = projector
        self.classifier = NearestCentre(centres)

    def losses(self, tokens: Tensor, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """What is learnt from one batch: two views of this process's share of B images, labels B, -1 for unlabelled."""
        s = self.settings
        half = getattr(torch, s.precision)
        with torch.autocast(tokens.device.type, half, enabled=s.precision != "float32"):
            projections = self.projector(self.tail(tokens))
        return contrastive_losses(
            whole_batch(projections.float(), len(labels)),
            labels,
            supervised_weight=s.supervised_weight,
            info_nce_temperature=s.info_nce_temperature,
            sup_con_temperature=s.sup_con_temperature,
        )

    def schedule(self, epoch: int) -> dict[str, float]:
        """Nothing changes with the epoch but the learning rate."""
        return {}

    @torch.inference_mode()
    def predict(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Features B×d and class probabilities B×K."""
        features = self.tail(tokens)
        return features, (self.classifier(features) / self.settings.student_temperature).softmax(dim=1)
