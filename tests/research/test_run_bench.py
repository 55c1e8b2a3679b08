"""The published protocol end to end, on a small folder with a class list."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helping.pictures import write_class_folders
from newfound.errors import UserError
from newfound.research.datasets import load_benchmark
from newfound.research.datasets.image_table import table_of, truth_of
from newfound.research.markdown import table
from newfound.research.run_bench import bench, markdown, summary
from newfound.research.run_study import study
from newfound.research.seed_statistics import deviation
from newfound.runs.consensus_answer import consensus_of
from newfound.runs.results import read_results
from newfound.settings import Settings

pytestmark = pytest.mark.usefixtures("small_projector")

FAST = {"epochs": 2, "image_size": 32, "bank_views": 2, "batch_size": 12}


@pytest.fixture
def folder(tmp_path):
    return write_class_folders(tmp_path)


def test_training_sees_labels_and_scoring_the_truth(folder):
    benchmark = load_benchmark("folder", folder[0], lists=folder[1])
    table, truth = table_of(benchmark, folder[0]), truth_of(benchmark)
    assert table.class_names == ("red", "green")  # in the order of the list, as published code counts
    assert table.n_labelled == 6
    assert sorted(np.unique(table.labels)) == [-1, 0, 1]
    assert truth.names == ("red", "green", "yellow", "blue")
    assert len(truth.images) == 18
    assert not set(truth.images) & set(benchmark.labelled)
    assert truth.known.sum() == 6
    assert table.open(0).size == (40, 40)
    names = [truth.names[k] for k in truth.classes]
    assert names == [benchmark.files[i].split("/")[0] for i in truth.images]


def test_seeds_are_run_reported_and_not_run_again(folder, tmp_path):
    settings = Settings(**FAST)
    report = bench("folder", folder[0], settings, lists=folder[1], seeds=[0, 1], out=tmp_path / "out")
    assert report["seeds"] == [0, 1]
    for seed in (0, 1):
        metrics = json.loads((tmp_path / "out" / f"seed-{seed}" / "metrics.json").read_text())
        assert report["numbers"]["all"]["runs"][seed] == pytest.approx(100 * metrics["all"], abs=0.01)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| main: one matching over all images | " in text
    answer = consensus_of([read_results(tmp_path / "out" / f"seed-{seed}") for seed in (0, 1)])
    shares = truth_of(load_benchmark("folder", folder[0], lists=folder[1])).accuracy(answer.classes)
    assert report["consensus"] == {
        "unanimous": round(100 * answer.unanimous.mean(), 2),
        **{name: round(100 * share, 2) for name, share in shares.items()},
    }
    assert f"| consensus of the 2 seeds, main | {report['consensus']['all']:.1f} | " in text
    for name in ("v1", "v2b", "NMI", "ARI", "| yellow |", "put into new classes"):
        assert name in text
    log = (tmp_path / "out" / "seed-0" / "log.jsonl").read_bytes()
    again = bench("folder", folder[0], settings, lists=folder[1], seeds=[0, 1], out=tmp_path / "out")
    assert again == report
    assert (tmp_path / "out" / "seed-0" / "log.jsonl").read_bytes() == log


def test_a_reading_is_called_one_in_the_report(folder, tmp_path):
    settings = Settings(method="rss", **FAST)
    report = bench("folder", folder[0], settings, lists=folder[1], seeds=[0], out=tmp_path / "out")
    assert report["reading"].startswith("rss is a reading of its paper")
    assert "consensus" not in report  # of one seed
    assert f"**{report['reading']}**" in (tmp_path / "out" / "report.md").read_text()


def test_other_settings_do_not_mix_with_earlier_runs(folder, tmp_path):
    bench("folder", folder[0], Settings(**FAST), lists=folder[1], seeds=[0], out=tmp_path / "out")
    with pytest.raises(UserError, match="epochs was 2, is 3"):
        bench("folder", folder[0], Settings(**{**FAST, "epochs": 3}), lists=folder[1], seeds=[0], out=tmp_path / "out")


def test_mean_and_spread():
    metrics = {"all": 0.5, "images_scored": 18, "confusion": {"known_as_new": 2}, "per_class": {"a|b": 0.25}}
    found = summary({0: metrics, 3: {**metrics, "all": 0.6, "confusion": {"known_as_new": 4}}})
    assert found["numbers"] == {"all": {"mean": 55.0, "std": 7.07, "runs": [50.0, 60.0]}}  # of a sample: n - 1
    assert found["confusion"] == {"known_as_new": 3.0}
    assert found["per_class"] == {"a|b": 25.0}
    confusion = {f"{g}_as_{a}": 1.0 for g in ("known", "new") for a in ("known", "new")}
    text = markdown({"dataset": "x", "seeds": [0, 3], **found, "confusion": confusion})
    assert "last epoch, mean ± sample standard deviation over seeds 0, 3." in text
    assert "| 55.0 ± 7.1 | - | - |" in text
    assert "| a\\|b | 25.0 |" in text  # a name cannot break the table
    single = summary({3: metrics})
    assert single["numbers"] == {"all": {"mean": 50.0, "std": None, "runs": [50.0]}}
    text = markdown({"dataset": "x", "seeds": [3], **single, "confusion": confusion})
    assert "last epoch, seed 3." in text
    assert "| 50.0 | - | - |" in text
    assert "±" not in text


@pytest.mark.parametrize(("seeds", "text"), [([], "at least one"), ([0, 1, 0], "--seeds has 0 more than once")])
def test_each_seed_once(folder, tmp_path, seeds, text):
    with pytest.raises(UserError, match=text):
        bench("folder", folder[0], Settings(**FAST), lists=folder[1], seeds=seeds, out=tmp_path / "out")
    with pytest.raises(UserError, match=text):
        study("components", "folder", folder[0], Settings(**FAST), lists=folder[1], seeds=seeds, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(st.lists(st.floats(0, 100), min_size=2, max_size=6))
def test_the_deviation_is_that_of_a_sample(values):
    assert deviation(values) == pytest.approx(np.std(values, ddof=1), abs=1e-9)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_no_text_breaks_a_table(header, cells):
    """Every line has as many unescaped bars as it has cells, and one more."""
    n = min(len(header), len(cells))
    lines = table(header[:n], [cells[:n]]).split("\n")
    assert len(lines) == 4
    for line in lines[:3]:
        assert re.sub(r"\\.", "", line).count("|") == n + 1
