"""The command `newfound`."""

from __future__ import annotations

import io
import os
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from newfound.app.tables import show_classes, show_count, show_labelled, show_report, show_score
from newfound.errors import LostProcess, UserError
from newfound.screen import Screen, shown
from newfound.settings import UNSET_FILE, UNSET_FOLDER, Settings, paragraphs

if TYPE_CHECKING:
    from newfound.discovery import Discovery

Dataset = Literal["cifar10", "cifar100", "imagenet100", "cub", "cars", "aircraft", "herbarium", "flowers", "folder"]
StudyName = Literal["methods", "components", "strategy", "selection", "beta", "eta", "alpha", "k", "rho", "class-count",
                    "blocks", "backbone", "anchors", "hard-labels", "tsne", "hessian", "time"]  # fmt: skip

SHOWN = 10  # lines of a list, at most
BY_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ

# The heavy imports (torch and what needs it) wait until a command runs: --help and a typing slip answer at once.


@paragraphs
@dataclass(frozen=True)
class Discover:
    """Sort the images of a folder into known classes and classes it discovers.

    FOLDER holds one folder per known class, and unlabelled images as loose files or in a folder "unlabelled";
    or any images, with --labels naming the labelled ones. Nothing in it is changed.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The images."""
    settings: Annotated[Settings, tyro.conf.arg(name="")]
    labels: Annotated[Path | None, UNSET_FILE] = None
    """CSV with the columns file,label (blank = unlabelled), or a Hugging Face metadata.csv / metadata.jsonl."""
    out: Annotated[Path | None, UNSET_FOLDER] = None
    """The run folder to write. Unset: newfound-FOLDER, here."""
    truth: Annotated[Path | None, UNSET_FILE] = None
    """CSV file,label with the true classes, for scoring: it changes no result (but see --oracle-clean-anchors)."""
    resume: bool = False
    """Go on with a run that was stopped."""
    seeds: int = 1
    """Make the same run with this many seeds, --seed and those that follow, to see which classes come out again. The
    results are those of --seed; a class that no other seed has is called unstable."""
    report: bool = True
    """Write report.html, the page to look through."""
    after: Annotated[Path | None, tyro.conf.arg(name="continue", metavar="RUN", help_behavior_hint="")] = None
    """Another round after newfound review RUN: what was decided there are labels now, and --classes auto is the number
    of classes there. --out unset: RUN-2."""

    def run(self, screen: Screen) -> None:
        from newfound.discovery import discover
        from newfound.distributed import from_first

        found = discover(
            self.folder, self.settings, labels=self.labels, after=self.after, truth=self.truth, out=self.out,
            resume=self.resume, seeds=self.seeds, report=self.report, screen=screen,
        )  # fmt: skip
        from_first(lambda: self._show(found, screen))

    def _show(self, found: Discovery, screen: Screen) -> None:
        show_classes(found, screen)
        if found.metrics is not None:
            show_score(found.metrics, screen)
        files = ("report.html", "assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors", "log.jsonl")
        screen.say(f"written to {found.run}: {', '.join(file for file in files if (found.run / file).exists())}")
        screen.say(f"To look through it and to name what was found: newfound review {shlex.quote(str(found.run))}")


@paragraphs
@dataclass(frozen=True)
class Review:
    """Look through a finished run in the browser, and decide: rename, merge, split, move, accept, reject; undo, too.

    The page is served to this machine alone. Every decision is in RUN/decisions.json before the page says it is saved;
    newfound discover FOLDER --continue RUN takes them as labels for another round.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    port: int = 0
    """Of the page's address; 0: any that is free."""
    browser: bool = True
    """Open the page in the browser."""

    def run(self, screen: Screen) -> None:
        import webbrowser

        from newfound.review import review

        review(self.run_folder, port=self.port, open_browser=webbrowser.open if self.browser else None, screen=screen)


