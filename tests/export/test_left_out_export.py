"""Exports of a run that leaves images out: they are none of these, and have no class."""

import json

import pytest

from helping.exporting import rows
from helping.small_runs import run_with_images_left_out
from newfound import Discovery
from newfound.export import export_csv, export_folders, export_label_studio, export_parquet
from newfound.finished.classes import columns_of


@pytest.fixture
def left_out(tmp_path):
    return run_with_images_left_out(tmp_path).run.path


def test_table(left_out, tmp_path):
    export_csv(left_out, tmp_path / "a.csv")
    unlabelled, labelled = rows(tmp_path / "a.csv")[25], rows(tmp_path / "a.csv")[20]
    assert (unlabelled["label"], unlabelled["decided_by"]) == ("", "model")
    assert (unlabelled["model_class"], unlabelled["confidence"]) == ("none of these", "")
    assert (labelled["label"], labelled["model_class"]) == ("cat", "none of these")


def test_parquet(left_out, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export_parquet(left_out, tmp_path / "a.parquet")
    row = parquet.read_table(tmp_path / "a.parquet").slice(25, 1).to_pylist()[0]
    assert (row["class"], row["is_new"], row["model_class"]) == (None, None, "none of these")
    assert (row["model_is_new"], row["confidence"], row["runner_up"]) == (None, None, "cat")


def test_folders(left_out, tmp_path):
    found = export_folders(left_out, tmp_path / "sorted")
    assert set(found.names.values()) == {"cat", "new-1", "none of these"}
    assert len(list((tmp_path / "sorted" / "none of these").iterdir())) == 6


def test_label_studio(left_out, tmp_path):
    export_label_studio(left_out, tmp_path / "a.json")
    task = json.loads((tmp_path / "a.json").read_text())[25]
    assert task["data"]["class"] == "none of these"
    assert task["predictions"][0]["result"][0]["value"] == {"choices": ["none of these"]}
    assert '<Choice value="none of these"/>' in (tmp_path / "a-config.xml").read_text()


def test_python(left_out):
    found = Discovery.load(left_out)
    assert [(c.name, c.size) for c in found.classes] == [("cat", 10), ("new-1", 10)]
    assert "6 none of these" in repr(found)
    table = columns_of(found.results)
    assert (table["class"][25], table["model_class"][25], table["is_new"][25]) == (None, "none of these", False)
