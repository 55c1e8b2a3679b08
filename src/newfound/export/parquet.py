"""One Parquet table: a row per image, with the decided class, the model's own answer and the embedding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from newfound.errors import as_path
from newfound.export.outputs import check_free, need, new_file
from newfound.export.reviewed_run import (
    REJECTED,
    VERDICTS,
    exported_classes,
    given_name,
    plain,
    read_decided,
    rejected_from,
)
from newfound.runs.review_state import NOT_A_CLASS, Reviewed
from newfound.screen import Screen
from newfound.text import counted

ROWS = 4096  # written at a time: 20 MB of embeddings


@dataclass(frozen=True)
class ParquetExport:
    """What was written."""

    file: Path
    rows: int
    columns: tuple[str, ...]


def export_parquet(run: Path | str, out: Path | str, *, screen: Screen | None = None) -> ParquetExport:
    """Write the table; its schema's metadata has the classes and where the images lay."""
    need("parquet", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    screen, out = screen or Screen(quiet=True), as_path("out", out)
    check_free(out)
    reviewed = read_decided(run)
    embeddings = reviewed.results.embeddings
    schema = _schema(reviewed, embeddings.shape[1])
    with (
        screen.track("writing", len(embeddings)) as progress,
        new_file(out, "wb") as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for images in _blocks(len(embeddings)):
            columns = _columns(reviewed, images)
            columns["embedding"] = pa.FixedSizeListArray.from_arrays(
                pa.array(embeddings[images].ravel()), embeddings.shape[1]
            )
            writer.write_table(pa.table({name: columns[name] for name in schema.names}, schema=schema))
            progress.update(images.stop)
    screen.say(f"{counted(len(embeddings), 'row')}, {len(schema.names)} columns: {out}")
    return ParquetExport(out, len(embeddings), tuple(schema.names))


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def _schema(reviewed: Reviewed, dim: int) -> Any:
    import pyarrow as pa

    results, text = reviewed.results, pa.string()
    fields = [
        ("file", text),
        *([] if all(plain(file) == file for file in results.files) else [("file_bytes", pa.binary())]),
        ("given_label", text), ("class", text), ("is_new", pa.bool_()), ("verdict", text),
        ("rejected_from", text), ("placed", pa.bool_()),
        ("model_class", text), ("model_is_new", pa.bool_()), ("confidence", pa.float64()), ("runner_up", text),
        ("runner_up_confidence", pa.float64()), ("is_anchor", pa.bool_()),
        ("embedding", pa.list_(pa.float32(), dim)),
        *((mark, pa.bool_()) for mark in results.marks),
    ]  # fmt: skip
    return pa.schema(fields, metadata={"newfound": json.dumps(_about(reviewed))})


def _about(reviewed: Reviewed) -> dict[str, Any]:
    sizes = Counter(exported_classes(reviewed).tolist())
    return {
        "version": version("newfound"),
        "images": plain(str(reviewed.results.root)),
        "classes": [
            {"name": plain(name), "kind": "known" if k in reviewed.known else "new", "size": sizes[k]}
            for k, name in sorted(reviewed.names.items())
        ],
        "not_a_class": sizes[NOT_A_CLASS],
        "rejected": sizes[REJECTED],
        "model_classes": [plain(name) for name in reviewed.results.assignment.class_names],
        **dict.fromkeys(reviewed.results.marks, True),
    }


def _columns(reviewed: Reviewed, images: slice) -> dict[str, Any]:
    results = reviewed.results
    a, files, numbers = results.assignment, results.files[images], exported_classes(reviewed)[images].tolist()
    names = [plain(name) for name in a.class_names]
    decided = {number: plain(name) for number, name in reviewed.names.items()}
    given = [given_name(reviewed, i) for i in range(images.start, images.stop)]
    rejected = [rejected_from(reviewed, i) for i in range(images.start, images.stop)]
    return {
        "file": [plain(file) for file in files],
        "file_bytes": [file.encode("utf-8", "surrogateescape") for file in files],
        "given_label": [None if name is None else plain(name) for name in given],
        "class": [decided.get(number) for number in numbers],
        "is_new": [None if number < 0 else number not in reviewed.known for number in numbers],
        "verdict": [VERDICTS.get(verdict) for verdict in reviewed.verdict[images].tolist()],
        "rejected_from": [None if name is None else plain(name) for name in rejected],
        "placed": reviewed.placed[images],
        "model_class": [plain(a.name_of(k)) for k in a.classes[images]],
        "model_is_new": [k >= a.n_known if k >= 0 else None for k in a.classes[images].tolist()],
        "confidence": [c if k >= 0 else None for c, k in zip(a.confidence[images], a.classes[images], strict=True)],
        "runner_up": [names[k] for k in a.runner_up[images]],
        "runner_up_confidence": a.runner_up_confidence[images],
        "is_anchor": a.is_anchor[images],
        **{mark: [True] * len(files) for mark in results.marks},
    }
