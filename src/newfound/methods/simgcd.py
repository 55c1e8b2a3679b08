"""SimGCD: a parametric classifier over known and new classes, taught by labels and by its own other view."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from newfound.distributed import whole_batch
from newfound.losses import simgcd_losses
from newfound.settings import Settings
from newfound.training.heads import CosineClassifier, Projector
from newfound.training.loop import Job, Trained, train
from newfound.training.schedules import teacher_temperature


def fit(job: Job, new_model: Callable[[], SimGCD]) -> Trained:
    """One training."""
    with job.progress([1]) as progress:
        return train(job, new_model(), progress)


class SimGCD(nn.Module):
    """Tail of the backbone, projector, classifier; the first outputs of the classifier are the known classes."""

    def __init__(self, tail: nn.Module, feature_dim: int, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.tail = tail
        self.projector = Projector(feature_dim)
        self.classifier = CosineClassifier(feature_dim, settings.classes)

    def losses(self, tokens: Tensor, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """What is learnt from one batch: two views of this process's share of B images, labels B, -1 for unlabelled."""
        s = self.settings
        assert s.entropy_weight is not None  # resolved settings have it
        half = getattr(torch, s.precision)
        with torch.autocast(tokens.device.type, half, enabled=s.precision != "float32"):
            features = self.tail(tokens)  # 2B×d
            projections = self.projector(features)
        logits = self.classifier(features.float())  # in float32 from here on: temperatures stretch small differences
        return simgcd_losses(
            whole_batch(projections.float(), len(labels)),
            whole_batch(logits, len(labels)),
            labels,
            **self.schedule(epoch),
            entropy_weight=s.entropy_weight,
            supervised_weight=s.supervised_weight,
            student_temperature=s.student_temperature,
            info_nce_temperature=s.info_nce_temperature,
            sup_con_temperature=s.sup_con_temperature,
        )

    def schedule(self, epoch: int) -> dict[str, float]:
        """What changes with the epoch, by name."""
        s = self.settings
        assert s.warmup_epochs is not None  # resolved settings have it
        now = teacher_temperature(epoch, s.warmup_epochs, s.teacher_temperature_start, s.teacher_temperature)
        return {"teacher_temperature": now}

    @torch.inference_mode()
    def predict(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Features B×d and class probabilities B×K."""
        features = self.tail(tokens)
        logits = self.classifier(features)
        return features, (logits / self.settings.student_temperature).softmax(dim=1)
