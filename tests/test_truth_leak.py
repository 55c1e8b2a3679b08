"""The truth changes the score and nothing else, whatever it says."""

import json

import numpy as np
import pytest

from newfound import bench as bench_module
from newfound.bench import bench
from newfound.config import Settings
from newfound.discovery import discover
from newfound.report.page import read_page
from newfound.truth import Truth
from pictures import COLOURS, write_class_folders

FAST = {"epochs": 2, "image_size": 32, "bank_views": 2, "batch_size": 12}
SCORES = {"log.jsonl": {"all", "old", "new", "seconds"}, "anchors.jsonl": {"clean", "overall"}}
CREATED_BY_TRUTH = {"metrics.json"}


def poisoned(truth, random):
    """Every unlabelled image gets a class that is not its own."""
    header, *lines = truth.read_text().splitlines()
    names = list(COLOURS)
    wrong = {name: [other for other in names if other != name] for name in names}
    rows = [line.split(",") for line in lines]
    return "\n".join([header, *(f"{file},{random.choice(wrong[label])}" for file, label in rows)]) + "\n"


def all_files(run):
    """Every byte of a run that may not depend on the truth, and the page without its scores."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if not path.is_file() or name in CREATED_BY_TRUTH:
            continue
        if path.name in SCORES:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{k: v for k, v in line.items() if k not in SCORES[path.name]} for line in lines]
        elif name == "report.html":
            found[name] = without_scores(*read_page(path))
        else:
            found[name] = path.read_bytes()
    return found


def without_scores(content, thumbnails):
    del content["metrics"]
    content["summary"] = [line for line in content["summary"] if "Measured against the true classes" not in line]
    content["anchors"] = [
        {k: v for k, v in line.items() if k not in SCORES["anchors.jsonl"]} for line in content["anchors"]
    ]
    return content, thumbnails


@pytest.mark.parametrize("method", ["sdas", "gcd"])
def test_a_poisoned_truth_changes_no_byte(folder, tmp_path, method):
    """The number of classes is counted, anchors are chosen, the page is written; only the scores differ."""
    images, truth = folder
    truths = {"none": None, "true": truth}
    for i in range(2):
        truths[f"poisoned-{i}"] = tmp_path / f"poisoned-{i}.csv"
        truths[f"poisoned-{i}"].write_text(poisoned(truth, np.random.default_rng(i)))
    runs = {
        name: discover(images, Settings(method=method, **FAST), out=tmp_path / name / "run", truth=path)
        for name, path in truths.items()
    }
    expected = all_files(runs["none"].run)
    assert {"assignments.csv", "class_count.json", "model.safetensors", "report.html"} <= expected.keys()
    for name, found in runs.items():
        assert all_files(found.run) == expected, name
    assert runs["none"].metrics is None
    assert runs["true"].metrics["all"] != runs["poisoned-0"].metrics["all"]


def test_a_poisoned_benchmark_changes_no_byte(tmp_path, monkeypatch):
    """Here the truth comes with the images: class folders of which some are hidden."""
    root, lists = write_class_folders(tmp_path)
    real = bench_module.truth_of

    def shuffled(benchmark):
        truth: Truth = real(benchmark)
        order = np.random.default_rng(0).permutation(len(truth.images))
        return Truth(truth.images, truth.classes[order], truth.known[order], truth.untold, truth.names)

    settings = Settings(method="sdas", **FAST)
    honest = bench("folder", root, settings, lists=lists, seeds=[0], out=tmp_path / "honest")
    monkeypatch.setattr(bench_module, "truth_of", shuffled)
    lied_to = bench("folder", root, settings, lists=lists, seeds=[0], out=tmp_path / "lied to")
    assert honest["numbers"] != lied_to["numbers"]
    assert all_files(tmp_path / "honest" / "seed-0") == all_files(tmp_path / "lied to" / "seed-0")
