"""CMS (Choi et al., CVPR 2024): contrast after one step of mean shift; the classes are cut out of a Ward dendrogram.

A step of mean shift moves an embedding towards the mean of its nearest neighbours. Training draws together the shifted
embeddings of an image's two views. At the end all embeddings are shifted again and again; the labelled images decide
how often. The released code chooses its epoch and its number of classes by test labels; nothing here does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from newfound.losses import sup_con
from newfound.mean_shift import Cut, cluster, mean_shift
from newfound.methods import Needs
from newfound.methods.gcd import check_new_classes, followed_centres
from newfound.random_streams import MEMORY_VIEWS
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_at_least_1, require_positive, require_share
from newfound.settings.value_types import checks_names
from newfound.training.heads import WideHead
from newfound.training.learner import Batch, Between, Learner, Prediction, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.nearest_centre import NearestCentre, class_means, with_class_on_top
from newfound.training.schedules import learning_rate
from newfound.training.task import Task, batches_of
from newfound.ward import MOST_ROWS

NAME = "cms"
ABOUT = "contrastive learning on mean-shifted embeddings, then Ward clustering of them; one training."
SOURCE = """\
Choi, Kang, Cho: Contrastive Mean-Shift Learning for Generalized Category Discovery, CVPR 2024; github sua-choi/CMS (no
licence; written from the mathematics). Head, losses and clustering match the released code. That code chooses its epoch
and its number of classes by test labels; newfound does not. Up to 20,000 images."""
DEFAULTS: Mapping[str, object] = {}
GENERIC: Mapping[str, object] = {"learning_rate": 0.01, "rate_floor": 1e-3, "temperature": 0.3}  # the released scripts
FINE_GRAINED: Mapping[str, object] = {"learning_rate": 0.05, "rate_floor": 5e-3, "temperature": 0.25}
PRESETS: Mapping[str, Mapping[str, object]] = {
    **dict.fromkeys(("generic", "cifar10", "cifar100", "imagenet100"), GENERIC),  # CIFAR-10 was not published
    **dict.fromkeys(("fine-grained", "cub", "cars", "aircraft", "herbarium"), FINE_GRAINED),
}
NEEDS = Needs(most_images=MOST_ROWS)

CLASS_TEMPERATURE = 0.1  # how sharply distances from the centres become probabilities; ours, as the paper has none


@checks_names
@dataclass(frozen=True)
class Settings:
    """Of CMS."""

    neighbours: int = 8
    """How many nearest neighbours each embedding is shifted towards."""
    shift: float = 0.5
    """How far it is shifted towards their mean (the paper's alpha)."""
    temperature: float | None = None
    """Temperature of the contrastive loss between shifted views. Default: by --preset."""
    rate_floor: float | None = None
    """Final learning rate, as a share of the initial one. Default: by --preset."""
    supervised_weight: float = 0.35
    """Weight of the contrastive loss between labelled images; the loss between views gets the rest."""
    sup_con_temperature: float = 0.07
    """Temperature of the contrastive loss between labelled images."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = filled(s, PRESETS[facts.preset])
    require_at_least_1(s, "neighbours")
    require_share(s, "shift", "supervised_weight", "rate_floor")
    require_positive(s, "temperature", "sup_con_temperature")
    check_new_classes(facts)
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training, whose last epoch ends with the clustering."""
    learner = CMS(task, s)
    trained = train(task, learner)
    cut = replace(trained.prediction, probabilities=learner.memory["probabilities"].cpu())
    agree = float((cut.classes == trained.prediction.classes).double().mean())
    task.screen.say(f"nearest-centre prediction, as for new images, agrees with the clustering on {100 * agree:.1f} %")
    return replace(trained, prediction=cut)


class CMS(Learner):
    """Tail and a wide head, whose output is the embedding. In memory: ``views``, the embeddings of two random views of
    all images at the start of the epoch; ``centres`` of the classes; ``probabilities`` of the final clustering."""

    temporary = ("views",)

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        self.s, self.task = s, task
        with task.drawn():
            self.tail = task.new_tail()
            self.head = WideHead(task.feature_dim, task.feature_dim, task.training.projector_width)

    def encode(self, tokens: Tensor) -> Tensor:
        embeddings: Tensor = self.head(self.tail(tokens))
        return embeddings

    def losses(self, batch: Batch) -> Step:
        s = self.s
        assert s.temperature is not None  # decided settings have it
        with batch.autocast():
            embeddings = self.encode(batch.tokens)
        parts = cms_losses(
            batch.everyone(embeddings.float()), batch.labels, self.memory["views"], temperature=s.temperature,
            k=s.neighbours, alpha=s.shift, supervised_weight=s.supervised_weight,
            sup_con_temperature=s.sup_con_temperature,
        )  # fmt: skip
        return Step(parts)

    def learning_rate(self, epoch: int, training: Training) -> float:
        assert self.s.rate_floor is not None  # decided settings have it
        return learning_rate(epoch, training.epochs, training.learning_rate, self.s.rate_floor)

    @torch.inference_mode()
    def between_epochs(self, epoch: int, prediction: Prediction | None) -> Between:
        source, device = self.task.source, torch.device(self.task.training.device)
        everyone, halves = np.arange(len(source)), []
        self.eval()
        for images in batches_of(source, self.task.training.batch_size):
            part = slice(images.start, images.stop)
            read = source.read_pair(everyone, self.task.seed, epoch, part, stream=MEMORY_VIEWS)
            halves.append(self.encode(source.tokens_of(read, device)).float().cpu().chunk(2))
        self.train()
        first, second = (torch.cat(half) for half in zip(*halves, strict=True))
        both = first if torch.equal(first, second) else torch.cat([first, second])  # a single view is one row
        return Between(memory={"views": both})

    def after_epoch(self, epoch: int, features: Tensor) -> Mapping[str, Tensor]:
        if epoch < self.task.training.epochs - 1:
            return {"centres": followed_centres(self.task, features, self.memory)}  # for the log alone
        cut = cluster(features, self.task.labels, self.task.classes, k=self.s.neighbours, alpha=self.s.shift)
        self.task.screen.say(
            f"clustering after {cut.shifts} shifts: {100 * cut.accuracies[cut.shifts]:.1f} % of the labelled ones agree"
        )
        return {"centres": class_means(features, cut.classes, self.task.classes),
                "probabilities": cut_probabilities(cut, self.task.classes)}  # fmt: skip

    def predictor(self) -> Predictor:
        return Predictor(self.tail, NearestCentre(self.memory["centres"]), CLASS_TEMPERATURE, self.head)


def cut_probabilities(cut: Cut, n_classes: int) -> Tensor:
    """N×K: by the distance from the means of the shifted rows, the class of the cut on top. [Ours: the paper has none.]

    >>> cut = Cut(np.array([0, 1]), torch.eye(2), 0, [1.0])
    >>> cut_probabilities(cut, 2).argmax(dim=1).tolist()
    [0, 1]
    """
    centres = NearestCentre(class_means(cut.rows, cut.classes, n_classes))
    logits: Tensor = centres(cut.rows)
    return with_class_on_top((logits / CLASS_TEMPERATURE).softmax(dim=1), cut.classes)


def cms_losses(
    embeddings: Tensor,
    labels: Tensor,
    memory: Tensor,
    *,
    temperature: float,
    k: int = 8,
    alpha: float = 0.5,
    supervised_weight: float = 0.35,
    sup_con_temperature: float = 0.07,
) -> dict[str, Tensor]:
    """Both parts of the loss by name, and their weighted sum as ``total``.

    ``embeddings`` is 2B×d of length 1, ``labels`` B with -1 for unlabelled, ``memory`` M×d of length 1, a constant.

    >>> embeddings = torch.eye(2).repeat(2, 1)
    >>> parts = cms_losses(embeddings, torch.tensor([-1, -1]), embeddings, temperature=1.0, alpha=0.0)
    >>> {name: round(part.item(), 6) for name, part in parts.items()}
    {'unsupervised': -0.306853, 'sup_con': 0.0, 'total': -0.199454}
    """
    parts = {
        "unsupervised": decoupled_contrast(mean_shift(embeddings, memory, k, alpha), temperature),
        "sup_con": sup_con(embeddings, labels, sup_con_temperature),
    }
    parts["total"] = supervised_weight * parts["sup_con"] + (1 - supervised_weight) * parts["unsupervised"]
    return parts


def decoupled_contrast(embeddings: Tensor, temperature: float) -> Tensor:
    """Each view against all views of other images; the positive, its image's other view, is not among them.

    So the value may be below 0. A single image has nothing to be set against, and a loss of 0.
    """
    images = len(embeddings) // 2
    if images < 2:
        return embeddings.sum() * 0.0
    similarity = embeddings @ embeddings.T / temperature  # 2B×2B
    image = torch.arange(images, device=embeddings.device).repeat(2)  # 2B
    others = similarity.masked_fill(image[:, None] == image[None, :], -math.inf).logsumexp(dim=1)
    return (others - similarity.diagonal(images).repeat(2)).mean()  # the similarity of i and its other view, twice
