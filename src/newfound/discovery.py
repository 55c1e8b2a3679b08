"""The straight line: images → trunk → bank → tail → losses → assignments."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from newfound.backbones import Backbone, load_backbone
from newfound.backbones.adapter import AdapterTail
from newfound.class_count import ClassCount, count_classes
from newfound.distributed import asked_of_first, from_first, processes
from newfound.errors import UserError
from newfound.images import ImageTable, read_folder
from newfound.methods import gcd, kmeans, sdas, simgcd
from newfound.methods.kmeans import Grouping
from newfound.methods.simgcd import SimGCD
from newfound.report import write_report
from newfound.runs.assignment import NONE_OF_THESE, Assignment, assign, classes_in_use, write_assignment
from newfound.runs.decisions import DecisionLog, reviewed_of
from newfound.runs.folder import RunFolder
from newfound.runs.labelling import Labelled, predict
from newfound.runs.model import write_model
from newfound.runs.results import Results, digest_of, read_json, read_results
from newfound.runs.rounds import Origin, labels_then, next_out, next_round
from newfound.runs.scoring import Truth, read_truth, score
from newfound.runs.stability import FILE as STABILITY
from newfound.runs.stability import compare
from newfound.screen import Screen
from newfound.settings import OF_ANCHORS, QUICK_EPOCHS, Settings, resolve_device
from newfound.sources.bank import default_bank_folder, open_bank
from newfound.sources.fresh_views import FreshViews
from newfound.training.loop import Job, Source, batches_of, evaluated
from newfound.training.start import start_at_clusters

METHODS = {"sdas": sdas.fit, "simgcd": simgcd.fit, "gcd": gcd.fit, "kmeans": kmeans.fit}
EVALUATED = 128  # images at a time
ORACLE = "oracle: --oracle-clean-anchors used the truth, so these are not results of a method"


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
    settings: Settings,
    *,
    labels: Path | None = None,
    after: Path | None = None,
    truth: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    seeds: int = 1,
    report: bool = True,
    screen: Screen | None = None,
) -> Discovery:
    """Sort the images of a folder into known and newly found classes, and write the run folder.

    ``labels`` names labelled files (otherwise class folders do), ``out`` is the run folder. ``after`` is an earlier run
    on the same images: what was decided in its review are labels now. With ``truth``, a CSV of ``file,label``, the log
    has the score of each epoch and metrics.json that of the last one; nothing else changes. With several ``seeds`` the
    run is made again with those that follow, and stability.json says which classes come out again. ``report`` False
    leaves out report.html. Python callers see nothing on screen unless they pass a ``Screen()``.
    """
    screen = screen or Screen(quiet=True)
    _check_seeds(settings, seeds)
    start = from_first(lambda: _start(Path(folder), settings, labels, after, truth, out, resume, screen))
    found = discover_table(start.table, start.settings, start.run, referee=start.referee, origin=start.origin,
                           screen=screen)  # fmt: skip
    if seeds > 1:
        with start.run.held():
            _with_other_seeds(found, start, seeds, screen)
    if report:
        from_first(lambda: _write_report(found, screen))
    return found


def _check_seeds(settings: Settings, seeds: int) -> None:
    if seeds < 1:
        raise UserError(f"--seeds must be 1 or more; found {seeds}")
    if seeds > 1 and settings.seed + seeds > 2**32:
        raise UserError(f"--seeds {seeds} from --seed {settings.seed} on goes beyond 4294967295, the largest one")
    if seeds > 1 and settings.stage1 is not None:
        raise UserError("--seeds does not go with --stage1: the first training would be the same for all of them")


def _with_other_seeds(found: Discovery, start: _Start, seeds: int, screen: Screen) -> None:
    """Make the same run with the seeds that follow, below the run's folder, and write down what comes out again."""
    classes = start.run.classes_of(None)
    numbers = range(start.settings.seed, start.settings.seed + seeds)
    folders = [RunFolder(start.run.path / "seeds" / str(seed)) for seed in numbers[1:]]
    each, runs = start.run.training_seconds(), [found]
    for seed, run in zip(numbers[1:], folders, strict=True):
        left = each * sum(not (folder.path / "assignments.csv").exists() for folder in folders[len(runs) - 1 :])
        about = f"; about {timedelta(seconds=round(left))} of training left" if left else ""
        screen.say(f"seed {seed}, {len(runs) + 1} of {seeds}{about}")
        run.check_place(resume=True)
        settings = replace(start.settings, seed=seed, classes=classes)
        runs.append(discover_table(start.table, settings, run, referee=start.referee, origin=start.origin,
                                   screen=screen))  # fmt: skip
    from_first(lambda: _write_stability(runs, numbers))


