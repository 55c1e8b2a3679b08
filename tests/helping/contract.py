"""What every method has to fulfil, as functions that raise an AssertionError where it does not.

The samples are six groups in sixteen dimensions, three of them half-labelled (`helping.groups`).
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from helping.groups import CLASSES, DIM, KNOWN, LABELS, QUIET, SOURCE, TRUE, UNLABELLED, N, groups
from newfound import fitting
from newfound.backbones.adapter import AdapterTail
from newfound.evaluate import cluster_accuracy
from newfound.fitting import Found
from newfound.methods import Method, decide, method_of
from newfound.runs.config import config_text, read_config
from newfound.runs.journal import MemoryJournal, RunJournal
from newfound.runs.scoring import Truth
from newfound.settings import DataFacts, Settings
from newfound.sources.vectors import Embeddings
from newfound.training import loop
from newfound.training.learner import Learner
from newfound.training.referee import Referee
from newfound.training.task import Journal, Pretrained

EPOCHS = 3
FAR_APART = groups(spread=8.0)[0]
FACTS = DataFacts(N, KNOWN, int((LABELS >= 0).sum()), KNOWN, CLASSES)
SCHEDULE = {"epochs": EPOCHS, "batch_size": 60, "projector_width": 256}


def settings_of(method: Method, **changes: object) -> Settings:
    """Decided, for a quick run."""
    training = SCHEDULE if method.NEEDS.training else {"batch_size": 60}
    classes = None if method.NEEDS.own_count else CLASSES
    return decide(Settings(classes, method.Settings(), device="cpu", **{**training, **changes}), FACTS)


def run(
    settings: Settings, journal: Journal | None = None, referee: Referee | None = None, source: Embeddings = SOURCE
) -> Found:
    """The method on the six groups."""
    pretrained = Pretrained(source, lambda: AdapterTail(DIM, 16), DIM)
    return fitting.fit(settings, FACTS, pretrained, LABELS, journal or MemoryJournal(), QUIET, referee)


def check_finds_groups(method: Method) -> None:
    training = {"epochs": 8} if method.NEEDS.training else {}
    found = run(settings_of(method, **training), source=FAR_APART)
    predicted = found.prediction.classes.numpy()[UNLABELLED]
    score = cluster_accuracy(TRUE[UNLABELLED], predicted, TRUE[UNLABELLED] < KNOWN)
    assert score.all > 0.9, f"{method.NAME} finds {score}"


# Resuming


class Stop(Exception):
    """What ends a run after an epoch."""


class Interrupted(RunJournal):
    """Ends the run after each epoch that is not the last of its training."""

    def save_epoch(self, learner, optimiser, checkpoint, entry):
        super().save_epoch(learner, optimiser, checkpoint, entry)
        raise Stop


def new_journal(folder: Path, kind: type[RunJournal] = RunJournal) -> RunJournal:
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    return kind(folder)


def check_resumes(method: Method) -> None:
    """Stopped after every epoch of every training: the same prediction, labels, checkpoints and logs."""
    settings = settings_of(method)
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        whole = run(settings, new_journal(Path(first)))
        stops = 0
        while True:
            try:
                resumed = run(settings, new_journal(Path(second), Interrupted))
                break
            except Stop:
                stops += 1
        assert stops == EPOCHS * method.trainings(settings.method, FACTS)
        assert_same(whole, resumed)
        assert checkpoints(Path(first)) == checkpoints(Path(second))
        assert without_seconds(new_journal(Path(first)).log()) == without_seconds(new_journal(Path(second)).log())
        assert new_journal(Path(first)).pseudo_labels() == new_journal(Path(second)).pseudo_labels()


def assert_same(one: Found, other: Found) -> None:
    assert torch.equal(one.prediction.features, other.prediction.features), "other features"
    assert torch.equal(one.prediction.probabilities, other.prediction.probabilities), "other probabilities"
    assert np.array_equal(one.is_anchor, other.is_anchor), "other pseudo-labels"
    for a, b in ((one.predictor.tail, other.predictor.tail), (one.predictor.classifier, other.predictor.classifier)):
        assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def checkpoints(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "checkpoint").glob("*.safetensors"))}


def without_seconds(lines: list[dict]) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


# The truth


def check_ignores_truth(method: Method) -> None:
    """No truth, the true one, a wrong one: the same result."""
    settings = settings_of(method)
    wrong = np.random.default_rng(0).permutation(TRUE[UNLABELLED])
    plain = run(settings)
    for truth in (TRUE[UNLABELLED], wrong):
        assert_same(plain, run(settings, referee=Truth(UNLABELLED, truth, truth < KNOWN, 0, tuple("abcdef"))))


# Purity of the losses


def check_losses_are_pure(method: Method) -> None:
    """Computed twice they are the same, and nothing has changed in between."""
    computed = 0

    def twice(self: Learner, batch, losses):
        nonlocal computed
        before = {name: t.clone() for name, t in self.state_dict().items()}
        first, second = losses(self, batch), losses(self, batch)
        computed += 1
        assert first.parts.keys() == second.parts.keys()
        for name, value in first.parts.items():
            assert torch.equal(value, second.parts[name]), f"{name} changes when it is computed again"
        assert all(torch.equal(t, before[name]) for name, t in self.state_dict().items()), "losses change the state"
        return second

    original = loop.one_step

    def one_step(learner, descent, batch):
        losses = type(learner).losses
        learner.losses = lambda b: twice(learner, b, losses)
        try:
            return original(learner, descent, batch)
        finally:
            del learner.losses

    loop.one_step = one_step
    try:
        run(settings_of(method))
    finally:
        loop.one_step = original
    assert computed or not method.NEEDS.training


def check_config(method: Method, folder: Path) -> None:
    """Written and read back, settings are the same; so they are when they are decided again."""
    settings = settings_of(method)
    path = folder / "config.toml"
    path.write_text(config_text(settings, {"data": {"fingerprint": "abc"}}))
    config = read_config(path)
    assert config.settings == settings
    assert config.sections == {"data": {"fingerprint": "abc"}}
    assert decide(config.settings, FACTS) == settings
    assert method_of(config.settings).NAME == method.NAME