@paragraphs
@dataclass(frozen=True)
class Export:
    """Hand the results of a run, or its model, to other programs. What was decided in a review counts."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    onnx: Annotated[Path | None, UNSET_FILE] = None
    """The model from pixels to probabilities, for onnxruntime; compared with ours before it is written."""
    folders: Annotated[Path | None, UNSET_FOLDER] = None
    """A folder per class with copies of the images. The originals stay where they are."""
    link: bool = False
    """With --folders: links instead of copies."""
    parquet: Annotated[Path | None, UNSET_FILE] = None
    """The table with everything in it, embeddings too."""
    label_studio: Annotated[Path | None, UNSET_FILE] = None
    """Tasks for Label Studio, as JSON with scores; its labelling setup is written beside it."""
    weights: Annotated[Path | None, UNSET_FILE] = None
    """With --onnx: a local file with the backbone's weights, if the run had one."""

    def run(self, screen: Screen) -> None:
        from newfound.export import export_folders, export_label_studio, export_onnx, export_parquet

        if not (self.onnx or self.folders or self.parquet or self.label_studio):
            raise UserError("say what to export: --onnx FILE, --folders FOLDER, --parquet FILE or --label-studio FILE")
        if self.link and not self.folders:
            raise UserError("--link goes with --folders")
        if self.onnx:
            export_onnx(self.run_folder, self.onnx, weights=self.weights, screen=screen)
        if self.folders:
            export_folders(self.run_folder, self.folders, link=self.link, screen=screen)
        if self.parquet:
            export_parquet(self.run_folder, self.parquet, screen=screen)
        if self.label_studio:
            export_label_studio(self.run_folder, self.label_studio, screen=screen)


@paragraphs
@dataclass(frozen=True)
class Report:
    """Write report.html of a finished run anew, with the decisions of a review if there are any."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""

    def run(self, screen: Screen) -> None:
        from newfound.report import write_report
        from newfound.runs.decisions import DecisionLog
        from newfound.runs.results import read_results

        results = read_results(self.run_folder)
        with results.run.held():
            screen.say(f"written: {write_report(results, screen, DecisionLog(results).state())}")


@paragraphs
@dataclass(frozen=True)
class Predict:
    """Label other images with the model of a finished run.

    Each image gets a known class, a discovered one, or "none of these" if it is unlike all that the run has seen. Of
    RUN only model.json and model.safetensors are needed, and decisions.json for names given in a review.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
    """Image files, folders, or patterns such as 'new/*.jpg'."""
    out: Path = Path("predictions.csv")
    """The table to write; it has the columns of assignments.csv, and likeness."""
    refused: float = 0.01
    """Share of images like the labelled ones that may be called "none of these" by mistake; 0: every image gets a
    class."""
    weights: Annotated[Path | None, UNSET_FILE] = None
    """A local file with the backbone's weights, if the run had one."""
    device: str = Settings.device
    """cpu, cuda, cuda:1, mps; auto takes a GPU if there is one."""

    def run(self, screen: Screen) -> None:
        from newfound.export.outputs import check_free
        from newfound.runs.labelling import predict, skipped_beside

        check_free(self.out, skipped_beside(self.out))
        if not self.images:
            raise UserError("name at least one image file, folder or pattern")
        labelled = predict(
            self.run_folder, self.images, refused=self.refused, weights=self.weights, device=self.device, screen=screen
        )
        labelled.write_csv(self.out)
        if labelled.oracle:
            screen.warn("ORACLE: the truth was used in training this model, for analysis")
        show_labelled(labelled, screen)
        for item in labelled.skipped[:SHOWN]:
            screen.warn(f"not used: {item.file}: {item.reason}")
        if len(labelled.skipped) > SHOWN:
            screen.warn(f"{len(labelled.skipped):,} files in all are not used: see {skipped_beside(self.out)}")
        screen.say(f"written to {self.out}")


@paragraphs
@dataclass(frozen=True)
class Count:
    """Estimate how many classes the images of a folder have, known and new ones, without training.

    FOLDER is as for newfound discover, which does the same where --classes is not given, and takes over the bank.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The images."""
    labels: Annotated[Path | None, UNSET_FILE] = None
    """As for newfound discover."""
    backbone: str = Settings.backbone
    """As for newfound discover."""
    weights: Annotated[Path | None, UNSET_FILE] = None
    """A local file with the backbone's weights."""
    image_size: int = Settings.image_size
    """Side of the square the backbone sees, in pixels."""
    bank_dir: Annotated[Path | None, UNSET_FOLDER] = None
    """Where banks are kept. Unset: newfound/banks in your cache folder."""
    device: str = Settings.device
    """cpu, cuda, cuda:1, mps; auto takes a GPU if there is one."""

    def run(self, screen: Screen) -> None:
        from newfound.discovery import count_table, read_table
        from newfound.sources.bank import default_bank_folder

        settings = Settings(
            backbone=self.backbone, weights=self.weights, image_size=self.image_size, bank_dir=self.bank_dir,
            device=self.device,
        )  # fmt: skip
        table = read_table(self.folder, self.labels, [self.bank_dir or default_bank_folder()], screen)
        show_count(count_table(table, settings, screen), screen)


