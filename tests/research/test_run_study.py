"""A table of the paper on a small folder; and what its rows mean."""

import csv
import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from helping.pictures import write_class_folders
from newfound import fitting, methods
from newfound.app.commands.bench import Dataset
from newfound.app.commands.study import StudyName
from newfound.class_count import count_classes
from newfound.errors import UserError
from newfound.hessian import Spectrum
from newfound.methods import decide, with_own
from newfound.research import study_runs as runner_module
from newfound.research.datasets import DATASETS, load_benchmark
from newfound.research.datasets.image_table import table_of
from newfound.research.figures import FIGURES
from newfound.research.figures import hessian as hessian_figure
from newfound.research.figures.tsne import tsne
from newfound.research.run_bench import as_published, prepare
from newfound.research.run_study import study
from newfound.research.stored_json import read_class_count, read_memory, read_metrics, read_spectrum
from newfound.research.studies import STUDIES, Row, Study
from newfound.research.study_runs import facts_of, first_training, folder_name, settings_of
from newfound.research.study_table import Result, study_markdown
from newfound.runs.folder import RunFolder
from newfound.screen import Screen
from newfound.settings import METHODS, Settings

pytestmark = pytest.mark.usefixtures("small_projector")

FAST = {"epochs": 1, "image_size": 32, "bank_views": 2, "batch_size": 12}


@pytest.fixture
def folder(tmp_path):
    return write_class_folders(tmp_path)


@pytest.fixture
def table(folder):
    return table_of(load_benchmark("folder", folder[0], lists=folder[1]), folder[0])


def test_the_command_names_every_study_and_data_set():
    assert get_args(StudyName) == (*STUDIES, *FIGURES)
    assert get_args(Dataset) == DATASETS


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_is_a_run_that_makes_sense(name, table):
    names = [row.name for row in STUDIES[name].rows]
    assert len(set(names)) == len(names)
    folders = set()
    for row in STUDIES[name].rows:
        base = Settings(4, backbone="dino_vitb16", **{**FAST, "epochs": 60})  # as of the command
        settings = settings_of(row, base, table, estimated=5)
        folders.add(folder_name(settings, facts_of(table, settings.classes)))
        for numbers in row.paper.values():
            assert all(0 < value < 100 for value in numbers)
            assert min(numbers[1:]) <= numbers[0] <= max(numbers[1:])  # All lies between Old and New
        for clean, overall in row.paper_anchors.values():
            assert 0 < clean <= overall
    assert len(folders) == len(names)  # no two rows are the same run


def test_rows_that_follow_the_data(table):
    base = Settings(4, **{**FAST, "epochs": 60})
    eta = {row.name: settings_of(row, base, table).method.anchors_per_class for row in STUDIES["eta"].rows}
    assert eta == {"0.25": 1.0, "0.5": 1.5, "1": 3.0, "1.5": 4.5}  # three labelled images per class; at least one
    alpha = {row.name: settings_of(row, base, table).method.alpha for row in STUDIES["alpha"].rows}
    assert alpha == {"1": 1, "5": 2, "10": 3, "20": 6, "30": 9}


def test_a_first_training_is_shared_where_it_is_the_same(table):
    base = Settings(4, **FAST)
    rows = {row.name: settings_of(row, base, table) for name in ("components", "beta") for row in STUDIES[name].rows}
    facts = facts_of(table, 4)

    def name_of_first(row):
        return folder_name(first_training(rows[row], facts), facts)

    assert name_of_first("+ LSP + DAS (ours)") == folder_name(rows["+ LSP"], facts)
    assert name_of_first("+ DAS") == folder_name(rows["SimGCD"], facts)
    assert name_of_first("0.3") == folder_name(rows["+ LSP"], facts)
    assert first_training(rows["+ LSP"], facts) is None


