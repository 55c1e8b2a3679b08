"""Run `newfound discover` on real images, as a user would, and measure it: accuracy, time, memory, disk.

    python benchmarks/real_images.py cub --data DATA --splits SPLITS --seeds 0 1 2

CUB-200-2011 with the published split (Semantic Shift Benchmark), Oxford Flowers-102 with its first 51 classes known.
The archives hold class folders of small JPEGs. Half of the known classes' images keep their label, drawn as the
published protocol does. Results go to benchmarks/real_images.json; accuracies are of the last epoch.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_suffix(".json")
# sha256 of the comma-joined sorted official ids of the labelled images, first 16 digits
CUB_LABELLED = "ce33b7cc19f10e86"


def cub_images(splits: Path) -> tuple[list[tuple[str, str]], set[str]]:
    """(file, class) of the training images in official order, and the known classes."""
    lists = splits / "cub"
    rows = {name: dict(line.split() for line in (lists / name).read_text().splitlines())
            for name in ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")}  # fmt: skip
    ids = [i for i in rows["images.txt"] if rows["train_test_split.txt"][i] == "1"]
    images = [(rows["images.txt"][i], rows["classes.txt"][rows["image_class_labels.txt"][i]]) for i in ids]
    known_ids = json.loads((splits / "classes.json").read_text())["cub"]["known"]
    known = {rows["classes.txt"][str(k + 1)] for k in known_ids}
    labelled = sorted(int(ids[p]) for p in labelled_positions(images, known))
    found = hashlib.sha256(",".join(map(str, labelled)).encode()).hexdigest()[:16]
    if found != CUB_LABELLED:
        raise SystemExit(f"the CUB split is not the published one: {found}, expected {CUB_LABELLED}")
    return images, known


def flowers_images(archive: Path) -> tuple[list[tuple[str, str]], set[str]]:
    """No published split: the first 51 class ids are known."""
    with zipfile.ZipFile(archive) as content:
        files = sorted(name for name in content.namelist() if name.endswith(".jpg"))
    images = [(file, file.split("/")[0]) for file in files]
    return images, set(sorted({label for _, label in images})[:51])


def labelled_positions(images: list[tuple[str, str]], known: set[str]) -> list[int]:
    """The published draw: half of the known classes' images, pooled, in native order, legacy seed 0."""
    pool = [p for p, (_, label) in enumerate(images) if label in known]
    draw = np.random.RandomState(0).choice(len(pool), int(0.5 * len(pool)), replace=False)
    return [pool[k] for k in draw]


def lay_out(dataset: str, data: Path, splits: Path, target: Path) -> tuple[Path, Path, int]:
    """A folder as `newfound discover` takes it, the truth beside it, and the number of classes."""
    archive = data / {"cub": "cub_train_160.zip", "flowers": "flowers_train_128.zip"}[dataset]
    images, known = cub_images(splits) if dataset == "cub" else flowers_images(archive)
    labelled, truth = set(labelled_positions(images, known)), []
    with zipfile.ZipFile(archive) as content:
        for position, (file, label) in enumerate(images):
            name = f"{label if position in labelled else 'unlabelled'}/{position:05d}.jpg"
            (target / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            (target / "images" / name).write_bytes(content.read(file))
            truth.append((name, label))
    with open(target / "truth.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *truth])
    return target / "images", target / "truth.csv", len({label for _, label in images})


def run(images: Path, truth: Path, classes: int, seed: int, extra: list[str], work: Path) -> dict[str, object]:
    out, banks = work / f"run-{seed}", work / "banks"
    command = [sys.executable, "-m", "newfound", "discover", str(images), "--classes", str(classes), *extra]
    command += ["--seed", str(seed), "--truth", str(truth), "--out", str(out), "--bank-dir", str(banks)]
    shutil.rmtree(out, ignore_errors=True)
    megabytes_before, started = bank_megabytes(banks), time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    seconds = time.perf_counter() - started
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    metrics = json.loads((out / "metrics.json").read_text())
    return {
        "seed": seed,
        **{name: value for name, value in metrics.items() if isinstance(value, (int, float))},
        "empty_classes": log[-1]["empty_classes"],
        "epochs": [len([line for line in log if line["stage"] == stage]) for stage in (1, 2)],
        "seconds_per_epoch": round(statistics.median(entry["seconds"] for entry in log), 2),
        "seconds_training": round(sum(entry["seconds"] for entry in log), 1),
        "seconds_in_all": round(seconds, 1),
        "bank_megabytes_built": bank_megabytes(banks) - megabytes_before,
        "peak_memory_megabytes": round(usage.ru_maxrss / 1e3),
    }


def bank_megabytes(banks: Path) -> int:
    return round(sum(file.stat().st_size for file in banks.rglob("*.f16")) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=["cub", "flowers"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, help="work here and keep everything")
    args, extra = parser.parse_known_args()
    if not args.data.is_dir():
        raise SystemExit(f"skipped: {args.data} is not here, and the images are not ours to distribute")
    work = args.keep or Path(tempfile.mkdtemp())
    laid_out = lay_out(args.dataset, args.data, args.splits, work)
    rows = [run(*laid_out, seed, extra, work) for seed in args.seeds]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[" ".join([args.dataset, *extra])] = {
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores, no GPU",
        "runs": rows,
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    for group in ("all", "old", "new", "kmeans_all", "kmeans_old", "kmeans_new"):
        values = [100 * float(str(row[group])) for row in rows]
        print(f"{group:12} {statistics.mean(values):5.1f} ± {statistics.pstdev(values):.1f}")
    if not args.keep:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
