"""The truth changes the score and nothing else, whatever it says."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from helping.pictures import COLOURS, write_class_folders, write_folder
from newfound.discovery import discover
from newfound.report.page import read_page
from newfound.research import run_bench as bench_module
from newfound.research.datasets import load_benchmark
from newfound.research.datasets.image_table import table_of
from newfound.research.run_bench import bench
from newfound.settings import Settings

pytestmark = pytest.mark.usefixtures("small_projector")

FAST = {"epochs": 2, "image_size": 32, "bank_views": 2, "batch_size": 12}
SCORES = {"log.jsonl": {"all", "old", "new", "seconds"}, "anchors.jsonl": {"clean", "overall"}}
CREATED_BY_TRUTH = {"metrics.json"}
COMPARED = "checkpoint/kept-kmeans.safetensors"  # scored beside the run: a truth asks for it, whatever it says


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
        elif name == "config.toml":
            found[name] = re.sub(rb"(?m)^truth = .*\n", b"", path.read_bytes())  # its place, for `newfound resume`
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


def most_anchors(run):
    """In an epoch of a run."""
    return max(json.loads(line)["anchors"] for line in (run / "anchors.jsonl").read_text().splitlines())


@pytest.mark.parametrize("method", ["sdas", "gcd"])
def test_a_poisoned_truth_changes_no_byte(tmp_path, method):
    """The number of classes is counted, anchors are chosen, the page is written; only the scores differ."""
    images, truth = write_folder(tmp_path, known=("red",), new=("green", "blue", "yellow"))  # some new ones are counted
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
    if method == "sdas":
        assert "anchors.jsonl" in expected
        assert most_anchors(runs["none"].run) > 0
    expected.setdefault(COMPARED, (runs["true"].run / COMPARED).read_bytes())
    for name, found in runs.items():
        assert {COMPARED: expected[COMPARED], **all_files(found.run)} == expected, name
    assert runs["none"].metrics is None
    assert runs["true"].metrics["all"] != runs["poisoned-0"].metrics["all"]


def with_other_classes(benchmark):
    """No unlabelled image keeps its class; all labelled ones do."""
    unlabelled, count = np.flatnonzero(benchmark.labels() < 0), len(benchmark.class_names)
    steps = np.random.default_rng(0).integers(1, count, len(unlabelled))
    classes = benchmark.classes.copy()
    classes[unlabelled] = (classes[unlabelled] + steps) % count
    return replace(benchmark, classes=classes)


def without_truth(table):
    """All that a table holds but the benchmark itself."""
    return {**vars(table), "labels": table.labels.tolist(), "benchmark": None}


def test_a_poisoned_benchmark_changes_no_byte(tmp_path, monkeypatch):
    """Here the truth comes with the images: class folders of which some are hidden."""
    root, lists = write_class_folders(tmp_path)
    right = load_benchmark("folder", root, lists=lists)
    wrong = with_other_classes(right)
    assert ((right.targets() == wrong.targets()) == (right.labels() >= 0)).all()
    assert without_truth(table_of(right, root)) == without_truth(table_of(wrong, root))

    reports = {}
    for name, benchmark in (("right", right), ("wrong", wrong)):
        monkeypatch.setattr(bench_module, "load_benchmark", lambda *_, told=benchmark, **__: told)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name / "cache"))  # each builds a bank of its own
        settings = Settings(method="sdas", **FAST)
        reports[name] = bench("folder", root, settings, lists=lists, seeds=[0], out=tmp_path / name / "out")
    expected = all_files(tmp_path / "right" / "out" / "seed-0")
    assert {"assignments.csv", "anchors.jsonl", "model.safetensors", "checkpoint/stage2.safetensors"} <= expected.keys()
    assert most_anchors(tmp_path / "right" / "out" / "seed-0") > 0
    assert all_files(tmp_path / "wrong" / "out" / "seed-0") == expected
    for name in ("dataset", "settings", "seeds"):
        assert reports["right"][name] == reports["wrong"][name]
    assert reports["right"]["numbers"] != reports["wrong"]["numbers"]
