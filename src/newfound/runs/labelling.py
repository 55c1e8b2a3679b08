"""Label other images with the model of a finished run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.atomic import load_json, write_csv
from newfound.errors import MUST, SettingError, UserError, as_path
from newfound.images.decode import Unreadable, open_image
from newfound.images.scan import Skipped, find_files, why_not
from newfound.images.views import resized_side, views_of
from newfound.runs.assignments import NONE_OF_THESE, two_best, yes_or_no
from newfound.runs.decisions import VERSION
from newfound.runs.model import Model, load_model
from newfound.runs.none_of_these import REFUSED
from newfound.runs.pictures import Picture, check_pictures, is_picture, opened
from newfound.runs.results import digest_of
from newfound.screen import Screen
from newfound.sources.bank import run_trunk
from newfound.threads import prefetched, single_threaded_pool

BATCH = 128
HEADER = ("file", "given_label", "class", "is_new", "confidence", "runner_up", "runner_up_confidence", "is_anchor",
          "likeness")  # fmt: skip


@dataclass(frozen=True)
class Labelled:
    """A class per image, in the order of ``files``; known and discovered ones, or `NONE_OF_THESE`.

    ``confidence`` is NaN where an image is none of these; what comes closest is then the ``runner_up``. ``likeness`` is
    the share of the run's labelled images that were at least as far from all others as this image is.
    """

    files: tuple[str, ...]
    classes: tuple[str, ...]
    is_new: NDArray[np.bool_]
    confidence: NDArray[np.float64]
    runner_up: tuple[str, ...]
    runner_up_confidence: NDArray[np.float64]
    likeness: NDArray[np.float64]
    skipped: tuple[Skipped, ...] = ()
    oracle: bool = False  # the model was trained with the truth, for analysis
    reading: str = ""  # its method was written from a paper without public code

    def __len__(self) -> int:
        return len(self.files)

    @property
    def marks(self) -> list[str]:
        """Columns that say what these results are, where they are not to be taken as others are."""
        return ["oracle"] * self.oracle + ["reading"] * bool(self.reading)

    def rows(self) -> Iterator[list[str]]:
        """As in assignments.csv, with one column more."""
        for i, file in enumerate(self.files):
            known = self.classes[i] != NONE_OF_THESE
            yield [
                file, "", self.classes[i], yes_or_no(self.is_new[i]) if known else "",
                f"{self.confidence[i]:.6f}" if known else "", self.runner_up[i],
                f"{self.runner_up_confidence[i]:.6f}", "false", f"{self.likeness[i]:.4f}",
                *("true" for _ in self.marks),
            ]  # fmt: skip

    def write_csv(self, path: Path | str) -> None:
        """The table; files that could not be read are listed beside it, in NAME-skipped.csv."""
        path = as_path("path", path)
        write_csv(path, [*HEADER, *self.marks], self.rows())
        if self.skipped:
            write_csv(skipped_beside(path), ["file", "reason"], ([item.file, item.reason] for item in self.skipped))


def skipped_beside(path: Path) -> Path:
    """Where the skipped files are listed."""
    return path.with_name(f"{path.stem}-skipped.csv")


def predict(
    run: Path | str,
    images: Path | str | Picture | Sequence[Path | str] | Sequence[Picture],
    *,
    refused: float = REFUSED,
    weights: Path | str | None = None,
    device: str = "auto",
    screen: Screen | None = None,
) -> Labelled:
    """Label files, everything below folders, and what patterns such as ``new/*.jpg`` match; or images in memory, whose
    ``files`` are then their places in the list: "[0]", "[1]", ...

    ``refused`` is the share of images like the labelled ones that may be called none of these; 0 always gives a class.
    Names, merges and dismissals decided in a review hold here, too; splits and moves need another round.
    """
    if not isinstance(refused, int | float) or not 0 <= refused < 1:
        raise SettingError("refused", refused, "at least 0 and below 1", MUST)
    screen = screen or Screen(quiet=True)
    asked = _listed(images)
    sources, skipped = _sources(asked)
    model = load_model(run, weights=weights, device=device)
    classes = NamedClasses(decided_names(Path(run), model), model.n_known)
    parts: list[Labelled] = []
    done = len(skipped)
    with screen.track("labelling", len(sources)) as progress:
        for batch, unreadable in _batches(model, sources):
            skipped += unreadable
            if batch:
                probabilities, likeness = model.label(torch.stack([tokens for _, tokens in batch]))
                parts.append(label([file for file, _ in batch], probabilities, likeness, classes, refused))
            done += len(batch) + len(unreadable)
            progress.update(done)
    if not parts:
        raise UserError(_nothing_to_label(asked, skipped))
    return replace(_joined(parts), skipped=tuple(skipped), oracle=model.oracle, reading=model.reading)


def _listed(images: Any) -> list[Any]:
    """One path or picture, or several."""
    if isinstance(images, str | os.PathLike) or (is_picture(images) and getattr(images, "ndim", 3) != 4):
        return [images]
    if not isinstance(images, Iterable):
        raise UserError(f"images must be paths, PIL images or arrays H×W×3 of uint8; found {images!r}")
    return list(images)


def _sources(asked: list[Any]) -> tuple[dict[str, str | Picture], list[Skipped]]:
    """What is to be labelled, by name, and files that are not."""
    if any(map(is_picture, asked)):
        check_pictures(asked)
        return {f"[{i}]": picture for i, picture in enumerate(asked)}, []
    for item in asked:
        as_path("images", item)
    files, skipped = find_files(asked)
    return {file: file for file in files}, skipped


def _batches(
    model: Model, sources: dict[str, str | Picture]
) -> Iterator[tuple[list[tuple[str, Tensor]], list[Skipped]]]:
    """What left the trunk, some images at a time, and files among them that are no images."""
    size = model.backbone.image_size

    def tokens_of(file: str) -> Tensor | Skipped:
        source = sources[file]
        try:
            photo = opened(source) if not isinstance(source, str) else open_image(Path(source), resized_side(size))
        except Unreadable as error:
            return Skipped(file, error.reason)
        except OSError as error:
            return Skipped(file, why_not(error))
        pixels = views_of(photo, size, 0, "", [])
        return run_trunk(model.backbone, pixels)[0].half().float()  # as a bank would have kept it

    with single_threaded_pool() as pool:
        results = prefetched(pool, tokens_of, list(sources), ahead=2 * (os.cpu_count() or 1))
        batch: list[tuple[str, Tensor]] = []
        unreadable: list[Skipped] = []
        for i, (file, result) in enumerate(zip(sources, results, strict=True), start=1):
            if isinstance(result, Skipped):
                unreadable.append(result)
            else:
                batch.append((file, result))
            if i % BATCH == 0 or i == len(sources):
                yield batch, unreadable
                batch, unreadable = [], []


class NamedClasses:
    """The model's classes as they are called since a review: several may share a name; None is what is not a class.

    >>> classes = NamedClasses(["cat", "dog", None, "cat"], n_known=1)
    >>> classes.names, classes.is_new.tolist()
    (('cat', 'dog'), [False, True])
    """

    def __init__(self, names: Sequence[str | None], n_known: int) -> None:
        first: dict[str | None, int] = {}  # of each name, the first class
        for k, name in enumerate(names):
            first.setdefault(name, k)
        column = {name: i for i, name in enumerate(first)}
        self._first = list(first.values())
        self._others = [(k, column[name]) for k, name in enumerate(names) if first[name] != k]
        self._not_a_class = column.get(None)
        self.names = tuple(name for name in first if name is not None)  # C
        self._named = [column[name] for name in self.names]
        self.is_new = np.array([first[name] >= n_known for name in self.names])  # C

    def added_up(self, probabilities: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """B×K to B×C, classes of one name added up; and for which images what is not a class is the most probable."""
        added = probabilities[:, self._first]
        for k, column in self._others:
            added[:, column] += probabilities[:, k]
        return added[:, self._named], added.argmax(axis=1) == self._not_a_class


def label(
    files: Sequence[str],
    probabilities: NDArray[np.float64],
    likeness: NDArray[np.float64],
    classes: NamedClasses,
    refused: float,
) -> Labelled:
    """The most probable class of each image and the next one, of the model's probabilities B×K.

    >>> classes = NamedClasses(["cat", "dog", "cat"], n_known=1)
    >>> found = label(["a.jpg", "b.jpg"], np.array([[0.3, 0.4, 0.3]] * 2), np.array([0.5, 0.0]), classes, refused=0.01)
    >>> found.classes, found.runner_up
    (('cat', 'none of these'), ('dog', 'cat'))
    """
    scores, none = classes.added_up(probabilities)
    none |= likeness < refused
    nothing = np.full((len(scores), 1), -1.0)  # where there is one class only, the next one is no class
    scores, names = np.hstack([scores, nothing]), [*classes.names, ""]
    best, second = two_best(scores)
    runner_up, rows = np.where(none, best, second), np.arange(len(scores))
    return Labelled(
        files=tuple(files),
        classes=tuple(NONE_OF_THESE if nowhere else names[k] for k, nowhere in zip(best, none, strict=True)),
        is_new=classes.is_new[best] & ~none,
        confidence=np.where(none, np.nan, scores[rows, best]),
        runner_up=tuple(names[k] for k in runner_up),
        runner_up_confidence=np.maximum(scores[rows, runner_up], 0.0),
        likeness=likeness,
    )


def _joined(parts: Sequence[Labelled]) -> Labelled:
    return Labelled(
        files=tuple(file for part in parts for file in part.files),
        classes=tuple(name for part in parts for name in part.classes),
        is_new=np.concatenate([part.is_new for part in parts]),
        confidence=np.concatenate([part.confidence for part in parts]),
        runner_up=tuple(name for part in parts for name in part.runner_up),
        runner_up_confidence=np.concatenate([part.runner_up_confidence for part in parts]),
        likeness=np.concatenate([part.likeness for part in parts]),
    )


def decided_names(run: Path, model: Model) -> list[str | None]:
    """What the model's classes are called since a review, if there was one; None: not a class."""
    path = run / "decisions.json"
    if not path.is_file():
        return list(model.class_names)
    try:
        content = load_json(path)
        names, version, digest = content["class_names"], content["version"], content["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error!r}. Move it away to label without it.") from error
    if version != VERSION:
        raise UserError(f"{path} has version {version}; this newfound knows {VERSION}. Update newfound.")
    fits = isinstance(names, list) and len(names) == len(model.class_names) and any(names)
    if (run / "assignments.csv").is_file():
        fits = fits and digest == digest_of(run)
    if not fits or not all(name is None or isinstance(name, str) for name in names):
        raise UserError(f"{path} does not belong to the model beside it. Move it away to label without it.")
    return list(names)


def _nothing_to_label(asked: Sequence[Any], skipped: Sequence[Skipped]) -> str:
    where = "images" if any(map(is_picture, asked)) else ", ".join(map(str, asked)) or "nothing"
    if not skipped:
        return f"{where}: there are no files"
    reason = f"{skipped[0].file}: {skipped[0].reason}"
    more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return f"{where}: no readable image ({reason}{more})"
