"""LegoGCD (Cao et al., CVPR 2024): SimGCD that is kept from forgetting the known classes, by two more terms.

*LER* lowers the entropy of confident unlabelled views that the model itself puts into a known class; *DKL* draws the
predictions of an image's two views together. Both are as in the released code, on which the published numbers rest:
DKL applies a second softmax to the probabilities, and in Eq. 10 the entropy and the margin have a plus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from newfound.losses import simgcd_losses
from newfound.methods import Needs, simgcd
from newfound.methods.simgcd import SimGCD
from newfound.settings import DataFacts, Training, filled
from newfound.settings.ranges import require_not_negative, require_share
from newfound.settings.value_types import checks_names
from newfound.training.learner import Batch, Learner, Predictor, Step
from newfound.training.loop import Trained, train
from newfound.training.task import Task

NAME = "legogcd"
ABOUT = "SimGCD with two terms that keep it from forgetting the known classes; one training."
SOURCE = """\
Cao and others: Solving the Catastrophic Forgetting Problem in Generalized Category Discovery, CVPR 2024; github
Cliffia123/LegoGCD (no licence; written from the mathematics). Losses match the released code in value and gradient; on
your own folder, the classifier starts at clusters."""
DEFAULTS: Mapping[str, object] = {}
# Thresholds: the released scripts. Weights of LER: the released logs, which say 1 for CIFAR where the script has 2.
PRESETS: Mapping[str, Mapping[str, object]] = {
    "generic": {"ler_threshold": 0.85, "ler_weight": 1.0},
    "fine-grained": {"ler_threshold": 0.7, "ler_weight": 2.0},
    "cifar10": {**simgcd.PRESETS["cifar10"], "ler_threshold": 0.95, "ler_weight": 1.0},
    "cifar100": {**simgcd.PRESETS["cifar100"], "ler_threshold": 0.85, "ler_weight": 1.0, "entropy_weight": 2.0},
    "imagenet100": {**simgcd.PRESETS["imagenet100"], "ler_threshold": 0.8, "ler_weight": 2.0},
    "cub": {**simgcd.PRESETS["cub"], "ler_threshold": 0.7, "ler_weight": 2.0},
    "cars": {**simgcd.PRESETS["cars"], "ler_threshold": 0.85, "ler_weight": 2.0},
    "aircraft": {**simgcd.PRESETS["aircraft"], "ler_threshold": 0.9, "ler_weight": 2.0},
    "herbarium": {**simgcd.PRESETS["herbarium"], "ler_threshold": 0.7, "ler_weight": 2.0},
}
NEEDS = Needs()

MARGIN = 0.4  # weight of the classes' running mean prediction in LER
SHARP = 0.05  # temperature of LER's own predictions


@checks_names
@dataclass(frozen=True)
class Settings(simgcd.Settings):
    """Of LegoGCD: SimGCD's, and those of its two terms."""

    ler_threshold: float | None = None
    """Confidence in a known class above which the entropy of an unlabelled view is lowered (LER; the paper's delta).
    Default: by --preset."""
    ler_weight: float | None = None
    """Weight of LER (the paper's beta). Default: by --preset."""
    dkl_weight: float = 1.0
    """Weight of the divergence between an image's two views (DKL), among the unsupervised parts."""
    plain_dkl: bool = False
    """Use the divergence of the paper's text instead of the released one with its second softmax."""


def decided(s: Settings, facts: DataFacts, t: Training) -> Settings:
    s = simgcd.checked(filled(s, {**simgcd.rules(facts, t), **PRESETS[facts.preset]}))
    require_share(s, "ler_threshold")
    require_not_negative(s, "ler_weight", "dkl_weight")
    return s


def trainings(s: Settings, facts: DataFacts) -> int:
    return 1


def fit(task: Task, s: Settings) -> Trained:
    """One training."""
    return train(task, LegoGCD(task, s))


class LegoGCD(Learner):
    """SimGCD, and in memory the running mean of its predictions (K)."""

    def __init__(self, task: Task, s: Settings) -> None:
        super().__init__()
        self.s, self.n_known = s, task.n_known
        self.student = SimGCD(task, s)
        self.memory.put("mean_prediction", torch.full((task.classes,), 1 / task.classes))

    def begin(self, task: Task) -> None:
        self.student.begin(task)

    def encode(self, tokens: Tensor) -> Tensor:
        return self.student.encode(tokens)

    def predictor(self) -> Predictor:
        return self.student.predictor()

    def schedule(self, epoch: int) -> dict[str, float]:
        return self.student.schedule(epoch)

    def losses(self, batch: Batch) -> Step:
        s = self.s
        assert s.ler_threshold is not None  # decided settings have them
        assert s.ler_weight is not None
        projections, logits = self.student.outputs(batch)
        parts = legogcd_losses(
            projections, logits, batch.labels, self.memory["mean_prediction"], n_known=self.n_known,
            threshold=s.ler_threshold, known_entropy_weight=s.ler_weight, divergence_weight=s.dkl_weight,
            plain_divergence=s.plain_dkl, **self.student.weights(batch.epoch),
        )  # fmt: skip
        return Step(parts, {"logits": logits.detach()})

    def after_step(self, batch: Batch, kept: Mapping[str, Tensor]) -> None:
        mean = self.memory["mean_prediction"]
        mean.copy_(updated_mean_prediction(mean, kept["logits"]))


