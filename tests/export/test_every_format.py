"""What all exports have in common: what a person can fix is named, and nothing is overwritten."""

import os
import sys

import pytest

from newfound.errors import UserError
from newfound.export import (
    export_csv,
    export_folders,
    export_label_studio,
    export_onnx,
    export_parquet,
    export_xlsx,
    outputs,
)

EXPORTS = {"a.onnx": export_onnx, "a.parquet": export_parquet, "a.json": export_label_studio,
           "a.csv": export_csv, "a.xlsx": export_xlsx}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_nothing_is_overwritten(made, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        EXPORTS[name](made / "run", tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"
    with pytest.raises(UserError, match="there is no folder"):
        EXPORTS[name](made / "run", tmp_path / "nowhere" / name)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("export", [*EXPORTS.values(), export_folders])
def test_a_folder_without_a_run_is_named(tmp_path, export):
    with pytest.raises(UserError, match=str(tmp_path)):
        export(tmp_path, tmp_path / "out")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [("onnx", "a.onnx", "onnx"), ("onnxscript", "a.onnx", "onnx"), ("onnxruntime", "a.onnx", "onnx"),
     ("pyarrow", "a.parquet", "parquet")],
)  # fmt: skip
def test_a_missing_package_is_named(made, tmp_path, monkeypatch, package, name, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf'{package} .*pip install "newfound\[{extra}\]"'):
        EXPORTS[name](made / "run", tmp_path / name)
    assert not os.listdir(tmp_path)


def test_a_full_disk_leaves_nothing(made, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name in ("a.parquet", "a.json", "a.csv", "a.xlsx"):
        with pytest.raises(UserError, match="cannot be written: No space left on device"):
            EXPORTS[name](made / "run", tmp_path / name)
    assert not os.listdir(tmp_path)
    assert isinstance(outputs.cannot_write(tmp_path, OSError("x")), UserError)


@pytest.mark.parametrize("name", EXPORTS)
def test_places_may_be_strings(made, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"^{name} already exists"):
        EXPORTS[name](str(made / "run"), name)
    with pytest.raises(UserError, match=r"^out must be a path: a string"):
        EXPORTS[name](str(made / "run"), 5)


def test_exports_to_strings_are_those_to_paths(made, tmp_path):
    by_name, by_path = str(tmp_path / "a"), tmp_path / "b"
    assert export_folders(str(made / "run"), by_name).files == export_folders(made / "run", by_path).files
    assert export_label_studio(str(made / "run"), f"{by_name}.json").tasks.is_file()
    assert export_parquet(str(made / "run"), f"{by_name}.parquet").file.read_bytes()
