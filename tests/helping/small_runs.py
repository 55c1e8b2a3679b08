"""Finished runs without any training: folders as a run leaves them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from newfound.images import ImageTable
from newfound.methods import decide
from newfound.runs.assignments import Assignment, write_assignment
from newfound.runs.config import config_text
from newfound.runs.folder import RunFolder
from newfound.runs.results import Results, digest_of, read_results
from newfound.runs.stability import Stability
from newfound.settings import DataFacts, Settings


def write_run(
    root: Path,
    files: list[str],
    classes: list[int],
    names: tuple[str, ...],
    n_known: int,
    *,
    given: list[int] | None = None,
    confidence: list[float] | None = None,
    runner_up: list[int] | None = None,
    embeddings: np.ndarray | None = None,
    anchors: list[bool] | None = None,
    unseen: tuple[str, ...] = (),
    side: int = 24,
    method: str = "sdas",
) -> Results:
    """Images of one colour per class below ``root/images``, and the run in ``root/run``."""
    images, n = root / "images", len(files)
    random = np.random.default_rng(0)
    for i, file in enumerate(files):
        (images / file).parent.mkdir(parents=True, exist_ok=True)
        _picture(classes[i], i, side).save(images / file, "PNG")
    if embeddings is None:
        embeddings = np.eye(64)[classes] + random.normal(0, 0.1, (n, 64))
    run = RunFolder(root / "run")
    run.path.mkdir()
    facts = DataFacts(max(n, len(names)), n_known, 2 * n_known, n_known, len(names))
    settings = decide(Settings(len(names), method, device="cpu"), facts)
    data = {"fingerprint": "abc", "folder": str(images), "images": n}
    (run.path / "config.toml").write_text(
        config_text(settings, {"data": data, "versions": {"newfound": "0.1.0"}}), "utf-8"
    )
    labels = np.array([-1] * n if given is None else given)
    table = ImageTable(images, tuple(files), labels, names[:n_known], ("",) * n, (), ())
    assignment = Assignment(
        class_names=names,
        unseen=unseen,
        n_known=n_known,
        classes=np.array(classes),
        confidence=np.array(confidence if confidence is not None else random.uniform(0.4, 1, n)),
        runner_up=np.array(runner_up if runner_up is not None else [(k + 1) % len(names) for k in classes]),
        runner_up_confidence=np.full(n, 0.1),
        is_anchor=np.array(anchors if anchors is not None else [False] * n),
    )
    unit = (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).astype(np.float16)
    write_assignment(run, table, assignment, unit)
    run.write_array("embeddings.npy", unit)
    run.write_array("map.npy", random.uniform(0, 1, (n, 2)).astype(np.float32))  # t-SNE takes its time
    run.write_csv("skipped.csv", ["file", "reason"], [["broken.jpg", "zero bytes"]])
    return read_results(run.path)


def _picture(k: int, i: int, side: int) -> Image.Image:
    random = np.random.default_rng([k % 97, i])  # -1 is no class
    pixels = np.array([(k * 90) % 255, (k * 50 + 60) % 255, 200 - (k * 40) % 150]) + random.normal(
        0, 60, (side, side, 3)
    )
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def small_run(root: Path) -> Results:
    """Two known and two new classes of 40 images; half of the known ones are labelled, one of these wrongly."""
    classes = [i % 4 for i in range(160)]
    given = [k if k < 2 and i % 8 < 4 else -1 for i, k in enumerate(classes)]
    given[4 * 16] = 1  # an image of class 0
    return write_run(
        root,
        [f"part {i % 3}/image{i:03d}.png" for i in range(160)],
        classes,
        ("cat", "dog", "new-1", "new-2"),
        2,
        given=given,
        confidence=[0.5 + 0.003 * i for i in range(160)],
        anchors=[k > 1 and i > 80 for i, k in enumerate(classes)],
    )


def write_stability(results: Results, stability: Stability) -> None:
    """As a run with several seeds leaves it."""
    results.run.write_json("stability.json", {"results": digest_of(results.run.path), **stability.as_json()})


def run_with_images_left_out(root: Path) -> Results:
    """A known class and a new one, ten images each; six images, three of them labelled, are none of these."""
    classes = [0] * 10 + [1] * 10 + [-1] * 6
    given = [0] * 5 + [-1] * 15 + [0] * 3 + [-1] * 3
    confidence = [0.9] * 20 + [0.0] * 6
    files = [f"image{i:02d}.png" for i in range(26)]
    return write_run(
        root, files, classes, ("cat", "new-1"), 1, given=given, confidence=confidence, runner_up=[1] * 10 + [0] * 16
    )