def test_a_run_is_named_by_what_differs_from_the_defaults(table):
    """So a setting that is added later renames no finished run."""
    facts = facts_of(table, 4)
    usual = decide(as_published(Settings(4, method="simgcd", seed=2)), facts)
    assert folder_name(usual, facts) == "simgcd-s2-k4"
    assert folder_name(decide(replace(usual, method="simgcd", device="cpu", bank_dir="elsewhere"), facts), facts) == (
        "simgcd-s2-k4"
    )
    for changes in ({"supervised_weight": 0.5}, {"label_balance": 0.5}, {"whitening": "auto"}, {"frozen_views": "all"}):
        other = decide(with_own(usual, changes), facts)
        assert folder_name(other, facts).startswith("simgcd-s2-k4-")


@pytest.mark.parametrize("method", ["simgcd", "uno", "sdas"])
def test_names_do_not_depend_on_the_device_that_resumes_a_study(table, monkeypatch, method):
    """The published length and UNO's five heads are the defaults of a GPU: other runs than those of a CPU."""
    facts, asked = facts_of(table, 4), Settings(4, method=method, seed=2)
    on_cpu = decide(as_published(replace(asked, device="cpu")), facts)
    monkeypatch.setattr(methods, "resolve_device", lambda wanted: "cuda" if wanted == "auto" else wanted)
    on_gpu = decide(as_published(asked), facts)
    assert (on_cpu.epochs, on_gpu.epochs) == (60, 200)
    assert folder_name(on_cpu, facts) == f"{method}-s2-k4"
    assert folder_name(on_gpu, facts).startswith(f"{method}-s2-k4-")
    as_on_cpu = replace(on_gpu, epochs=60, method=on_cpu.method)
    assert folder_name(as_on_cpu, facts) == folder_name(on_cpu, facts)


@pytest.mark.parametrize("base", [{"method": "sdas"}, {"method": "kmeans"}, {"method": "orca"}, {"label_balance": 1}])
def test_rows_draw_labelled_images_as_published_unless_another_balance_is_asked_for(table, base):
    """Whatever the default on somebody's own folder is; a row whose method has no balance is not given one."""
    rows = STUDIES["methods"].rows
    chosen = Settings(4, **FAST, **base)
    balances = {row.settings["method"]: settings_of(row, chosen, table).label_balance for row in rows}
    without = ("kmeans", "hdbscan", "orca")
    assert balances == {name: None if name in without else base.get("label_balance", 0) for name in balances}


@pytest.mark.parametrize(
    "base", [{"method": "sdas"}, {"method": "kmeans"}, {"whitening": "auto", "frozen_views": "all"}]
)
def test_rows_use_features_as_published_unless_asked_otherwise(table, base):
    rows = STUDIES["methods"].rows
    found = [settings_of(row, Settings(4, **FAST, **base), table) for row in rows]
    assert {settings.whitening for settings in found} == {base.get("whitening", "none")}
    assert {settings.frozen_views for settings in found} == {base.get("frozen_views", "one")}


@pytest.mark.parametrize(("name", "balance"), [("simgcd", 0.0), ("orca", None), ("kmeans", None)])
def test_a_benchmark_draws_labelled_images_as_published(folder, name, balance):
    chosen = Settings(method=name)
    _, table, settings = prepare("folder", folder[0], folder[1], chosen, (0,), Screen(quiet=True))
    facts = facts_of(table, settings.classes)
    assert decide(settings, facts).label_balance == balance
    assert decide(settings, facts).whitening == "none"
    assert decide(settings, facts).frozen_views == "one"
    if balance is not None:
        assert decide(chosen, facts).label_balance > 0  # on somebody's own folder
        asked_for = prepare("folder", *folder[:2], replace(chosen, label_balance=0.3), (0,), Screen(quiet=True))[2]
        assert asked_for.label_balance == 0.3


