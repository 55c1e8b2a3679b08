"""The straight line: images → trunk → bank → tail → losses → assignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from newfound import fitting
from newfound.distributed import from_first
from newfound.errors import UserError
from newfound.images import ImageTable
from newfound.methods import method_of
from newfound.report import write_report
from newfound.runs.assignments import assign, check_names, write_assignment
from newfound.runs.decisions import DecisionLog
from newfound.runs.folder import RunFolder
from newfound.runs.inputs import first_training, gather, known_classes, write_skipped
from newfound.runs.labelling import Labelled, predict
from newfound.runs.model import write_model
from newfound.runs.provenance import provenance
from newfound.runs.repeats import check_repeats, make_repeats
from newfound.runs.results import Results, read_json, read_results
from newfound.runs.rounds import Origin
from newfound.runs.scoring import Truth, oracle_mark, write_score
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings
from newfound.text import counted
from newfound.training.opened_images import OpenedImages


@dataclass(frozen=True)
class Discovery:
    """A finished run."""

    run: Path
    metrics: dict[str, Any] | None = None  # where a truth was given

    @classmethod
    def load(cls, run: Path | str) -> Discovery:
        """A run made earlier; to `predict`, its model.json and model.safetensors are enough."""
        path = Path(run)
        if not path.is_dir():
            raise UserError(f"{path}: there is no such run folder")
        return cls(path, read_json(path / "metrics.json"))

    @cached_property
    def results(self) -> Results:
        """What was found, by image."""
        return read_results(self.run)

    def predict(
        self, images: Path | str | Sequence[Path | str], *, weights: Path | None = None, device: str = "auto"
    ) -> Labelled:
        """Label other images: files, folders, patterns such as ``"new/*.jpg"``."""
        return predict(self.run, images, weights=weights, device=device)


def discover(
    folder: Path | str,
    settings: Settings | None = None,
    *,
    labels: Path | str | None = None,
    after: Path | str | None = None,
    truth: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    repeat: int = 1,
    report: bool = True,
    screen: Screen | None = None,
) -> Discovery:
    """Sort the images of a folder into known and newly found classes, and write the run folder.

    ``labels`` names labelled files (otherwise class folders do), ``out`` is the run folder. ``after`` is an earlier run
    on the same images: what was decided in its review are labels now. With ``truth``, a CSV of ``file,label``, the log
    has the score of each epoch and metrics.json that of the last one; nothing else changes. With ``repeat`` above 1 the
    run is made again with the seeds that follow, and stability.json says which classes come out again. ``overwrite``
    replaces a run in ``out``. ``report`` False leaves out report.html. Nothing is shown unless you pass a ``Screen()``.
    """
    screen, settings = screen or Screen(quiet=True), settings or Settings()
    check_repeats(settings, repeat)
    places = {"labels": labels, "after": after, "truth": truth, "out": out}
    paths: dict[str, Any] = {name: None if path is None else Path(path) for name, path in places.items()}
    begin = partial(gather, Path(folder), settings, resume=resume, overwrite=overwrite, repeat=repeat, report=report)
    start = from_first(lambda: begin(screen=screen, **paths))

    def run_once(settings: Settings, run: RunFolder) -> Discovery:
        return discover_table(start.table, settings, run, referee=start.referee, origin=start.origin, screen=screen)

    found = run_once(start.settings, start.run)
    if repeat > 1:
        with start.run.held():
            make_repeats(start.run, start.settings, repeat, run_once, screen)
    if report:
        from_first(lambda: _write_report(found, screen))
    return found


def _write_report(found: Discovery, screen: Screen) -> None:
    with found.results.run.held():
        write_report(found.results, screen, DecisionLog(found.results).state())


def discover_table(
    table: ImageTable,
    settings: Settings,
    run: RunFolder,
    *,
    referee: Truth | None = None,
    origin: Origin = Origin(),  # noqa: B008 - it cannot change
    screen: Screen,
) -> Discovery:
    """The same for images that have been looked through already; where labels came from is only written down."""
    check_names(table.class_names)
    labels, names = table.seen_classes()
    facts = DataFacts(len(table), table.n_known, table.n_labelled, len(names), classes=0)
    opened = OpenedImages(table, settings, screen, strong=method_of(settings).NEEDS.strong_view)
    settings = replace(settings, classes=known_classes(run, settings) if settings.classes is None else settings.classes)
    settings, facts, count = fitting.with_count(settings, facts, lambda: opened.pretrained, labels, screen)
    settings = fitting.decided(settings, facts, screen)
    oracle = oracle_mark(settings, referee, screen)
    fingerprints = {"data": table.fingerprint, "backbone": opened.backbone.fingerprint}
    if oracle and referee is not None:
        fingerprints["oracle"] = referee.fingerprint
    run.check_same_run(settings, fingerprints)
    earlier, differences = first_training(run, settings, facts, fingerprints, screen)
    pretrained = opened.pretrained

    with run.begun(settings, {**provenance(table, origin.places(), fingerprints, differences), **origin.sections()}):
        write_skipped(run, table, screen)
        if count is not None:
            run.write_json("class_count.json", asdict(count))
        if origin.history is not None:
            run.write_json("round.json", origin.history)
        if earlier is not None:
            run.journal.take_first_training(earlier.journal)
        found = fitting.fit(
            settings, facts, pretrained, labels, run.journal, screen, referee, fewest=2  # with a runner-up in the table
        )  # fmt: skip
        if found.empty:
            screen.warn(f"{counted(found.empty, 'new class')} ended up empty, left out: fewer --classes may fit better")
        assignment = assign(found, names, table.unseen_classes())
        write_assignment(run, table, assignment, oracle=oracle is not None)
        write_model(run, found.predictor, found.prediction, opened.backbone, labels, assignment, settings, oracle)
        kmeans = found.task.clusters().clusters if referee is not None else None
        return Discovery(run.path, write_score(run, referee, assignment, kmeans, oracle))
