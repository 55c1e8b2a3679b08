"""Methods for which no code is public: wherever their results are shown, that is said."""

import csv
import io
import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.utils.estimator_checks import estimator_checks_generator

from helping import hostile
from helping.groups import CLASSES, LABELS, N
from helping.groups import SOURCE as SAMPLES
from helping.pictures import write_folder
from helping.quick_discovery import FAST, discover
from helping.small_runs import write_run
from newfound import CategoryDiscovery, Discovery
from newfound.app.commands.discover import show_discovery
from newfound.app.tables import show_report
from newfound.estimator_settings import warn_once
from newfound.export import export_csv, export_folders, export_label_studio, export_parquet, export_xlsx
from newfound.export.onnx_model import _metadata
from newfound.finished.classes import columns_of
from newfound.methods import METHODS, load, reading_note
from newfound.report.content import summary
from newfound.report.findings import Findings
from newfound.research.run_bench import markdown
from newfound.runs.labelling import predict
from newfound.runs.model import load_model
from newfound.runs.results import read_results
from newfound.screen import Screen
from newfound.settings import Settings

READINGS = ["rss", "mugcd"]
CONFUSION = dict.fromkeys(("known_as_known", "known_as_new", "new_as_known", "new_as_new"), 0)
REPORT = {"dataset": "folder", "seeds": [0], "numbers": {}, "confusion": CONFUSION, "per_class": {}}


def note_of(method):
    return f"{method} is a reading of its paper, for which no code is public: its results are no reproduction"


def shown(show, what):
    written = io.StringIO()
    show(what, Screen(Console(file=written, width=200)))
    return written.getvalue()


def small_run(method, folder):
    """A finished run of three images, without a model."""
    return write_run(folder, ["a.png", "b.png", "c.png"], [0, 1, 1], ("a", "b"), 1, given=[0, -1, -1], method=method)


def places(method, folder):
    """What a person reads of a run: on the screen, in the report, in Python, and as a row of a benchmark."""
    results = small_run(method, folder)
    note = reading_note(Settings(method=method))
    report = {**REPORT, "reading": note} if note else REPORT
    found = Discovery.load(results.run.path)
    sentences = " ".join(summary(results, Findings([], [], [])))
    return [shown(show_discovery, found), sentences, repr(found), found._repr_html_(), markdown(report),
            shown(show_report, report)]  # fmt: skip


@pytest.mark.parametrize("method", READINGS)
def test_a_reading_is_called_one_wherever_results_are_shown(method, tmp_path):
    assert [note_of(method) in place for place in places(method, tmp_path)] == [True] * 6
    assert "reading" in load(method).SOURCE  # which newfound methods prints


def test_other_methods_are_not(tmp_path):
    assert not any("reading of its paper" in place for place in places("simgcd", tmp_path))
    assert [name for name in METHODS if reading_note(Settings(method=name))] == ["mugcd", "rss"]


@pytest.mark.parametrize("method", METHODS)
def test_help_and_lists_say_it(method, newfound):
    """Both print this line."""
    assert load(method).ABOUT.endswith("(a reading: no code is public).") == (method in READINGS)


def test_help_says_it(newfound):
    answer = newfound("discover", "--method", "rss", "--help")
    assert "(a reading: no code is public)" in " ".join(answer.out.replace("│", " ").split())


# Tables


def marked(rows):
    """What the rows of a table say of being a reading."""
    return {row.get("reading") for row in rows}


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("method", ["rss", "simgcd"])
def test_exported_tables_have_a_column_for_it(method, tmp_path):
    run, is_reading = small_run(method, tmp_path).run.path, method == "rss"
    export_csv(run, tmp_path / "labels.csv")
    export_folders(run, tmp_path / "copies")
    for path in (tmp_path / "labels.csv", tmp_path / "copies" / "files.csv", tmp_path / "copies" / "classes.csv"):
        assert marked(read_csv(path)) == {"true" if is_reading else None}
    assert ("reading" in columns_of(read_results(run))) == is_reading
    export_label_studio(run, tmp_path / "tasks.json")
    version = json.loads((tmp_path / "tasks.json").read_text())[0]["predictions"][0]["model_version"]
    assert ("a reading of a paper without public code" in version) == is_reading