def test_a_study_runs_each_training_once_and_resumes(folder, tmp_path, monkeypatch):
    arguments = ("components", "folder", folder[0], Settings(**FAST))
    options = {"lists": folder[1], "seeds": [0], "out": tmp_path / "out"}
    done = []
    discover = runner_module.discover_table

    def interrupted(table, settings, run, **rest):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(settings)
        return discover(table, settings, run, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(runner_module, "discover_table", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study(*arguments, **options)
    text = study(*arguments, **options)
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4  # two first trainings serve two runs each
    for name in ("SimGCD", "+ LSP", "+ DAS", "+ LSP + DAS (ours)"):
        assert f"| {name} | " in text
    with open(tmp_path / "out" / "components.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines] == [row.name for row in STUDIES["components"].rows]
    assert (tmp_path / "out" / "components.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "out" / "components.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(runner_module, "discover_table", None)  # nothing is left to run
    assert study(*arguments, **options) == text
    study("anchors", *arguments[1:], **options)  # another table of the same runs
    text = study("tsne", *arguments[1:], **options)
    assert "| SimGCD | " in text
    monkeypatch.setattr(hessian_figure, "HESSIAN", {"steps": 3, "samples": 1, "trace_samples": 2})
    text = study("hessian", *arguments[1:], **options)
    assert "| SimGCD + DAS | " in text
    kept = list((tmp_path / "out" / "runs").glob("*/hessian.json"))
    assert len(kept) == 2
    monkeypatch.setattr(hessian_figure, "hessian_spectrum", None)  # not computed again
    assert study("hessian", *arguments[1:], **options) == text
    text = study("time", *arguments[1:], **options)
    assert "| SimGCD + LSP + DAS (ours) | " in text
    assert "| 131 h | 9.2 h | 2.94 | 2.56 |" in text
    for name in ("tsne.pdf", "tsne.png", "tsne-all.png", "hessian.pdf", "hessian.png", "time.pdf", "time.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000


def test_every_method_has_a_row_in_the_study_of_methods():
    assert {row.settings["method"] for row in STUDIES["methods"].rows} == set(METHODS)


@pytest.mark.long
def test_every_method_is_in_the_table_of_methods(folder, tmp_path):
    options = {"lists": folder[1], "seeds": [0], "out": tmp_path / "out"}
    text = study("methods", "folder", folder[0], Settings(**FAST), **options)
    for row in STUDIES["methods"].rows:
        assert f"| {row.name} | " in text
    runs = [path.name.split("-")[0] for path in (tmp_path / "out" / "runs").iterdir()]
    assert runs.count("kmeans") == 1  # nothing to start
    assert runs.count("legogcd") == 2  # from random directions and from clusters
    assert runs.count("simgcd") == 4  # ours has first trainings of its own, with LSP
    assert runs.count("gcd") == 2  # one of them serves μGCD as its first training


@pytest.mark.long
def test_the_number_of_classes_can_be_estimated(folder, tmp_path, monkeypatch):
    counted = []

    def count(features, labels, **rest):
        counted.append(features.shape)
        return replace(count_classes(features, labels, **rest), best=5)

    monkeypatch.setattr(fitting, "count_classes", count)
    options = {"lists": folder[1], "seeds": [0], "out": tmp_path / "out"}
    text = study("class-count", "folder", folder[0], Settings(**FAST), **options)
    assert "There are 4." in text
    assert study("class-count", "folder", folder[0], Settings(**FAST), **options) == text
    assert len(counted) == 1  # once and for all
    stored_count = tmp_path / "out" / "runs" / "class_count.json"
    whole = stored_count.read_text()
    stored_count.write_text(whole[:20])
    with pytest.raises(UserError, match=r"class_count\.json is damaged"):
        study("class-count", "folder", folder[0], Settings(**FAST), **options)
    stored_count.write_text(whole)
    with pytest.raises(UserError, match="--classes cannot be used"):
        study("class-count", "folder", folder[0], Settings(4, **FAST), **options)
    runs = [path for path in (tmp_path / "out" / "runs").iterdir() if path.is_dir()]
    used = sorted(RunFolder(path).settings().classes for path in runs)
    assert used == [4] * 4 + [5] * 4  # GCD, SimGCD, ours and its first training, with either number


def test_neighbours_stay_together_in_two_dimensions():
    random = np.random.default_rng(0)
    centres = random.normal(size=(3, 16))
    features = np.repeat(centres, 20, axis=0) + 0.1 * random.normal(size=(60, 16))
    places = tsne(features.astype(np.float32))
    assert np.array_equal(places, tsne(features.astype(np.float32)))
    middles = np.array([places[20 * k : 20 * k + 20].mean(axis=0) for k in range(3)])
    nearest = np.linalg.norm(places[:, None] - middles, axis=2).argmin(axis=1)
    assert np.array_equal(nearest, np.repeat([0, 1, 2], 20))


def test_the_papers_numbers_stand_beside_ours():
    rows = (Row("DAS", {}, {"cub": (69.0, 69.1, 68.9)}, {"cub": (1140, 1443)}), Row("none", {}))
    metrics = {"all": 0.5, "old": 0.25, "new": 0.75}
    results = [Result("DAS", seed, {**metrics, "all": 0.5 + seed / 10}, 30, 40, 12.0, 1 + seed) for seed in (0, 1)]
    results.append(Result("none", 0, {**metrics, "new": None}, None, None, 3.0))
    text = study_markdown(Study("title", rows, anchors=True), "cub", results)
    assert "mean ± sample standard deviation over seeds 0, 1." in text
    ours = "| DAS | 55.0 ± 7.1 | 25.0 ± 0.0 | 75.0 ± 0.0 | 75.0 ± 0.0 % of 40 | 12 | 2.0 |"
    assert f"{ours} 69.0 | 69.1 | 68.9 | 79 % of 1443 |" in text
    assert "| none | 50.0 | 25.0 | - | - | 3 | - | - | - | - | - |" in text  # one seed has no deviation


SPECTRUM = Spectrum(1, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, (2.0,), (1.0,))
METRICS = {"all": 0.5, "old": 0.5, "new": None, "nmi": 0.1, "ari": 0.1}
COUNT = {"of": [], "best": 3, "sentence": "about 3 classes"}


def stored(folder, name, content):
    """Read what a study has stored, whatever it is."""
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    if name == "metrics.json":
        return read_metrics(folder)
    readers = {"class_count.json": read_class_count, "memory.json": read_memory, "hessian.json": read_spectrum}
    return readers[name](folder / name)


def test_what_a_study_stores_is_read_back(tmp_path):
    assert stored(tmp_path, "metrics.json", METRICS) == METRICS
    assert stored(tmp_path, "class_count.json", COUNT) == COUNT
    assert stored(tmp_path, "hessian.json", SPECTRUM.to_dict()) == SPECTRUM
    assert stored(tmp_path, "memory.json", {"gigabytes": 1.5}) == 1.5
    assert stored(tmp_path, "memory.json", {"gigabytes": None}) is None
    assert read_class_count(tmp_path / "nothing.json") is None
    assert read_memory(tmp_path / "nothing.json") is None
    assert read_spectrum(tmp_path / "nothing.json") is None
    with pytest.raises(UserError, match=r"metrics\.json is missing"):
        read_metrics(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["metrics.json", "class_count.json", "memory.json", "hessian.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\0", "[" * 100_000, '{"all": NaN}'])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, name, content):
    with pytest.raises(UserError, match=rf"{name} .*Delete it and run the study again"):
        stored(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.json", {**METRICS, "all": None}),
        ("class_count.json", {**COUNT, "best": 3.5}),
        ("class_count.json", {**COUNT, "sentence": None}),
        ("memory.json", {"gigabytes": "1.5"}),
        ("hessian.json", {**SPECTRUM.to_dict(), "nodes": ["a"]}),
        ("hessian.json", {**SPECTRUM.to_dict(), "nodes": None}),
        ("hessian.json", {**SPECTRUM.to_dict(), "weights": []}),
        ("hessian.json", {**SPECTRUM.to_dict(), "more": 1}),
    ],
)
def test_so_is_one_that_holds_something_else(tmp_path, name, content):
    with pytest.raises(UserError, match=rf"{name} is malformed.*Delete it and run the study again"):
        stored(tmp_path, name, content)
