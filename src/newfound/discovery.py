"""The straight line: images → trunk → bank → tail → losses → assignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from newfound import fitting
from newfound.distributed import from_first
from newfound.errors import MUST, SettingError, as_path, option, require
from newfound.finished import Discovery
from newfound.images import ImageTable
from newfound.images.class_folders import folder_meaning
from newfound.methods import with_own
from newfound.runs.assignments import FEWEST, assign, write_assignment
from newfound.runs.consensus_answer import PROBABILITIES
from newfound.runs.folder import WHITENING, RunFolder
from newfound.runs.inputs import first_training, gather
from newfound.runs.model import embeddings_of, write_model
from newfound.runs.prepared import Prepared, prepared
from newfound.runs.repeats import check_repeats, run_several
from newfound.runs.rounds import Origin
from newfound.runs.scoring import Truth, write_score
from newfound.screen import Screen, screen_for
from newfound.settings import Settings
from newfound.text import counted


def discover(
    folder: Path | str,
    settings: Settings | None = None,
    *,
    labels: Path | str | None = None,
    unlabelled: str | Sequence[str] = (),
    known: str | Sequence[str] = (),
    after: Path | str | None = None,
    truth: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    repeat: int = 1,
    report: bool = True,
    screen: Screen | bool | None = None,
    **values: Any,
) -> Discovery:
    """Sort the images of a folder into known and newly found classes, and write the run folder.

    Settings, shared ones and the method's own, are keyword arguments, or a ``Settings``; keyword arguments override it.

    ``labels`` is a CSV of ``file,label``; without it, class folders are the labels. ``unlabelled`` names folders that
    hold images to sort, ``known`` folders such as "misc" that are classes. ``out`` is the run folder; ``resume``
    continues the run there, ``overwrite`` replaces it. ``after`` is an earlier run on the same images: the decisions of
    its review become labels. With ``truth``, a CSV of ``file,label``, the log has the score of each epoch and
    metrics.json that of the last one; nothing else changes. With ``repeat`` above 1 the run is repeated with the next
    seeds, and the results are the consensus of all; stability.json shows which classes each seed finds. ``report``
    False leaves out report.html. Progress is shown in terminals and notebooks; ``screen`` True shows it everywhere,
    False nowhere.
    """
    shown_on, chosen = screen_for(screen), _chosen(settings, values)
    check_repeats(chosen, repeat)
    for name, switch in {"resume": resume, "overwrite": overwrite, "report": report}.items():
        require(name, switch, isinstance(switch, bool), "True or False")
    images, places = as_path("folder", folder), {"labels": labels, "after": after, "truth": truth, "out": out}
    paths: dict[str, Any] = {name: None if place is None else as_path(name, place) for name, place in places.items()}
    folders = folder_meaning(images, unlabelled, known, paths["labels"])
    begin = partial(gather, images, chosen, folders=folders, resume=resume, overwrite=overwrite, repeat=repeat)
    start = from_first(lambda: begin(report=report, screen=shown_on, **paths))

    ready = prepared(start.table, start.settings, start.run, start.referee, start.origin, shown_on)

    def run_seed(seed: int, run: RunFolder) -> None:
        run_once(ready.with_seed(seed), run, shown_on)

    if repeat > 1:
        found = Discovery(start.run.path, run_several(ready, start.run, repeat, run_seed, shown_on))
    else:
        found = run_once(ready, start.run, shown_on)
    if report:
        from_first(lambda: found.report(again=True, screen=shown_on))
    return found


def _chosen(settings: Settings | None, values: dict[str, Any]) -> Settings:
    if settings is not None and not isinstance(settings, Settings):
        raise SettingError("settings", settings, "a newfound.Settings; a single setting is a keyword: classes=12", MUST)
    return with_own(settings or Settings(), values) if values else settings or Settings()


def discover_table(
    table: ImageTable,
    settings: Settings,
    run: RunFolder,
    *,
    referee: Truth | None = None,
    origin: Origin = Origin(),  # noqa: B008 - it cannot change
    one_of_several: bool = False,
    screen: Screen,
) -> Discovery:
    """The same for images that have been looked through already; where labels came from is only written down.

    One of several runs also writes probabilities.npy, from which their consensus is made.
    """
    ready = prepared(table, settings, run, referee, origin, screen)
    return run_once(replace(ready, one_of_several=one_of_several), run, screen)


def run_once(ready: Prepared, run: RunFolder, screen: Screen) -> Discovery:
    """What is left once all is checked: train, sort, write."""
    table, settings, oracle = ready.table, ready.settings, ready.oracle
    labels, names = table.seen_classes()
    run.check_same_run(settings, ready.fingerprints)
    earlier, differences = first_training(run, settings, ready.facts, ready.fingerprints, screen)
    pretrained = ready.opened.pretrained

    with ready.begun(run, screen, differences):
        if earlier is not None:
            run.journal.take_first_training(earlier.journal)
        found = fitting.fit(
            settings, ready.facts, pretrained, labels, run.journal, screen, ready.referee, fewest=FEWEST
        )  # fmt: skip
        if found.whitening is not None:
            run.write_json(WHITENING, asdict(found.whitening))
        if found.empty:
            fewer = f"a smaller {option('classes')} may fit better"
            screen.warn(f"{counted(found.empty, 'new class')} ended up empty, left out: {fewer}")
        assignment, embeddings = assign(found, names, table.unseen_classes()), embeddings_of(found.prediction)
        if ready.one_of_several:
            run.write_array(PROBABILITIES, found.prediction.probabilities.numpy())
        write_assignment(run, table, assignment, embeddings.numpy(), oracle=oracle is not None)
        write_model(run, found.predictor, embeddings, ready.opened.backbone, labels, assignment, settings, oracle)
        classes = len(assignment.class_names) if settings.classes is None else settings.classes  # of its own number
        kmeans = replace(found.task, classes=classes).clusters().clusters if ready.referee is not None else None
        return Discovery(run.path, write_score(run, ready.referee, assignment, kmeans, oracle))
