"""GCD: features learnt by contrast, supervised and not; classes found on them by semi-supervised k-means.

The clusters are followed from epoch to epoch, for the log. The answer is found on the features of the last epoch: from
the clusters of plain k-means (ours), or from the best of ten draws of centres (as published).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from newfound.errors import SettingError, UserError
from newfound.kmeans import kmeans
from newfound.losses import contrastive_losses
from newfound.methods import Needs
from newfound.semi_kmeans import semi_kmeans
from newfound.settings import DataFacts, Training, filled
from newfound.settings.presets import DATA_SETS
from newfound.settings.ranges import require_positive, require_share
from newfound.settings.value_types import checks_names
from newfound.training.learner import Batch, Learner, Memory, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.nearest_centre import NearestCentre
from newfound.training.start import means_at_clusters
from newfound.training.task import Task

NAME = "gcd"
ABOUT = "contrastive features, then semi-supervised k-means; one training."
SOURCE = """\
Vaze, Han, Vedaldi, Zisserman: Generalized Category Discovery, CVPR 2022; github sgvaze/generalized-category-discovery
(MIT). Losses and k-means match the released code; the projector is SimGCD's, 256 wide, whereas the released code
contrasts the 65,536 outputs of DINO's head. On your own folder, k-means starts at clusters."""
DEFAULTS: Mapping[str, object] = {"whitening": "auto"}
AS_RELEASED: Mapping[str, object] = {"kmeans_start": "random"}
PRESETS: Mapping[str, Mapping[str, object]] = dict.fromkeys(DATA_SETS, AS_RELEASED)
NEEDS = Needs()

STARTS = 10
ITERATIONS_BETWEEN_EPOCHS = 20


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of GCD."""

    supervised_weight: float = 0.35
    """Weight of the contrastive loss between labelled images (lambda); the loss between views gets the rest."""
    info_nce_temperature: float = 1.0
    """Temperature of the contrastive loss between views."""
    sup_con_temperature: float = 0.07
    """Temperature of the contrastive loss between labelled images."""
    temperature: float = 0.1
    """How sharply distances from the centres become probabilities."""
    kmeans_start: Literal["clusters", "random"] | None = None
    """Where semi-supervised k-means starts. clusters: means of the labelled images, and the clusters of plain k-means
    that no known class claims. random: ten draws by k-means++, the best counts, as published. Default: clusters, but
    random for the preset of a data set."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    require_share(s, "supervised_weight")
    require_positive(s, "info_nce_temperature", "sup_con_temperature", "temperature")
    check_new_classes(facts)
    return filled(s, {"kmeans_start": "clusters", **PRESETS.get(facts.preset, {})})


def check_new_classes(facts: DataFacts) -> None:
    """Semi-supervised k-means draws each new class from an unlabelled image."""
    new, unlabelled = facts.classes - facts.labelled_classes, facts.images - facts.labelled
    if new > unlabelled:
        raise SettingError(
            "classes", facts.classes,
            f"is too many: {new} of them are new, each has to begin at an unlabelled one, and there are only "
            f"{unlabelled} unlabelled {facts.noun}",
        )  # fmt: skip


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training, then the classes."""
    return train(task, GCD(task, s))


class GCD(Learner):
    """Tail of the backbone and projector, which are trained; centres of clusters, which are not."""

    def __init__(self, task: Task, s: Settings, *, starts: int = STARTS) -> None:
        super().__init__()
        self.s, self.task, self.starts = s, task, starts
        with task.drawn():
            self.tail = task.new_tail()
            self.projector = task.new_projector()

    def losses(self, batch: Batch) -> Step:
        with batch.autocast():
            projections = self.projector(self.tail(batch.tokens))
        parts = contrastive_losses(
            batch.everyone(projections.float()),
            batch.labels,
            supervised_weight=self.s.supervised_weight,
            info_nce_temperature=self.s.info_nce_temperature,
            sup_con_temperature=self.s.sup_con_temperature,
        )
        return Step(parts)

    def after_epoch(self, epoch: int, features: Tensor) -> Mapping[str, Tensor]:
        if epoch == self.task.training.epochs - 1:
            fresh = {"starts": self.starts}
            start = _at_clusters(self.task, features) if self.s.kmeans_start == "clusters" else fresh
            return {"centres": _centres(self.task, features, **start)}
        return {"centres": followed_centres(self.task, features, self.memory)}

    def predictor(self) -> Predictor:
        return Predictor(self.tail, NearestCentre(self.memory["centres"]), self.s.temperature)


def followed_centres(task: Task, features: Tensor, memory: Memory) -> Tensor:
    """A few iterations from where the centres in memory are, or one fresh start where there are none yet."""
    if "centres" not in memory:
        return _centres(task, features, starts=1)
    before = memory["centres"].cpu().numpy()
    return _centres(task, features, initial_centres=before, max_iterations=ITERATIONS_BETWEEN_EPOCHS)


def _at_clusters(task: Task, features: Tensor) -> dict[str, Any]:
    """A start at the clusters of plain k-means; fresh ones where it finds too few of them."""
    from sklearn.preprocessing import normalize

    rows = normalize(features.numpy())
    means = means_at_clusters(rows, kmeans(rows, task.classes, task.seed).clusters, task.labels)
    return {"initial_centres": means} if len(means) == task.classes else {"starts": STARTS}


def _centres(task: Task, features: Tensor, **how: Any) -> Tensor:
    from sklearn.preprocessing import normalize

    try:
        found = semi_kmeans(normalize(features.numpy()), task.labels, task.classes, seed=task.seed, **how)
    except ValueError as error:
        raise UserError(f"semi-supervised k-means cannot group them: {error}") from error
    return torch.from_numpy(found.centres).float()