def legogcd_losses(
    projections: Tensor,
    logits: Tensor,
    labels: Tensor,
    mean_prediction: Tensor,
    *,
    n_known: int,
    threshold: float,
    known_entropy_weight: float,
    divergence_weight: float = 1.0,
    plain_divergence: bool = False,
    supervised_weight: float = 0.35,
    student_temperature: float = 0.1,
    **simgcd: float,
) -> dict[str, Tensor]:
    """SimGCD's parts by name, ``divergence`` (DKL) and ``known_entropy`` (LER), and the weighted sum as ``total``;
    ``selected`` is the share of views that LER takes.

    ``mean_prediction`` (K) is a constant; ``simgcd`` are the other arguments of ``simgcd_losses``. The divergence
    belongs to the unsupervised side and shares its weight. With both weights 0 the total is SimGCD's, bit for bit.

    >>> _ = torch.manual_seed(0)
    >>> parts = legogcd_losses(torch.randn(8, 256), torch.rand(8, 3), torch.tensor([0, -1, 1, -1]),
    ...                        torch.full((3,), 1 / 3), n_known=2, threshold=0.7, known_entropy_weight=2.0,
    ...                        teacher_temperature=0.07, entropy_weight=1.0)
    >>> sorted(set(parts) - {"cross_entropy", "distillation", "info_nce", "mean_entropy", "sup_con"})
    ['divergence', 'known_entropy', 'selected', 'total']
    """
    shared = {"supervised_weight": supervised_weight, "student_temperature": student_temperature}
    parts = simgcd_losses(projections, logits, labels, **shared, **simgcd)
    log_student = F.log_softmax(logits / student_temperature, dim=1)  # 2B×K
    selected = confident_known(log_student.exp(), labels, n_known=n_known, threshold=threshold)
    parts["divergence"] = view_divergence(log_student, plain=plain_divergence)
    parts["known_entropy"] = known_entropy(logits, selected, mean_prediction)
    parts["selected"] = selected.float().mean()  # share of views that LER takes, for the log
    parts["total"] = (
        parts["total"]
        + (1 - supervised_weight) * divergence_weight * parts["divergence"]
        + known_entropy_weight * parts["known_entropy"]
    )
    return parts


def view_divergence(log_predictions: Tensor, *, plain: bool = False) -> Tensor:
    """DKL: how far the second view's prediction b is from the first's, a; mean over images, labelled or not.

    ``log_predictions`` (2B×K) are log-probabilities. As released, the probabilities pass through a softmax once more
    where they are compared, but not as weights: Σ a·(log softmax a − log softmax b), which may be below 0. ``plain`` is
    the divergence of the paper's text, Σ a·(log a − log b). Gradient flows through both views.

    >>> predictions = torch.tensor([[0.5, 0.5], [0.731059, 0.268941]])
    >>> round(view_divergence(predictions.log()).item(), 6)
    0.02646
    """
    predictions = log_predictions.exp()
    first, second = (log_predictions if plain else F.log_softmax(predictions, dim=1)).chunk(2)
    return (predictions[: len(first)] * (first - second)).sum(dim=1).mean()


@torch.no_grad()
def confident_known(predictions: Tensor, labels: Tensor, *, n_known: int, threshold: float) -> Tensor:
    """Which views LER takes (2B booleans): of unlabelled images, with a known class at ``threshold`` or more on top.

    >>> predictions = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.8, 0.2]])
    >>> confident_known(predictions, torch.tensor([-1, -1]), n_known=1, threshold=0.7).tolist()
    [True, False, False, True]
    """
    confidence, predicted = predictions.max(dim=1)
    return (labels.repeat(2) < 0) & (confidence >= threshold) & (predicted < n_known)


def known_entropy(logits: Tensor, selected: Tensor, mean_prediction: Tensor) -> Tensor:
    """LER (Eq. 10): entropy of the selected views, the logarithm with a margin for classes predicted often.

    ``logits`` are 2B×K cosines, ``selected`` 2B booleans; the mean is over all 2B rows, so none selected gives 0.

    >>> selected, even = torch.tensor([True, True]), torch.tensor([0.5, 0.5])
    >>> round(known_entropy(torch.tensor([[0.2, 0.0], [0.2, 0.0]]), selected, even).item(), 6)
    0.090095
    """
    sharp = logits / SHARP
    with_margin = F.log_softmax(sharp + MARGIN * mean_prediction.log(), dim=1)
    entropy = -(F.softmax(sharp, dim=1) * with_margin).sum(dim=1)  # 2B
    return entropy.masked_fill(~selected, 0.0).mean()


@torch.no_grad()
def updated_mean_prediction(mean_prediction: Tensor, logits: Tensor, momentum: float = 0.999) -> Tensor:
    """The running mean (K) after one more batch: of softmax(logits), at temperature 1; it starts at 1/K for each class.

    >>> updated_mean_prediction(torch.tensor([0.5, 0.5]), torch.tensor([[100.0, 0.0]]), momentum=0.5).tolist()
    [0.75, 0.25]
    """
    return momentum * mean_prediction + (1 - momentum) * F.softmax(logits, dim=1).mean(dim=0)