@pytest.mark.parametrize("method", ["rss", "simgcd"])
def test_an_exported_workbook_has_it(method, tmp_path):
    from zipfile import ZipFile

    export_xlsx(small_run(method, tmp_path).run.path, tmp_path / "labels.xlsx")
    with ZipFile(tmp_path / "labels.xlsx") as file:
        assert (b">reading<" in file.read("xl/worksheets/sheet1.xml")) == (method == "rss")


@pytest.mark.parametrize("method", ["rss", "simgcd"])
def test_an_exported_parquet_table_has_it(method, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export_parquet(small_run(method, tmp_path).run.path, tmp_path / "t.parquet")
    table, mark = parquet.read_table(tmp_path / "t.parquet"), True if method == "rss" else None
    assert marked(table.to_pylist()) == {mark}
    assert json.loads(table.schema.metadata[b"newfound"]).get("reading") == mark


# The model


@pytest.fixture(scope="module", params=["rss", "simgcd"])
def trained(request, tmp_path_factory):
    """A method and a run of it on a small folder of pictures."""
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        hostile.make_quick(patch)
        settings = Settings(4, request.param, **{**FAST, "epochs": 1}, bank_dir=root / "bank")
        discover(write_folder(root, each=4)[0], settings, out=root / "run")
        yield request.param, root


def test_predictions_of_the_model_alone_say_it(trained, newfound, tmp_path):
    method, root = trained
    for name in ("model.json", "model.safetensors"):
        shutil.copy(root / "run" / name, tmp_path)
    answer = newfound("predict", tmp_path, root / "images", "--out", tmp_path / "table.csv")
    answer.check_done()
    assert (note_of(method) in answer.out) == ("reading" in answer.out) == (method == "rss")
    assert marked(read_csv(tmp_path / "table.csv")) == {"true" if method == "rss" else None}


def test_an_exported_graph_says_it(trained):
    method, root = trained
    about = _metadata(load_model(root / "run"), tuple("abcd"), torch.eye(4))
    assert about.get("reading") == (json.dumps(note_of(method)) if method == "rss" else None)


def test_a_model_of_an_earlier_version_opens_without_it(trained, tmp_path):
    method, root = trained
    for name in ("model.json", "model.safetensors"):
        shutil.copy(root / "run" / name, tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    assert (description.pop("reading", None) == note_of(method)) == (method == "rss")
    (tmp_path / "model.json").write_text(json.dumps(description))
    assert load_model(tmp_path).reading == ""
    assert predict(tmp_path, root / "images").marks == []


# The estimator


def estimator(method):
    return CategoryDiscovery(CLASSES, method=method, epochs=1, batch_size=60, random_state=0,
                             settings={"projector_width": 32})  # fmt: skip


def test_the_estimator_warns_once_where_it_is_fitted():
    X = SAMPLES.evaluation(np.arange(N)).numpy()
    warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            estimator("rss").fit(X, LABELS).predict(X)
        estimator("simgcd").fit(X, LABELS)
    ours = [item for item in caught if "reading" in str(item.message)]
    assert [(str(item.message), item.category, item.filename) for item in ours] == [
        (note_of("rss"), UserWarning, __file__)
    ]


@pytest.mark.filterwarnings("ignore:rss is a reading")
def test_scikit_learns_checks_pass_with_the_warning():
    """Those that fit: the others are the same for all methods (tests/test_estimator.py)."""
    wanted = ("check_fit_idempotent", "check_fit2d_1sample", "check_estimators_pickle", "check_n_features_in")
    checks = [
        (model, check)
        for model, check in estimator_checks_generator(CategoryDiscovery(method="rss", epochs=1))
        if check.func.__name__ in wanted
    ]
    assert len(checks) >= len(wanted)
    for model, check in checks:
        check(model)
