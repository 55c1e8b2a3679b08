"""The published protocol on a data set of the literature: its split, several seeds, one report."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from newfound.atomic import write_atomically
from newfound.discovery import discover_table
from newfound.distributed import done_by_first
from newfound.methods import draws_half_labelled, method_of, own_settings, reading_note
from newfound.research.datasets import Benchmark, load_benchmark
from newfound.research.datasets.image_table import BenchmarkTable, table_of, truth_of
from newfound.research.markdown import table as markdown_table
from newfound.research.seed_statistics import check_seeds, deviation, mean_text, over_seeds
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import AS_PUBLISHED, Settings, filled, method_name
from newfound.settings.presets import PRESETS

PROTOCOLS = {  # prefixes in metrics.json
    "": "main: one matching over all images",
    "v2b_": "v2b: the same matching, mean over classes",
    "v1_": "v1: known and new matched apart (optimistic)",
    "kmeans_": "k-means on the frozen features, main",
}


def bench(
    dataset: str,
    root: Path,
    settings: Settings,
    *,
    lists: Path | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    out: Path | None = None,
    screen: Screen | None = None,
) -> dict[str, Any]:
    """Run every seed, or resume those that are not done, and write report.json and report.md.

    ``settings.classes`` 0 means as many as there truly are; without a preset, the data set's own is taken. The report
    has mean and sample standard deviation over seeds of the last epoch.
    """
    screen, out = screen or Screen(quiet=True), out or Path(f"newfound-bench-{dataset}")
    benchmark, table, settings = prepare(dataset, root, lists, settings, seeds, screen)
    screen.say(
        f"{benchmark.name}: {len(table):,} training images, {table.n_labelled:,} labelled in {len(benchmark.known)} "
        f"known classes, {len(table) - table.n_labelled:,} to sort, {len(benchmark.new)} new classes"
    )
    runs: dict[int, dict[str, Any]] = {}
    for seed in seeds:
        screen.say(f"seed {seed} ({len(runs) + 1} of {len(seeds)})")
        run, chosen = RunFolder(out / f"seed-{seed}"), replace(settings, seed=seed)
        run.check_place(resume=True)
        found = discover_table(table, chosen, run, referee=truth_of(benchmark), screen=screen)
        assert found.metrics is not None
        runs[seed] = found.metrics
    report = {"dataset": benchmark.name, "settings": _described(settings), "seeds": list(seeds), **summary(runs)}
    if note := reading_note(settings):
        report["reading"] = note
    _write_report(report, out)
    return report


@done_by_first
def _write_report(report: dict[str, Any], out: Path) -> None:
    with write_atomically(out / "report.json") as file:
        json.dump(report, file, indent=2)
    with write_atomically(out / "report.md") as file:
        file.write(markdown(report))


def prepare(
    dataset: str, root: Path, lists: Path | None, settings: Settings, seeds: Sequence[int], screen: Screen
) -> tuple[Benchmark, BenchmarkTable, Settings]:
    """The data set, looked through, and the settings with its number of classes and its preset where none is given.

    Images are drawn and features used as published unless the settings say otherwise.
    """
    check_seeds(seeds)
    benchmark = load_benchmark(dataset, root, lists=lists)
    with screen.track("reading images", len(benchmark)) as progress:
        table = table_of(benchmark, root, lambda done, total: progress.update(done, total=total))
    own_count = method_of(settings).NEEDS.own_count
    settings = replace(
        settings,
        classes=settings.classes or (None if own_count else len(benchmark.known) + len(benchmark.new)),
        preset=settings.preset or (dataset if dataset in PRESETS else None),
    )
    return benchmark, table, as_published(settings)


def as_published(settings: Settings) -> Settings:
    """All labelled images drawn alike and features as they are, on any data set, where nothing else was chosen."""
    balance = {"label_balance": 0.0} if draws_half_labelled(settings) else {}
    return filled(settings, {**AS_PUBLISHED, **balance})


def summary(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds of every number, in per cent; classes by mean accuracy.

    >>> metrics = {"all": 0.5, "confusion": {"known_as_new": 3}, "per_class": {"cat": 1.0}}
    >>> summary({0: metrics, 1: {**metrics, "all": 0.7}})["numbers"]
    {'all': {'mean': 60.0, 'std': 14.14, 'runs': [50.0, 70.0]}}
    """
    first, *_ = runs.values()
    numbers = [name for name, value in first.items() if isinstance(value, float)]
    return {
        **({"oracle": first["oracle"]} if "oracle" in first else {}),
        "numbers": {name: _spread([100 * metrics[name] for metrics in runs.values()]) for name in numbers},
        "confusion": {name: _mean(m["confusion"][name] for m in runs.values()) for name in first["confusion"]},
        "per_class": {name: _mean(100 * m["per_class"][name] for m in runs.values()) for name in first["per_class"]},
    }


def _spread(values: list[float]) -> dict[str, Any]:
    std = deviation(values)
    return {
        "mean": round(statistics.mean(values), 2),
        "std": None if std is None else round(std, 2),  # of a single seed there is none
        "runs": [round(value, 2) for value in values],
    }


def _mean(values: Iterable[float]) -> float:
    return round(float(statistics.fmean(values)), 2)


def _described(settings: Settings) -> dict[str, Any]:
    """What was chosen, by name."""
    values = {**vars(settings), **vars(own_settings(settings)), "method": method_name(settings)}
    return {name: str(value) for name, value in values.items() if value is not None}


def markdown(report: Mapping[str, Any]) -> str:
    """The report as a person reads it."""
    numbers, confusion = report["numbers"], report["confusion"]
    accuracies = [
        [name, *(number_text(numbers.get(prefix + group)) for group in ("all", "old", "new"))]
        for prefix, name in PROTOCOLS.items()
    ]
    put_into = [
        [group, f"{confusion[f'{group}_as_known']:g}", f"{confusion[f'{group}_as_new']:g}"]
        for group in ("known", "new")
    ]
    hardest_first = sorted(report["per_class"].items(), key=lambda item: item[1])
    parts = [
        f"# {report['dataset']}\n",
        f"Unlabelled training images, last epoch, {over_seeds(report['seeds'])}.\n",
        *(f"**{report[mark]}**\n" for mark in ("oracle", "reading") if mark in report),
        markdown_table(["", "All", "Old", "New"], accuracies),
        f"NMI {number_text(numbers.get('nmi'))}, ARI {number_text(numbers.get('ari'))}\n",
        markdown_table(["true class is", "put into known classes", "put into new classes"], put_into),
        markdown_table(["class", "accuracy"], [[name, f"{value:.1f}"] for name, value in hardest_first]),
    ]
    return "\n".join(parts)


def number_text(number: Mapping[str, Any] | None) -> str:
    """One of the ``numbers`` of a report.

    >>> number_text({"mean": 60.0, "std": 14.14, "runs": [50.0, 70.0]}), number_text(None)
    ('60.0 ± 14.1', '-')
    """
    return "-" if number is None else mean_text(number["mean"], number["std"])