@paragraphs
@dataclass(frozen=True)
class Bench:
    """Run the published protocol on a data set of the literature: its split, its preset, several seeds, one report.

    Images and lists are read as their owner distributes them, and refused if the split that comes out is not the
    published one. Nothing is downloaded but weights of a backbone. A second call goes on with what is not done.
    """

    dataset: Annotated[Dataset, tyro.conf.Positional]
    """The data set. flowers has no published split (its first 51 classes are known); folder is any folder of class
    folders, with --lists naming the known and the new classes."""
    root: Path
    """Where it lies: the folder as unpacked, or a zip archive of class folders."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings(classes=0, backbone="dino_vitb16")  # noqa: RUF009
    lists: Annotated[Path | None, UNSET_FILE] = None
    """CUB: the folder of its official lists, if they are not beside the images. folder: a JSON file
    {"known": [...], "new": [...]} of class names."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each."""
    out: Annotated[Path | None, UNSET_FOLDER] = None
    """Where the runs and the report go. Unset: newfound-bench-DATASET, here."""

    def run(self, screen: Screen) -> None:
        from newfound.research.protocol import bench

        if self.settings.seed:
            raise UserError("--seed is for one run; a benchmark takes --seeds")
        out = self.out or Path(f"newfound-bench-{self.dataset}")
        report = bench(
            self.dataset, self.root, self.settings, lists=self.lists, seeds=self.seeds, out=out, screen=screen
        )
        show_report(report, screen)
        screen.say(f"written to {out}: report.md, report.json, and a run folder per seed")


@paragraphs
@dataclass(frozen=True)
class Study:
    """Run a table of the paper on a data set, with the paper's numbers beside ours: Markdown, CSV and a figure.

    Runs are shared between studies in one --out; what is finished is not run again, a second call goes on.
    """

    name: Annotated[StudyName, tyro.conf.Positional]
    """methods: k-means, GCD, SimGCD, ours. components: LSP and DAS. strategy, selection: when and which anchors are
    taken. beta, eta, alpha, k, rho: sweeps. class-count: with the estimated number of classes. blocks: frozen ViT
    blocks. backbone: DINOv2. anchors: how many are clean. hard-labels: with an oracle. tsne: the features in two
    dimensions. hessian: how flat the loss is, without and with LSP. time: of training and inference."""
    dataset: Dataset
    """As in newfound bench."""
    root: Path
    """Where the data set lies."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings(classes=0, backbone="dino_vitb16")  # noqa: RUF009
    lists: Annotated[Path | None, UNSET_FILE] = None
    """As in newfound bench."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each row is run with each of them."""
    out: Annotated[Path | None, UNSET_FOLDER] = None
    """Where runs, tables and figures go. Unset: newfound-study-DATASET, here."""

    def run(self, screen: Screen) -> None:
        from newfound.research.run_study import study

        if self.settings.seed:
            raise UserError("--seed is for one run; a study takes --seeds")
        out = self.out or Path(f"newfound-study-{self.dataset}")
        text = study(
            self.name, self.dataset, self.root, self.settings, lists=self.lists, seeds=self.seeds, out=out,
            screen=screen,
        )  # fmt: skip
        screen.say(text)
        screen.say(f"written to {out}: {self.name}.md, its figure as PDF and PNG, and the runs")


