"""Label other images with the model of a finished run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from newfound.atomic import load_json, write_csv
from newfound.errors import UserError
from newfound.images.decode import Unreadable, open_image
from newfound.images.scan import Skipped, find_files, why_not
from newfound.images.views import resized_side, views_of
from newfound.runs.assignment import NONE_OF_THESE, yes_or_no
from newfound.runs.decisions import VERSION
from newfound.runs.model import Model, load_model
from newfound.runs.results import digest_of
from newfound.screen import Screen
from newfound.sources.bank import run_trunk
from newfound.threads import prefetched, single_threaded_pool

REFUSED = 0.01  # share of images like the labelled ones that are called "none of these" by mistake
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
    skipped: tuple[Skipped, ...]
    oracle: bool = False  # the model was trained with the truth, for analysis

    def __len__(self) -> int:
        return len(self.files)

    def rows(self) -> Iterator[list[str]]:
        """As in assignments.csv, with one column more."""
        for i, file in enumerate(self.files):
            known = self.classes[i] != NONE_OF_THESE
            yield [
                file, "", self.classes[i], yes_or_no(self.is_new[i]) if known else "",
                f"{self.confidence[i]:.6f}" if known else "", self.runner_up[i],
                f"{self.runner_up_confidence[i]:.6f}", "false", f"{self.likeness[i]:.4f}",
                *(["true"] if self.oracle else []),
            ]  # fmt: skip

    def write_csv(self, path: Path) -> None:
        """The table; files that could not be read are listed beside it, in NAME-skipped.csv."""
        write_csv(path, [*HEADER, *(["oracle"] if self.oracle else [])], self.rows())
        if self.skipped:
            write_csv(skipped_beside(path), ["file", "reason"], ([item.file, item.reason] for item in self.skipped))


def skipped_beside(path: Path) -> Path:
    """Where the files that were not used are listed."""
    return path.with_name(f"{path.stem}-skipped.csv")


def predict(
    run: Path | str,
    images: Path | str | Sequence[Path | str],
    *,
    refused: float = REFUSED,
    weights: Path | None = None,
    device: str = "auto",
    screen: Screen | None = None,
) -> Labelled:
    """Label files, everything below folders, and what patterns such as ``new/*.jpg`` match.

    ``refused`` is the share of images like the labelled ones that may be called none of these; 0 always gives a class.
    Names, merges and dismissals decided in a review hold here, too; splits and moves need another round.
    """
    if not 0 <= refused < 1:
        raise UserError(f"--refused must be at least 0 and below 1; found {refused}")
    screen = screen or Screen(quiet=True)
    asked = [images] if isinstance(images, str | Path) else list(images)
    files, skipped = find_files(asked)
    model = load_model(run, weights=weights, device=device)
    names = decided_names(Path(run), model)
    kept, probabilities, likeness = [], [np.empty((0, len(names)))], [np.empty(0)]
    with screen.track("labelling", len(files)) as progress:
        for batch, unreadable in _batches(model, files):
            skipped += unreadable
            kept += [file for file, _ in batch]
            if batch:
                found = model.label(torch.stack([tokens for _, tokens in batch]))
                probabilities.append(found[0])
                likeness.append(found[1])
            progress.update(len(kept) + len(skipped))
    if not kept:
        raise UserError(_nothing_to_label(asked, skipped))
    return _labelled(kept, np.concatenate(probabilities), np.concatenate(likeness), names, model, refused, skipped)


def _batches(model: Model, files: list[str]) -> Iterator[tuple[list[tuple[str, Tensor]], list[Skipped]]]:
    """What left the trunk, some images at a time, and files among them that are no images."""
    size = model.backbone.image_size

    def tokens_of(file: str) -> Tensor | Skipped:
        try:
            photo = open_image(Path(file), shorter_side=resized_side(size))
        except Unreadable as error:
            return Skipped(file, error.reason)
        except OSError as error:
            return Skipped(file, why_not(error))
        pixels = views_of(photo, size, 0, "", [])
        return run_trunk(model.backbone, pixels)[0].half().float()  # as a bank would have kept it

    with single_threaded_pool() as pool:
        results = prefetched(pool, tokens_of, files, ahead=2 * (os.cpu_count() or 1))
        batch: list[tuple[str, Tensor]] = []
        unreadable: list[Skipped] = []
        for i, (file, result) in enumerate(zip(files, results, strict=True), start=1):
            if isinstance(result, Skipped):
                unreadable.append(result)
            else:
                batch.append((file, result))
            if i % BATCH == 0 or i == len(files):
                yield batch, unreadable
                batch, unreadable = [], []


def _labelled(
    files: list[str],
    probabilities: NDArray[np.float64],
    likeness: NDArray[np.float64],
    names: list[str | None],
    model: Model,
    refused: float,
    skipped: list[Skipped],
) -> Labelled:
    """Add up classes that go by one name, and take the most probable one."""
    columns = list(dict.fromkeys(names))
    merged = np.zeros((len(files), len(columns)))
    for k, name in enumerate(names):
        merged[:, columns.index(name)] += probabilities[:, k]
    is_new = [all(k >= model.n_known for k, other in enumerate(names) if other == name) for name in columns]
    order = np.argsort(-merged, axis=1, kind="stable")
    rows = np.arange(len(files))
    best, confidence = order[:, 0], merged[rows, order[:, 0]]
    none = likeness < refused
    none |= np.array([columns[k] is None for k in best])
    # the first of the others that is a class; of an image that is none of these, the first of all
    named = [[k for k in line if columns[k] is not None] for line in order]
    second = [line[0] if none[i] else (line[1] if len(line) > 1 else None) for i, line in enumerate(named)]
    return Labelled(
        files=tuple(files),
        classes=tuple(NONE_OF_THESE if none[i] else str(columns[k]) for i, k in enumerate(best)),
        is_new=np.array([is_new[k] for k in best]) & ~none,
        confidence=np.where(none, np.nan, confidence),
        runner_up=tuple("" if k is None else str(columns[k]) for k in second),
        runner_up_confidence=np.array([0.0 if k is None else merged[i, k] for i, k in enumerate(second)]),
        likeness=likeness,
        skipped=tuple(skipped),
        oracle=model.oracle,
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
        raise UserError(f"{path} is of version {version}; this newfound knows {VERSION}. Update newfound.")
    fits = isinstance(names, list) and len(names) == len(model.class_names) and any(names)
    if (run / "assignments.csv").is_file():
        fits = fits and digest == digest_of(run)
    if not fits or not all(name is None or isinstance(name, str) for name in names):
        raise UserError(f"{path} does not belong to the model beside it. Move it away to label without it.")
    return list(names)


def _nothing_to_label(asked: Sequence[Path | str], skipped: Sequence[Skipped]) -> str:
    where = ", ".join(map(str, asked)) or "nothing"
    if not skipped:
        return f"{where}: there are no files"
    reason = f"{skipped[0].file}: {skipped[0].reason}"
    more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return f"{where}: no readable image ({reason}{more})"