def _write_stability(runs: Sequence[Discovery], seeds: Sequence[int]) -> None:
    own = runs[0].results
    content = {"results": digest_of(own.run.path), **compare([r.results.assignment for r in runs], seeds).as_json()}
    own.run.write_json(STABILITY, {"oracle": ORACLE, **content} if own.oracle else content)


def _write_report(found: Discovery, screen: Screen) -> None:
    with found.results.run.held():
        write_report(found.results, screen, DecisionLog(found.results).state())


@dataclass(frozen=True)
class _Start:
    """What a run begins with."""

    run: RunFolder
    table: ImageTable
    settings: Settings
    origin: Origin
    referee: Truth | None


def _start(
    folder: Path, settings: Settings, labels: Path | None, after: Path | None, truth: Path | None, out: Path | None,
    resume: bool, screen: Screen,
) -> _Start:  # fmt: skip
    if truth is not None and not truth.is_file():
        raise UserError(f"--truth {truth}: there is no such file")  # before the images are looked through
    earlier = None if after is None else reviewed_of(read_results(after))
    run = RunFolder(out or (default_out(folder) if after is None else next_out(after)))
    run.check_place(resume=resume)
    labels = labels or (None if earlier is None else labels_then(earlier.results))
    table = read_table(folder, labels, [run.path, settings.bank_dir or default_bank_folder()], screen)
    origin = Origin(labels, after)
    if earlier is not None:
        table, settings, history = next_round(table, settings, earlier, screen)
        origin = replace(origin, history=history)
    return _Start(run, table, settings, origin, None if truth is None else read_truth(truth, table))


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
    if odd := [name for name in table.class_names if name.casefold() == NONE_OF_THESE]:
        raise UserError(f"a class cannot be called {odd[0]!r}: that is what images unlike any class are called")
    settings, count = _with_classes(settings, table, run, referee, screen)
    settings = _decided(settings, table, referee, screen)
    backbone = backbone_of(settings)
    fingerprints = {"data": table.fingerprint, "backbone": backbone.fingerprint}
    if settings.oracle_clean_anchors and referee is not None:
        fingerprints["oracle"] = referee.fingerprint
    run.check_same_run(settings, fingerprints)
    earlier, taken = _earlier_run(run, settings, fingerprints, screen)
    source = open_source(table, backbone, settings, screen)

    with run.begun(settings, _provenance(table, origin.places(), fingerprints, taken)):
        _write_skipped(run, table, screen)
        if count is not None:
            run.write_json("class_count.json", asdict(count))
        if origin.history is not None:
            run.write_json("round.json", origin.history)
        if earlier is not None:
            run.take_stage1(earlier)
        targets, seen_names = table.seen_classes()
        frozen = features_of(new_tail(backbone, source, settings), source)
        grouping = from_first(lambda: kmeans.kmeans(frozen, settings.classes, settings.seed))

        def started_model() -> SimGCD:
            model = new_model(backbone, source, settings)
            if settings.start == "clusters":
                start_at_clusters(model.classifier, frozen, grouping.clusters, targets)
            return model

        job = Job(source, targets, settings, run, screen, referee, grouping)
        trained = METHODS[settings.method](job, started_model)

        anchors = (trained.labels >= 0) & (targets < 0)
        kept = classes_in_use(trained.prediction, len(seen_names))
        directions = trained.model.classifier.weight[kept]
        assignment = assign(trained.prediction.of(kept), directions, anchors, seen_names, table.unseen_classes())
        if dropped := settings.classes - len(kept):
            screen.warn(f"{dropped} of the new classes ended up empty and are left out: fewer --classes may fit better")
        write_assignment(run, table, assignment, oracle=settings.oracle_clean_anchors)
        oracle = ORACLE if settings.oracle_clean_anchors else None
        write_model(run, trained, kept, backbone, targets, assignment, settings, oracle)
        return Discovery(run.path, _score(run, referee, assignment, grouping, oracle))


