"""A run that may begin: everything is checked, the classes are counted, no setting is left open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from newfound import fitting
from newfound.class_count import ClassCount
from newfound.images import ImageTable
from newfound.methods import method_of
from newfound.runs.assignments import check_names
from newfound.runs.folder import RunFolder
from newfound.runs.inputs import known_classes, write_skipped
from newfound.runs.provenance import provenance
from newfound.runs.rounds import Origin
from newfound.runs.scoring import Truth, oracle_mark
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings
from newfound.training.opened_images import OpenedImages


@dataclass(frozen=True)
class Prepared:
    table: ImageTable
    settings: Settings  # decided
    facts: DataFacts
    count: ClassCount | None  # how many classes there seem to be, where it was not given
    opened: OpenedImages
    referee: Truth | None
    oracle: str | None  # the mark of a run that learns from the truth
    origin: Origin
    one_of_several: bool = False

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of what may not change while the run is resumed."""
        found = {"data": self.table.fingerprint, "backbone": self.opened.backbone.fingerprint}
        return found if self.oracle is None or self.referee is None else found | {"oracle": self.referee.fingerprint}

    def with_seed(self, seed: int) -> Prepared:
        """The same run with another seed: its classes are counted already, and its warnings shown."""
        return replace(self, settings=replace(self.settings, seed=seed), count=None, one_of_several=True)

    @contextmanager
    def begun(self, run: RunFolder, screen: Screen, differences: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Hold the run folder, with what is known before any training in it."""
        origin = self.origin
        sections = provenance(self.table, origin.places(), self.fingerprints, dict(differences or {}))
        with run.begun(self.settings, {**sections, **origin.sections()}):
            write_skipped(run, self.table, Screen(quiet=True) if self.one_of_several else screen)
            if self.count is not None:
                run.write_json("class_count.json", asdict(self.count))
            if origin.history is not None:
                run.write_json("round.json", origin.history)
            yield


def prepared(
    table: ImageTable, settings: Settings, run: RunFolder, referee: Truth | None, origin: Origin, screen: Screen
) -> Prepared:
    """Raise unless such a run may begin in the folder, or be resumed there; nothing is written yet."""
    check_names(table.class_names)
    labels, names = table.seen_classes()
    facts = DataFacts(len(table), table.n_known, table.n_labelled, len(names), classes=0)
    opened = OpenedImages(table, settings, screen, strong=method_of(settings).NEEDS.strong_view)
    settings = replace(settings, classes=known_classes(run, settings) if settings.classes is None else settings.classes)
    settings, facts, count = fitting.with_count(settings, facts, lambda: opened.pretrained, labels, screen)
    settings = fitting.decided(settings, facts, screen)
    oracle = oracle_mark(settings, referee, screen)
    found = Prepared(table, settings, facts, count, opened, referee, oracle, origin)
    run.check_same_run(settings, found.fingerprints)
    return found
