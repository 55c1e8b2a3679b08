"""What images and vectors share of the line: count the classes, decide the settings, train, keep what is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.class_count import ClassCount, count_classes
from newfound.distributed import from_first, processes
from newfound.errors import UserError, option
from newfound.hdbscan import DenseCount, count_dense
from newfound.methods import check_size, decide, is_oracle, method_of
from newfound.screen import Screen
from newfound.settings import QUICK_EPOCHS, DataFacts, Settings, Training
from newfound.training.fitted_whitening import whitened
from newfound.training.heads import only
from newfound.training.learner import Prediction, Predictor
from newfound.training.loop import Trained
from newfound.training.referee import Referee, refereed
from newfound.training.task import Averaged, Journal, Pretrained, Progress, Task
from newfound.whitening_check import WhiteningCheck


@dataclass(frozen=True)
class Found:
    """What a method found: known classes first, then every new one that something was put into."""

    predictor: Predictor
    prediction: Prediction
    is_anchor: NDArray[np.bool_]  # N: treated as labelled for a new class in the last epoch
    empty: int  # new classes that nothing was put into, and that are left out
    task: Task
    none: NDArray[np.bool_] | None = None  # N: in none of the classes; None: every one is in a class
    whitening: WhiteningCheck | None = None  # where the settings ask for it


def count(pretrained: Pretrained, labels: NDArray[np.int64], screen: Screen) -> ClassCount:
    """How many classes there seem to be."""
    features = pretrained.features

    def counted() -> ClassCount:
        with screen.track("counting classes", 1) as progress:
            return count_classes(features, labels, on_progress=lambda done, total: progress.update(done, total=total))

    return from_first(counted)


def dense_count(pretrained: Pretrained, labels: NDArray[np.int64]) -> DenseCount:
    """How many classes HDBSCAN would find."""
    features = pretrained.features
    return from_first(lambda: count_dense(features, labels))


def with_count(
    settings: Settings,
    facts: DataFacts,
    pretrained: Callable[[], Pretrained],
    labels: NDArray[np.int64],
    screen: Screen,
) -> tuple[Settings, DataFacts, ClassCount | None]:
    """With a number of classes: the one that was given, or an estimate; without one where the method finds its own."""
    check_size(settings, facts)
    if settings.classes is not None:
        return settings, replace(facts, classes=settings.classes), None
    fewest = max(facts.known, 2)
    if method_of(settings).NEEDS.own_count:
        return settings, replace(facts, classes=fewest), None
    decide(settings, replace(facts, classes=fewest))  # a mistake in the settings should not wait for the count
    found = count(pretrained(), labels, screen)
    classes = max(found.best, fewest)
    used = "" if classes == found.best else f"; {classes} are used, as no run can have fewer here"
    screen.say(f"{found}{used}. Override it with {option('classes')}.")
    return replace(settings, classes=classes), replace(facts, classes=classes), found


def decided(settings: Settings, facts: DataFacts, screen: Screen) -> Settings:
    """Settings with nothing left open, and on screen what a person should know of them."""
    method, epochs = method_of(settings), settings.epochs
    settings = decide(settings, facts)
    if epochs is None and settings.epochs == QUICK_EPOCHS and settings.device == "cpu":
        each = " in each training" if method.trainings(settings.method, facts) > 1 else ""
        screen.say(f"no GPU found: using the quick recipe of {QUICK_EPOCHS} epochs{each}; the published length is 200")
    batch = min(Training.of(settings).batch_size, facts.images)
    if processes() > batch:
        raise UserError(f"{processes()} processes are too many to share batches of {batch} {facts.noun}: start fewer")
    return settings


def fit(
    settings: Settings,
    facts: DataFacts,
    pretrained: Pretrained,
    labels: NDArray[np.int64],
    journal: Journal,
    screen: Screen,
    referee: Referee | None = None,
    *,
    counted: NDArray[np.bool_] | None = None,
    fewest: int = 1,
) -> Found:
    """Run the method of these settings, which are decided.

    New classes that nothing was put into are left out; only what is ``counted`` counts (N, by default all), and so many
    classes as ``fewest`` are kept even if they are empty.
    """
    method, training = method_of(settings), Training.of(settings)
    pretrained.keep_standardisation(journal)
    if settings.frozen_views == "all":
        pretrained = Averaged(pretrained)
    pretrained, whitening = whitened(pretrained, labels, settings.whitening, journal, screen)
    with _progress(journal, training.epochs, method.trainings(settings.method, facts), screen) as progress:
        task = Task(pretrained, labels, facts.classes, settings.seed, training, journal, screen, progress)
        with refereed(referee, oracle=is_oracle(settings)):
            trained = method.fit(task, settings.method)
    if trained.none is not None:
        counted = ~trained.none if counted is None else counted & ~trained.none
    kept = classes_in_use(trained.prediction, task.n_known, counted, fewest)
    return replace(_in_use(task, trained, kept), whitening=whitening)


@contextmanager
def _progress(journal: Journal, epochs: int, trainings: int, screen: Screen) -> Iterator[Progress]:
    done = sum(min(journal.epochs_done(stage), epochs) for stage in range(1, trainings + 1))
    with (screen if trainings else Screen(quiet=True)).track("training", epochs * trainings, done) as tracker:
        yield Progress(tracker, epochs, trainings)


def _in_use(task: Task, trained: Trained, kept: Tensor) -> Found:
    predictor = replace(trained.predictor, classifier=only(trained.predictor.classifier, kept))
    is_anchor = (trained.labels >= 0) & (task.labels < 0)
    empty = trained.prediction.probabilities.shape[1] - len(kept)
    return Found(predictor, trained.prediction.of(kept), is_anchor, empty, task, trained.none)


def classes_in_use(
    prediction: Prediction, n_known: int, counted: NDArray[np.bool_] | None = None, fewest: int = 1
) -> Tensor:
    """The known classes, and every other that something was put into; the first empty ones, if those are too few."""
    classes = prediction.classes if counted is None else prediction.classes[torch.from_numpy(counted)]
    used = torch.bincount(classes, minlength=prediction.probabilities.shape[1]) > 0
    used[:n_known] = True
    used[(~used).nonzero()[: max(0, fewest - int(used.sum()))]] = True
    return used.nonzero().flatten()