@asked_of_first
def _score(
    run: RunFolder, truth: Truth | None, a: Assignment, frozen: Grouping, oracle: str | None
) -> dict[str, Any] | None:
    """Compare with the truth, if there is one, beside plain k-means, and write metrics.json."""
    if truth is None:
        return None
    metrics = score(truth, a.classes, frozen.clusters, a.n_known)
    metrics = metrics if oracle is None else {"oracle": oracle, **metrics}
    run.write_json("metrics.json", metrics)
    return metrics


def default_out(folder: Path) -> Path:
    """Beside where the command is run, named after the images."""
    return Path(f"newfound-{folder.resolve().name}")


def new_model(backbone: Backbone, source: Source, settings: Settings) -> SimGCD:
    """A model at its start: pretrained tail, fitted to the images where it needs that, heads drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = SimGCD(backbone.new_tail(), backbone.feature_dim, settings)
    _standardise(model.tail, source)
    if settings.compile:
        _compile(model.tail, model.projector)
    return model


def new_tail(backbone: Backbone, source: Source, settings: Settings) -> nn.Module:
    """The tail alone, as a new model has it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        tail = backbone.new_tail()
    _standardise(tail, source)
    return tail


def _standardise(tail: nn.Module, source: Source) -> None:
    if isinstance(tail, AdapterTail):
        tail.fit_standardisation(source.evaluation(batch) for batch in batches_of(source, EVALUATED))


def count_table(table: ImageTable, settings: Settings, screen: Screen) -> ClassCount:
    """How many classes there seem to be; the bank is built where need be."""
    backbone = backbone_of(settings)
    source = open_source(table, backbone, settings, screen)
    features = features_of(new_tail(backbone, source, settings), source)

    def counted() -> ClassCount:
        with screen.track("counting classes", 1) as progress:
            return count_classes(
                features, table.seen_classes()[0], on_progress=lambda done, total: progress.update(done, total=total)
            )

    return from_first(counted)


def backbone_of(settings: Settings) -> Backbone:
    """The backbone, its trunk on the device."""
    backbone = load_backbone(
        settings.backbone,
        image_size=settings.image_size,
        weights=settings.weights,
        grad_from_block=settings.grad_from_block,
    )
    backbone.trunk.to(resolve_device(settings.device))
    if settings.compile:
        _compile(backbone.trunk)
    return backbone


def _compile(*parts: nn.Module) -> None:
    """In place: parameters keep their names, so a checkpoint serves compiled and plain runs alike."""
    for part in parts:
        part.compile()


@torch.inference_mode()
def features_of(tail: nn.Module, source: Source) -> NDArray[np.float32]:
    """Features of the evaluation views, N×d; in batches of one size, as the last bits depend on it."""
    (features,) = evaluated(source, EVALUATED, lambda tokens: (tail(tokens),))
    return features.numpy()


def _with_classes(
    settings: Settings, table: ImageTable, run: RunFolder, truth: Truth | None, screen: Screen
) -> tuple[Settings, ClassCount | None]:
    """With a number of classes: told, taken from an earlier run, or counted."""
    if told := settings.classes or run.classes_of(settings.stage1):
        return replace(settings, classes=told), None
    fewest = max(table.n_known, 2)
    _decided(replace(settings, classes=fewest), table, truth, Screen(quiet=True))  # a slip should not wait
    count = count_table(table, settings, screen)
    classes = max(count.best, fewest)
    used = "" if classes == count.best else f"; {classes} are used, as no run can have fewer here"
    screen.say(f"{count}{used}. --classes N if you know better")
    return replace(settings, classes=classes), count


