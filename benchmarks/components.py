"""What each part of the paper adds: SimGCD, with the sharpness penalty, with dynamic anchors, with both.

    python benchmarks/components.py cub --data DATA --splits SPLITS --keep WORK --seeds 0 1 2 --image-size 160

Runs `newfound discover` as a user would, on the data of real_images.py. Rows share the bank, and the runs with anchors
take their first training from the run without. Finished runs are not run again, a killed one goes on. The table goes to
the screen, each run to benchmarks/components.json; seconds are of training, those of a shared first training included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from real_images import lay_out

RESULTS = Path(__file__).with_suffix(".json")
ROWS = {  # name: options, and the row whose training is the first one
    "SimGCD": (["--method", "simgcd", "--rho", "0"], None),
    "+LSP": (["--method", "simgcd", "--rho", "0.05"], None),
    "+DAS": (["--rho", "0"], "SimGCD"),
    "+LSP+DAS": (["--rho", "0.05"], "+LSP"),
}


def run(name: str, seed: int, work: Path, classes: int, extra: list[str]) -> dict[str, object]:
    options, first = ROWS[name]
    out = work / f"{name}-{seed}"
    command = [sys.executable, "-m", "newfound", "discover", str(work / "images"), "--classes", str(classes), *options]
    command += ["--seed", str(seed), "--truth", str(work / "truth.csv"), "--out", str(out), "--resume", *extra]
    command += ["--bank-dir", str(work / "banks")]
    if first is not None:
        command += ["--stage1", str(work / f"{first}-{seed}")]
    subprocess.run(command, check=True)  # a finished run is only looked at; one of other settings is refused
    return result(out)


def result(out: Path) -> dict[str, object]:
    metrics = json.loads((out / "metrics.json").read_text())
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    found = {group: metrics[group] for group in ("all", "old", "new", "kmeans_all")}
    found |= {"empty_classes": log[-1]["empty_classes"], "seconds": round(sum(line["seconds"] for line in log))}
    own = [line["seconds"] for line in log if line["stage"] == log[-1]["stage"]]
    found["seconds_per_epoch"] = round(statistics.median(own), 2)
    if (out / "anchors.jsonl").exists():
        last = json.loads((out / "anchors.jsonl").read_text().splitlines()[-1])
        found |= {name: last[name] for name in ("clean", "overall", "eta", "omega", "gamma")}
    return found


def table(rows: dict[str, dict[str, dict[str, object]]]) -> str:
    """Markdown, in per cent, mean ± standard deviation over seeds."""
    lines = ["| | All | Old | New | anchors clean | seconds |", "|---|---|---|---|---|---|"]
    for name, runs in rows.items():
        cells = [_spread([100 * float(str(r[group])) for r in runs.values()]) for group in ("all", "old", "new")]
        purity = [100 * int(str(r["clean"])) / int(str(r["overall"])) for r in runs.values() if r.get("overall")]
        seconds = statistics.median(float(str(r["seconds"])) for r in runs.values())
        lines.append(f"| {name} | {' | '.join(cells)} | {_spread(purity) if purity else ''} | {seconds:.0f} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.pstdev(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=["cub", "flowers"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, required=True, help="work here; what is there already is used")
    args, extra = parser.parse_known_args()
    if not args.data.is_dir():
        raise SystemExit(f"skipped: {args.data} is not here, and the images are not ours to distribute")
    _, _, classes = lay_out(args.dataset, args.data, args.splits, args.keep)
    rows = {name: {str(s): run(name, s, args.keep, classes, extra) for s in args.seeds} for name in ROWS}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[" ".join([args.dataset, *extra])] = rows
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
