"""A run as a Parquet table."""

import json
import os
import shutil

import numpy as np
import pytest

from helping.exporting import HOSTILE, rows
from newfound.errors import UserError
from newfound.export import export_parquet
from newfound.export.reviewed_run import NOT_A_CLASS_NAME, plain
from newfound.runs.results import read_results


def read_parquet(path):
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(path)


def test_parquet_says_what_the_run_says(run, tmp_path):
    out = export_parquet(run, tmp_path / "t.parquet")
    table = read_parquet(out.file)
    assert table.num_rows == out.rows == len(read_results(run))
    assert tuple(table.column_names) == out.columns
    for row, assigned in zip(table.to_pylist(), rows(run / "assignments.csv"), strict=True):
        assert row["file"] == plain(assigned["file"])
        assert row["file_bytes"] == os.fsencode(assigned["file"])
        assert row["given_label"] == (assigned["given_label"] or None)
        assert row["class"] == row["model_class"] == assigned["class"]
        assert row["is_new"] == row["model_is_new"] == (assigned["is_new"] == "true")
        assert row["confidence"] == float(assigned["confidence"])
        assert row["runner_up"] == assigned["runner_up"]
        assert row["verdict"] is None
        assert row["placed"] is False
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[1280]"
    embeddings = np.array(table["embedding"].to_pylist())
    np.testing.assert_array_equal(embeddings, np.load(run / "embeddings.npy"))
    about = json.loads(table.schema.metadata[b"newfound"])
    assert [item["name"] for item in about["classes"]] == about["model_classes"] == ["green", "red", "new-1", "new-2"]
    assert sum(item["size"] for item in about["classes"]) == table.num_rows


def test_parquet_follows_the_decisions(reviewed, run, tmp_path):
    table = read_parquet(export_parquet(run, tmp_path / "t.parquet").file)
    for i, row in enumerate(table.to_pylist()):
        rejected = reviewed.verdict[i] < 0
        assert row["class"] == (None if rejected else reviewed.names.get(int(reviewed.class_of[i])))
        assert row["rejected_from"] == ("red" if rejected else None)
        assert row["verdict"] == {0: None, 1: "accepted", -1: "rejected"}[int(reviewed.verdict[i])]
        assert row["placed"] == reviewed.placed[i]
        assert row["model_class"] == reviewed.results.assignment.class_names[reviewed.results.assignment.classes[i]]
        assert row["is_new"] == {None: None, HOSTILE: False, "red": False, NOT_A_CLASS_NAME: True}[row["class"]]
    about = json.loads(table.schema.metadata[b"newfound"])
    nowhere = [row["verdict"] for row in table.to_pylist() if row["class"] is None]
    assert (about["not_a_class"], about["rejected"]) == (nowhere.count(None), nowhere.count("rejected"))
    assert about["not_a_class"] > 0
    assert about["rejected"] == 1
    assert sum(item["size"] for item in about["classes"]) + len(nowhere) == table.num_rows


def test_plain_names_need_no_column_of_bytes(made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    table = (tmp_path / "run" / "assignments.csv").read_bytes().replace(b"caf\xe9", b"caf")
    (tmp_path / "run" / "assignments.csv").write_bytes(table)
    assert "file_bytes" not in export_parquet(tmp_path / "run", tmp_path / "t.parquet").columns


def test_parquet_in_blocks_is_the_same_table(run, tmp_path, monkeypatch):
    whole = read_parquet(export_parquet(run, tmp_path / "whole.parquet").file)
    monkeypatch.setattr("newfound.export.parquet.ROWS", 7)
    assert read_parquet(export_parquet(run, tmp_path / "blocks.parquet").file).equals(whole)


@pytest.mark.parametrize(
    ("content", "text"),
    [(np.zeros((3, 4), np.float16), "has 3 rows"), (np.full((16, 2), "a"), "instead of numbers"),
     (np.ones((16, 0), np.float16), "not a row of numbers"), (np.full((26, 2), np.inf), "not finite"),
     (b"nothing", "is damaged"), (b"", "is damaged")],
)  # fmt: skip
def test_damaged_embeddings_are_named(run, tmp_path, content, text):
    if isinstance(content, bytes):
        (run / "embeddings.npy").write_bytes(content)
    else:
        np.save(run / "embeddings.npy", content)
    with pytest.raises(UserError, match=rf"embeddings\.npy .*{text}"):
        export_parquet(run, tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()