def _decided(settings: Settings, table: ImageTable, truth: Truth | None, screen: Screen) -> Settings:
    """Settings with nothing left open, and on screen what a person should know of them."""
    if settings.epochs is None and settings.method != "kmeans" and resolve_device(settings.device) == "cpu":
        each = " in each training" if settings.stages == 2 else ""
        screen.say(f"no GPU: the quick recipe of {QUICK_EPOCHS} epochs{each} (--epochs 200 for the published length)")
    settings = settings.resolved(table.n_known, len(table), table.labelled_per_class)
    if processes() > (batch := min(settings.batch_size, len(table))):
        raise UserError(f"{processes()} processes are too many to share batches of {batch} images: start fewer")
    new, unlabelled = settings.classes - len(table.seen_classes()[1]), len(table) - table.n_labelled
    if settings.method == "gcd" and new > unlabelled:
        raise UserError(
            f"--method gcd draws each new class from an unlabelled image: {settings.classes} classes, of which {new} "
            f"are new, are too many for {unlabelled} unlabelled images. Give fewer --classes."
        )
    if settings.oracle_clean_anchors:
        if truth is None:
            raise UserError("--oracle-clean-anchors needs --truth")
        screen.warn(ORACLE)
    return settings


def _earlier_run(
    run: RunFolder, settings: Settings, fingerprints: dict[str, str], screen: Screen
) -> tuple[RunFolder | None, dict[str, Any]]:
    """The run to take the first training from, if it is not here yet, and how it was trained otherwise than this."""
    if settings.stage1 is None or run.has_stage1():
        return None, {}
    earlier = RunFolder(settings.stage1)
    theirs = earlier.check_serves(settings, fingerprints)
    not_of_stage1 = {"method", "preset", "weights", "bank_dir", *OF_ANCHORS}
    other = {
        name: value
        for name, value in vars(theirs).items()
        if name not in not_of_stage1 and value != getattr(settings, name)
    }
    told = ", ".join(f"{name} {value}" for name, value in other.items())
    screen.say(f"the first training is that of {earlier.path}" + (f", which had {told}" if told else ""))
    return earlier, {"run": str(settings.stage1), **other}


def read_table(folder: Path, labels: Path | None, exclude: list[Path], screen: Screen) -> ImageTable:
    """Look through a folder, and say what is there."""
    with screen.track("reading images", 1) as progress:

        def on_progress(done: int, total: int) -> None:
            progress.update(done, total=total)

        table = read_folder(folder, labels=labels, exclude=exclude, on_progress=on_progress)
    for warning in table.warnings:
        screen.warn(warning)
    screen.say(
        f"{len(table):,} images: {table.n_labelled:,} labelled in {table.n_known} known classes, "
        f"{len(table) - table.n_labelled:,} to sort"
    )
    return table


def _write_skipped(run: RunFolder, table: ImageTable, screen: Screen) -> None:
    run.write_csv("skipped.csv", ["file", "reason"], ([item.file, item.reason] for item in table.skipped))
    if table.skipped:
        screen.warn(f"{len(table.skipped)} files are not used; each with its reason in {run.path / 'skipped.csv'}")


def open_source(table: ImageTable, backbone: Backbone, settings: Settings, screen: Screen) -> Source:
    """Where training takes its views from: the bank, built where need be, or the images themselves."""
    if settings.views == "fresh":
        return FreshViews(table, backbone, settings.precision)
    folder = settings.bank_dir or default_bank_folder()
    return open_bank(table, backbone, views=settings.bank_views, folder=folder, screen=screen)


def _provenance(
    table: ImageTable, origin: Mapping[str, str | None], fingerprints: dict[str, str], stage1: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    packages = ("newfound", "torch", "numpy", "scikit-learn", "pillow")
    sections: dict[str, dict[str, Any]] = {name: {"fingerprint": value} for name, value in fingerprints.items()}
    sections["data"] |= {
        "folder": str(table.root.resolve()),
        **origin,
        "images": len(table),
        "labelled": table.n_labelled,
        "known_classes": table.n_known,
    }
    sections["stage1"] = stage1  # a first training taken from elsewhere, and its settings where they differ
    sections["versions"] = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    sections["machine"] = {"processor": platform.machine(), "threads": torch.get_num_threads()}
    return {name: content for name, content in sections.items() if content}
