"""`make bench`: every speed claim as a ratio against the usual way, measured in turn; a table and latest.json."""

from __future__ import annotations

import json
import os
import platform
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks.busy import busy_rows
from benchmarks.images import efficientnet_row, reading_rates
from benchmarks.selection import anchor_row, kmeans_row
from benchmarks.timing import Row
from benchmarks.training import training_rows

RESULT = Path(__file__).with_name("latest.json")
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
OPENING, CLOSING = "<!-- make bench -->", "<!-- end -->"
GROUPS: dict[str, Callable[[], list[Row]]] = {
    "ViT-B/16": lambda: training_rows("dino_vitb16", images=32, rounds=3),
    "ViT-S/16": lambda: training_rows("dino_vits16", images=128, rounds=3),
    "anchor selection": lambda: [anchor_row(rounds=3)],
    "k-means": lambda: [kmeans_row(rounds=5)],
    "EfficientNet": lambda: [efficientnet_row(rounds=7)],
    "a busy machine": lambda: busy_rows(instances=2, rounds=2),
}


def hardware() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return f"{names[0] if names else platform.processor()}, {threads}, torch {torch.__version__}"


def markdown(content: dict[str, Any]) -> str:
    """The table as docs/speed.md has it."""
    lines = [f"{content['hardware']}, {content['date']}.", "", "| | against | seconds | ours | ratio | goal |"]
    lines.append("|---|---|---|---|---|---|")
    for row in content["rows"]:
        note = f" ({row['note']})" if row["note"] else ""
        numbers = f"{row['baseline_seconds']:.3g} | {row['seconds']:.3g} | {fraction(row['ratio'])}"
        lines.append(f"| {row['name']}{note} | {row['baseline']} | {numbers} | {fraction(row['goal'])} |")
    rates = [f"{rate:,.0f} {name}" for name, rate in content["per_second_per_core"].items()]
    return "\n".join([*lines, "", f"Per second and core: {', '.join(rates)}.", ""])


def write_into_docs(content: dict[str, Any]) -> None:
    start, rest = PAGE.read_text("utf-8").split(OPENING)
    PAGE.write_text(f"{start}{OPENING}\n{markdown(content)}{CLOSING}{rest.split(CLOSING)[1]}", "utf-8")


def fraction(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio > 0.2 else f"1/{1 / ratio:.1f}"


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"measure these alone and only print: {', '.join(GROUPS)}")
    names = parser.parse_args().group
    if unknown := set(names) - set(GROUPS):
        parser.error(f"there is no group {', '.join(sorted(unknown))}")
    rows = list[Row]()
    for name in names or GROUPS:
        print(f"measuring {name}", flush=True)
        rows += GROUPS[name]()
    if names:
        for row in rows:
            print(f"{row.name}: {row.seconds:.3g} s, {row.ratio:.2f} times {row.baseline}. {row.note}".rstrip())
    else:
        _write(rows)


def _write(rows: list[Row]) -> None:
    rates = reading_rates(rounds=3)
    content = {
        "hardware": hardware(),
        "date": str(date.today()),
        "rows": [{"ratio": round(row.ratio, 5), **vars(row)} for row in rows],
        "per_second_per_core": {name: round(rate, 1) for name, rate in rates.items()},
    }
    RESULT.write_text(json.dumps(content, indent=2) + "\n")
    write_into_docs(content)
    print(f"{markdown(content)}\nwritten to {RESULT} and {PAGE}")


if __name__ == "__main__":
    main()
