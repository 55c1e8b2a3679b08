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
from newfound.errors import UserError
from newfound.methods import own_settings
from newfound.research.datasets import Benchmark, load_benchmark
from newfound.research.datasets.table import BenchmarkTable, table_of, truth_of
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import Settings, method_name
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
    """Run every seed, or go on with those that are not done, and write report.json and report.md.

    ``settings.classes`` 0 means as many as there truly are; without a preset, the data set's own is taken. The report
    has mean and standard deviation over seeds of the last epoch.
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
    """The data set, looked through, and the settings with its number of classes and its preset where none is given."""
    if not seeds:
        raise UserError("--seeds needs at least one number")
    benchmark = load_benchmark(dataset, root, lists=lists)
    with screen.track("reading images", len(benchmark)) as progress:
        table = table_of(benchmark, root, lambda done, total: progress.update(done, total=total))
    settings = replace(
        settings,
        classes=settings.classes or len(benchmark.known) + len(benchmark.new),
        preset=settings.preset or (dataset if dataset in PRESETS else None),  # type: ignore[arg-type]
    )
    return benchmark, table, settings


def summary(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of every number, in per cent; classes by mean accuracy.

    >>> metrics = {"all": 0.5, "confusion": {"known_as_new": 3}, "per_class": {"cat": 1.0}}
    >>> summary({0: metrics, 1: {**metrics, "all": 0.7}})["numbers"]
    {'all': {'mean': 60.0, 'std': 10.0, 'runs': [50.0, 70.0]}}
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
    return {
        "mean": round(statistics.mean(values), 2),
        "std": round(statistics.pstdev(values), 2),
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
    seeds = ", ".join(map(str, report["seeds"]))
    lines = [
        f"# {report['dataset']}",
        "",
        f"Unlabelled training images, last epoch, mean ± std over seeds {seeds}.",
        "",
    ]
    if "oracle" in report:
        lines += [f"**{report['oracle']}**", ""]
    lines += ["| | All | Old | New |", "|---|---|---|---|"]
    for prefix, name in PROTOCOLS.items():
        cells = [_cell(numbers.get(prefix + group)) for group in ("all", "old", "new")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"NMI {_cell(numbers.get('nmi'))}, ARI {_cell(numbers.get('ari'))}", ""]
    lines += ["| true class is | put into known classes | put into new classes |", "|---|---|---|"]
    for group in ("known", "new"):
        lines.append(f"| {group} | {confusion[f'{group}_as_known']:g} | {confusion[f'{group}_as_new']:g} |")
    lines += ["", "| class | accuracy |", "|---|---|"]
    hardest_first = sorted(report["per_class"].items(), key=lambda item: item[1])
    lines += [f"| {_escaped(name)} | {value:.1f} |" for name, value in hardest_first]
    return "\n".join(lines) + "\n"


def _cell(number: Mapping[str, Any] | None) -> str:
    return "-" if number is None else f"{number['mean']:.1f} ± {number['std']:.1f}"


def _escaped(name: str) -> str:
    """A name as one cell of a Markdown table."""
    return " ".join(name.replace("\\", "\\\\").replace("|", "\\|").split())