@paragraphs
@dataclass(frozen=True)
class Demo:
    """Unpack the wardrobe (2,000 small photos of clothes, five classes half-labelled, five unnamed) and discover."""

    out: Path = Path("newfound-demo")
    """Where to unpack it and to write the run."""
    seed: int = 0
    epochs: int = 15
    """Passes over the images, in each of the two trainings."""
    image_size: int = 128
    """The photos have 28 by 28 pixels; enlarging them further costs time."""
    bank_dir: Annotated[Path | None, UNSET_FOLDER] = None
    """Where the bank is kept. Unset: newfound/banks in your cache folder."""
    report: bool = True
    """Write report.html, the page to look through."""

    def run(self, screen: Screen) -> None:
        from newfound.app.demo import CLASSES, unpack_wardrobe

        images, truth = unpack_wardrobe(self.out)
        settings = Settings(
            CLASSES, seed=self.seed, epochs=self.epochs, image_size=self.image_size, bank_dir=self.bank_dir
        )
        options: dict[str, object] = {
            "--classes": CLASSES,
            "--epochs": self.epochs,
            "--image-size": self.image_size,
            "--seed": self.seed,
        }
        options |= {"--truth": truth, "--out": self.out / "run"}
        words = ["newfound", "discover", images, *(word for option in options.items() for word in option)]
        screen.say(f"the wardrobe is in {images}; now exactly what you would run on a folder of your own:")
        screen.say(f"  {shlex.join(map(str, words))}\n")
        # resume: a second `newfound demo` shows what the first one found, or goes on with it
        command = Discover(images, settings, out=self.out / "run", truth=truth, resume=True, report=self.report)
        command.run(screen)


Command = Discover | Review | Predict | Export | Report | Count | Bench | Study | Demo


def main() -> None:
    """Entry point; errors a person can mend are one sentence, never a traceback."""
    try:
        _run_or_stop()
    except KeyboardInterrupt:  # another one, while the first was being answered
        sys.exit(130)


def _run_or_stop() -> None:
    again = ""
    try:
        command = _parsed() if not BY_TORCHRUN else _parsed_once()
        again = _again(command)
        _run(command)
    except LostProcess as error:
        _stop(f"{error}. {again}", 1)
    except UserError as error:
        _stop(str(error), 2, of_first=error.of_first)
    except BrokenPipeError:  # `newfound ... | head` has seen enough; standard output must not be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _stop(f"{error}. What was written before is kept. {again}".rstrip(), 2)
    except KeyboardInterrupt as stop:
        _stop(f"{str(stop) or 'stopped'}. {again}".rstrip(), 130)


def _parsed() -> Command:
    kinds: dict[str, Any] = {
        "discover": Discover,
        "review": Review,
        "predict": Predict,
        "export": Export,
        "report": Report,
        "count": Count,
        "bench": Bench,
        "study": Study,
        "demo": Demo,
    }
    command: Command = tyro.extras.subcommand_cli_from_dict(
        kinds, prog="newfound", description="newfound finds the categories nobody has named yet."
    )
    return command


def _parsed_once() -> Command:
    """The same in each of several processes; the first one alone shows --help and typing slips."""
    from newfound.app.print_once import leave_to_first, spoken_by_first

    if os.environ["RANK"] == "0":
        try:
            return _parsed()
        except SystemExit:
            spoken_by_first()
            raise
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return _parsed()
        except SystemExit:
            leave_to_first()
            raise


def _again(command: Command) -> str:
    """How to go on after a stop."""
    if isinstance(command, Count):
        return "The same command goes on with the bank."
    if isinstance(command, Review | Report | Predict | Export):
        return ""
    return f"The same command{' with --resume' * isinstance(command, Discover)} goes on from the last checkpoint."


def _run(command: Command) -> None:
    """Alone, or as one of several processes that torchrun has started; the first one speaks for all."""
    if not BY_TORCHRUN:
        command.run(Screen())
        return
    from newfound.distributed import is_first, joined

    if not isinstance(command, Discover | Bench | Study):
        raise UserError("torchrun is for newfound discover, bench and study")
    with joined(command.settings.device):
        command.run(Screen(quiet=not is_first()))
    sys.stdout.flush()
    os._exit(0)  # all is written; threads of the processes' connections may abort an orderly end


def _stop(message: str, status: int, *, of_first: bool = False) -> None:
    """Leave with a message; of several processes one prints it, the first one where it is ``of_first``."""
    if BY_TORCHRUN:
        from newfound.app.print_once import leave_to_first, speak_once

        leave_to_first() if of_first and os.environ["RANK"] != "0" else speak_once(shown(message))
    else:
        print(f"newfound: {shown(message)}", file=sys.stderr)
    sys.exit(status)
