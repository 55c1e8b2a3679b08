"""One small run, exported in every format, with and without a person's decisions."""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from helping.pictures import picture, write_folder
from newfound.backbones import load_backbone, vit
from newfound.backbones.vit import VisionTransformer, ViTSpec
from newfound.discovery import discover
from newfound.errors import UserError
from newfound.export import (
    export_folders,
    export_label_studio,
    export_onnx,
    export_parquet,
    folders,
    onnx_model,
    outputs,
)
from newfound.export.decided import NOT_A_CLASS_NAME, distinct, plain
from newfound.export.folders import alike, safe_names
from newfound.images.views import evaluation_view, resize_shorter_side, resized_side
from newfound.runs.assignment import NONE_OF_THESE
from newfound.runs.decisions import DecisionLog
from newfound.runs.labelling import predict
from newfound.runs.model import load_model
from newfound.runs.results import read_results
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.sources.bank import run_trunk

HOSTILE = '../a/b: "shoe" <&> $x'
ODD = os.fsdecode(b"unlabelled/caf\xe9 #1&2.png")
TWIN = "unlabelled/deeper/001.png"  # a name that red/001.png has, too
FAST = {"image_size": 32, "bank_views": 2, "batch_size": 12}


class Heard(Screen):
    def __init__(self):
        super().__init__(quiet=True)
        self.lines, self.warnings = [], []

    def say(self, text):
        self.lines.append(text)

    def warn(self, text):
        self.warnings.append(text)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The embedded network, clustered: a run in two seconds."""
    root = tmp_path_factory.mktemp("made")
    images, _ = write_folder(root)
    for number, file in enumerate((ODD, TWIN)):
        (images / file).parent.mkdir(exist_ok=True)
        picture("red", 50 + number).save(images / file)
    settings = Settings(4, **FAST, method="kmeans", bank_dir=root / "bank")
    discover(images, settings, out=root / "run")
    return root


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run that a test may decide on, and of its images."""
    shutil.copytree(made / "run", tmp_path / "run")
    shutil.copytree(made / "images", tmp_path / "images")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(made / "images"), str(tmp_path / "images")))
    return tmp_path / "run"


@pytest.fixture
def reviewed(run):
    return decide_on(run)


def decide_on(run):
    """green is renamed, the first new class is merged into it, the second is dismissed; some images are judged."""
    log = DecisionLog(read_results(run))
    green, red, first, second = range(4)
    reds, dismissed = log.reviewed.members(red), log.reviewed.members(second)
    files = log.results.files
    for decision in (
        {"action": "rename", "class": green, "name": HOSTILE},
        {"action": "merge", "classes": [first], "into": green},
        {"action": "dismiss", "class": second},
        {"action": "move", "images": [files[dismissed[0]]], "to": red},
        {"action": "move", "images": [files[dismissed[1]]], "to": None, "name": NOT_A_CLASS_NAME},
        {"action": "judge", "images": [files[reds[0]]], "verdict": -1},
        {"action": "judge", "images": [files[reds[-1]]], "verdict": 1},
    ):
        log.decide(decision, log.revision)
    return log.reviewed


def rows(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


def digests(folder):
    """Of everything below: content, time and mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = os.stat(path)
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (hashlib.sha256(content).hexdigest(), status.st_mtime_ns, status.st_mode)
    return found


# Names


@given(st.lists(st.text(max_size=40), unique=True, max_size=12))
def test_different_classes_get_different_safe_folders(names):
    check_safe(safe_names(names), len(names))


@given(st.lists(st.sampled_from(
    ["", " ", ".", "..", "...", "a/b", "a\\b", "a_b", "CON", "con.txt", "nul ", "COM¹", "x" * 300, "é" * 300, "X" * 300,
     "Straße", "STRASSE", "e\u0301", "\u00e9", "É", "a.", "a ", "a", "A", ".a", "\0", "a\nb", "\u202egpj.exe", "\udcff",
     "classes.csv", "files.csv", "-rf", "~", "a-2", "ﬁ", "fi", "*", "?", "日本", "👩\u200d🔬"]
), unique=True))  # fmt: skip
def test_hostile_names_too(names):
    check_safe(safe_names(names), len(names))


def check_safe(found, n):
    assert len(found) == len({alike(name) for name in found}) == n
    for name in found:
        assert name == name.strip()
        assert not name.startswith(".")
        assert not name.endswith(".")
        assert 0 < len(name.encode("utf-8")) <= 140  # so it is UTF-8
        assert name.isprintable()
        assert not set(name) & set('<>:"/\\|?*\0')
        assert not folders.RESERVED.match(name)
        assert name.lower() not in folders.INDEX_FILES


def test_a_name_that_needs_no_change_keeps_it():
    assert safe_names(["a/b", "a_b", "cat"]) == ["a_b-2", "a_b", "cat"]


@given(st.lists(st.sampled_from(["a", "a-2", "a-3", "A", "b"]), max_size=30))
def test_numbers_never_meet_names(texts):
    found = distinct(texts, alike=str.lower)
    assert len({text.lower() for text in found}) == len(texts)


def test_many_equal_file_names_take_no_time():
    assert len(set(distinct(["001.png"] * 20_000))) == 20_000


# Folders


def test_folders_hold_copies_and_the_originals_stay(run, tmp_path):
    before = digests(tmp_path / "images") | digests(run)
    out = export_folders(run, tmp_path / "out")
    assert digests(tmp_path / "images") | digests(run) == before
    results = read_results(run)
    assert out.files == len(results) == len(rows(tmp_path / "out" / "files.csv"))
    assert not out.missing
    for row, assigned in zip(
        sorted(rows(tmp_path / "out" / "files.csv"), key=lambda row: row["file"]),
        sorted(rows(run / "assignments.csv"), key=lambda row: row["file"]),
        strict=True,
    ):
        copy, original = tmp_path / "out" / row["copy"], tmp_path / "images" / row["file"]
        assert (row["file"], row["class"]) == (assigned["file"], assigned["class"])
        assert copy.parent.name == row["class"]
        assert not copy.is_symlink()
        assert copy.read_bytes() == original.read_bytes()
        assert copy.stat().st_mtime_ns == original.stat().st_mtime_ns
    assert sum(len(os.listdir(folder)) for folder in (tmp_path / "out").iterdir() if folder.is_dir()) == out.files
    assert {item.name for item in (tmp_path / "out").iterdir()} == {*out.names, "classes.csv", "files.csv"}


def test_folders_follow_the_decisions(reviewed, run, tmp_path):
    heard = Heard()
    out = export_folders(run, tmp_path / "out", screen=heard)
    classes = {row["folder"]: row for row in rows(tmp_path / "out" / "classes.csv")}
    assert set(classes) == set(out.names) == {name.name for name in (tmp_path / "out").iterdir() if name.is_dir()}
    assert [row["class"] for row in classes.values()] == [HOSTILE, "red", NOT_A_CLASS_NAME, NOT_A_CLASS_NAME]
    assert list(classes)[2:] == [NOT_A_CLASS_NAME, f"{NOT_A_CLASS_NAME}-2"]  # the class keeps its name
    assert [row["kind"] for row in classes.values()] == ["known", "known", "new", ""]
    for row in rows(tmp_path / "out" / "files.csv"):
        number = int(reviewed.class_of[reviewed.results.files.index(row["file"])])
        assert row["class"] == reviewed.names.get(number, NOT_A_CLASS_NAME)
        assert classes[row["copy"].split("/")[0]]["class"] == row["class"]


def test_equal_file_names_do_not_meet(run, tmp_path):
    log = DecisionLog(read_results(run))
    log.decide({"action": "merge", "classes": [0, 1, 2], "into": 3}, 0)
    shutil.copy(tmp_path / "images" / "red" / "001.png", tmp_path / "images" / "x.png")
    out = export_folders(run, tmp_path / "out")
    (folder,) = out.names
    assert len(os.listdir(tmp_path / "out" / folder)) == len(log.results)
    copies = {row["file"]: row["copy"] for row in rows(tmp_path / "out" / "files.csv")}
    assert {copies["red/001.png"], copies[TWIN]} == {f"{folder}/001.png", f"{folder}/001-2.png"}


def test_links_point_to_the_originals(run, tmp_path):
    before = digests(tmp_path / "images")
    export_folders(run, tmp_path / "out", link=True)
    for row in rows(tmp_path / "out" / "files.csv"):
        link = tmp_path / "out" / row["copy"]
        assert link.is_symlink()
        assert link.samefile(tmp_path / "images" / row["file"])
    shutil.rmtree(tmp_path / "out")
    assert digests(tmp_path / "images") == before


def test_links_that_cannot_be_made_are_explained(run, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(UserError, match=r"Operation not permitted.*Without --link, copies are made"):
        export_folders(run, tmp_path / "out", link=True)


def test_missing_originals_are_listed(run, tmp_path):
    (tmp_path / "images" / "red" / "001.png").unlink()
    shutil.rmtree(tmp_path / "images" / "green")
    (tmp_path / "images" / "green").write_text("a file now")
    heard = Heard()
    out = export_folders(run, tmp_path / "out", screen=heard)
    gone = {item.file for item in out.missing}
    assert "red/001.png" in gone
    assert len(gone) == 4
    assert {row["file"] for row in rows(tmp_path / "out" / "missing.csv")} == gone
    assert out.files == len(read_results(run)) - 4
    assert any("4 images are left out" in line for line in heard.warnings)
    shutil.rmtree(tmp_path / "images")
    with pytest.raises(UserError, match="none of the 26 images is in"):
        export_folders(run, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_folders_are_not_written_where_something_is(run, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("full", "full/thing", "link"):
        with pytest.raises(UserError, match="is there already"):
            export_folders(run, tmp_path / place)
    with pytest.raises(UserError, match="lies among the images"):
        export_folders(run, tmp_path / "images" / "sorted")
    assert not (tmp_path / "images" / "sorted").exists()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
        with pytest.raises(UserError, match="0 MB free"):
            export_folders(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    export_folders(run, tmp_path / "empty")


def test_a_copy_stopped_halfway_leaves_whole_files_only(run, tmp_path, monkeypatch):
    before, real, copied = digests(tmp_path / "images"), shutil.copyfile, []

    def stop(source, target):
        if len(copied) == 5:
            Path(target).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        copied.append(real(source, target))

    monkeypatch.setattr(shutil, "copyfile", stop)
    with pytest.raises(UserError, match="No space left on device"):
        export_folders(run, tmp_path / "out")
    assert digests(tmp_path / "images") == before
    assert not (tmp_path / "out" / "files.csv").exists()
    assert not (tmp_path / "out" / ".part").exists()
    whole = {value[0] for value in before.values()}
    there = list((tmp_path / "out").rglob("*.png"))
    assert len(there) == 5
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() in whole for path in there)


# Parquet


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
        assert row["class"] == reviewed.names.get(int(reviewed.class_of[i]))
        assert row["verdict"] == {0: None, 1: "accepted", -1: "rejected"}[int(reviewed.verdict[i])]
        assert row["placed"] == reviewed.placed[i]
        assert row["model_class"] == reviewed.results.assignment.class_names[reviewed.results.assignment.classes[i]]
        assert row["is_new"] == {None: None, HOSTILE: False, "red": False, NOT_A_CLASS_NAME: True}[row["class"]]
    about = json.loads(table.schema.metadata[b"newfound"])
    assert about["not_a_class"] == sum(row["class"] is None for row in table.to_pylist()) > 0


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
    ("content", "told"),
    [(np.zeros((3, 4), np.float16), "has 3 rows"), (np.full((16, 2), "a"), "instead of numbers"),
     (np.ones((16, 0), np.float16), "not a row of numbers"), (np.full((26, 2), np.inf), "not finite"),
     (b"nothing", "is damaged"), (b"", "is damaged")],
)  # fmt: skip
def test_damaged_embeddings_are_named(run, tmp_path, content, told):
    if isinstance(content, bytes):
        (run / "embeddings.npy").write_bytes(content)
    else:
        np.save(run / "embeddings.npy", content)
    with pytest.raises(UserError, match=rf"embeddings\.npy .*{told}"):
        export_parquet(run, tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()


# Label Studio


def test_label_studio_tasks_and_configuration_agree(reviewed, run, tmp_path):
    heard = Heard()
    out = export_label_studio(run, tmp_path / "tasks.json", screen=heard)
    tasks = json.loads(out.tasks.read_text("utf-8"))
    config = ElementTree.parse(out.config).getroot()
    choices = [choice.get("value") for choice in config.iter("Choice")]
    assert out.config == tmp_path / "tasks-config.xml"
    assert choices == [HOSTILE, "red", NOT_A_CLASS_NAME, f"{NOT_A_CLASS_NAME}-2"]
    assert config.find("Image").get("name") == "image"
    assert config.find("Choices").get("name") == "class"
    assert len(tasks) == out.images == len(reviewed.results)
    assert out.annotated == sum("annotations" in task for task in tasks)
    for i, task in enumerate(tasks):
        file = reviewed.results.files[i]
        url = urlsplit(task["data"]["image"])
        assert url.path == "/data/local-files/"
        assert unquote_to_bytes(url.query) == b"d=images/" + os.fsencode(file)
        if file != ODD:
            assert (out.document_root / parse_qs(url.query)["d"][0]).is_file()
        for kind in ("predictions", "annotations"):
            for entry in task.get(kind, []):
                (result,) = entry["result"]
                assert (result["from_name"], result["to_name"], result["type"]) == ("class", "image", "choices")
                assert result["value"]["choices"][0] in choices
        for prediction in task.get("predictions", []):
            assert prediction["score"] == reviewed.results.assignment.confidence[i]
            assert prediction["model_version"] == "newfound run"
    assert any("1 files whose names are not UTF-8" in line for line in heard.warnings)
    assert any(f"DOCUMENT_ROOT={tmp_path}" in line for line in heard.lines)


def test_label_studio_tells_what_people_said_from_what_the_model_says(reviewed, run, tmp_path):
    out = export_label_studio(run, tmp_path / "tasks.json")
    results = reviewed.results
    dismissed = f"{NOT_A_CLASS_NAME}-2"
    for i, task in enumerate(json.loads(out.tasks.read_text())):
        predicted = [item["result"][0]["value"]["choices"][0] for item in task.get("predictions", [])]
        said = [item["result"][0]["value"]["choices"][0] for item in task.get("annotations", [])]
        given, now = int(results.given[i]), reviewed.names.get(int(reviewed.class_of[i]), dismissed)
        if reviewed.placed[i]:
            assert said == [now]
            assert predicted == [dismissed]  # both came from the dismissed class
        elif given >= 0:
            rejected = reviewed.verdict[i] < 0 and reviewed.class_of[i] == given
            assert said == ([] if rejected else [{0: HOSTILE, 1: "red"}[given]])
        else:
            assert said == ([now] if reviewed.verdict[i] > 0 else [])
        if not reviewed.placed[i]:
            assert predicted == ([] if reviewed.verdict[i] < 0 else [now])


def test_choices_are_printable_and_xml(run, tmp_path):
    for name in ("classes.csv", "assignments.csv"):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content.replace(b"new-1", b'"\x1b[31m\n\xff"').replace(b"new-2", b"\\x1b[31m\\n\\xff"))
    out = export_label_studio(run, tmp_path / "tasks.json")
    choices = [choice.get("value") for choice in ElementTree.parse(out.config).iter("Choice")]
    assert choices == ["green", "red", r"\x1b[31m\n\xff-2", r"\x1b[31m\n\xff", NOT_A_CLASS_NAME]
    told = {task["data"]["class"] for task in json.loads(out.tasks.read_text())}
    assert told <= set(choices)


# ONNX


@pytest.fixture(scope="module")
def graph(made, tmp_path_factory):
    """The embedded network with centres, after decisions."""
    place = tmp_path_factory.mktemp("onnx")
    shutil.copytree(made / "run", place / "run")
    decide_on(place / "run")
    heard = Heard()
    return export_onnx(place / "run", place / "model.onnx", screen=heard), place / "run", heard


def session(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_onnx_labels_as_predict_does(graph, made):
    out, run, heard = graph
    assert out.difference < 1e-5
    assert out.checked_on == "5 of the run's images"
    assert any("largest difference from torch in a probability:" in line for line in heard.lines)
    assert set(os.listdir(out.file.parent)) == {"run", "model.onnx"}  # nothing beside it
    assert out.classes == (HOSTILE, "red", NONE_OF_THESE)
    labelled = predict(run, made / "images", refused=0.01)
    size, model = 32, session(out.file)
    views = [evaluation_view(resize_shorter_side(Image.open(f), resized_side(size)), size) for f in labelled.files]
    for start, stop in ((0, 1), (1, 8), (8, len(views))):  # any batch size
        pixels = np.stack([np.asarray(view) for view in views[start:stop]])
        probabilities, likeness, features = model.run(None, {"pixels": pixels})
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(likeness, labelled.likeness[start:stop], atol=1e-6)
        for p, like, name, confidence in zip(
            probabilities, likeness, labelled.classes[start:stop], labelled.confidence[start:stop], strict=True
        ):
            said = out.classes[p.argmax()] if like >= 0.01 else NONE_OF_THESE
            assert said == name
            assert said == NONE_OF_THESE or abs(p.max() - confidence) < 1e-3  # predict rounds tokens as a bank does
    assert NONE_OF_THESE in labelled.classes


def test_onnx_says_what_it_is(graph):
    about = {
        name: json.loads(text) for name, text in session(graph[0].file).get_modelmeta().custom_metadata_map.items()
    }
    assert about["classes"] == [HOSTILE, "red", NONE_OF_THESE]
    assert about["known_classes"] == [HOSTILE, "red"]
    assert (about["image_size"], about["shorter_side"], about["refused"]) == (32, 37, 0.01)
    assert "bicubic" in about["view"]
    assert "oracle" not in about
    content = graph[0].file.read_bytes()
    assert b"site-packages" not in content
    assert str(Path(onnx_model.__file__).parent).encode() not in content


def test_the_page_has_the_example():
    page = Path(__file__).parents[2] / "docs" / "export.md"
    assert onnx_model.EXAMPLE.format(file='"model.onnx"') in page.read_text("utf-8")


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_the_example_needs_neither_newfound_nor_torch(graph, tmp_path, kind):
    """The JPEG is large, lies on its side, and is decoded at a smaller size."""
    out, run, _ = graph
    assert len([line for line in out.example.splitlines() if line]) == 10
    photo = picture("red", 3, size=61).resize((613, 391) if kind == "jpg" else (53, 61))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(tmp_path / f"photo.{kind}", exif=exif, **({"quality": 95} if kind == "jpg" else {}))
    blocked = "import sys\nfor name in ('torch', 'newfound', 'scipy', 'sklearn'): sys.modules[name] = None\n"
    (tmp_path / "example.py").write_text(blocked + out.example)
    said = subprocess.run(
        [sys.executable, "-I", "example.py", f"photo.{kind}"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    name, confidence, likeness = said.rstrip().rsplit(" ", 2)
    labelled = predict(run, tmp_path / f"photo.{kind}")
    assert name == labelled.classes[0]
    assert abs(float(likeness) - labelled.likeness[0]) < 1e-6
    if name != NONE_OF_THESE:
        assert abs(float(confidence) - labelled.confidence[0]) < 1e-3


TINY = {
    "tiny_dino": ViTSpec(8, 48, 3, 3, image_size=64),  # other positions than 32 pixels need
    "tiny_dinov2": ViTSpec(8, 48, 3, 3, image_size=64, layer_scale=True, interpolate_in_float32=True),
    "tiny_reg": ViTSpec(8, 48, 3, 3, image_size=64, layer_scale=True, registers=4, interpolation_offset=0.0,
                        antialias=True, interpolate_in_float32=True),
    "tiny_native": ViTSpec(8, 48, 3, 3, image_size=32),
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Small vision transformers with random weights."""
    monkeypatch.setattr("newfound.backbones.VIT_SPECS", {**vit.VIT_SPECS, **TINY})
    monkeypatch.setattr(vit, "VIT_SPECS", {**vit.VIT_SPECS, **TINY})
    torch.manual_seed(0)
    for name, spec in TINY.items():
        save_file(VisionTransformer(spec).state_dict(), tmp_path / f"{name}.safetensors")
    return tmp_path


@pytest.mark.parametrize("name", TINY)
def test_tokens_for_one_size_are_the_trunks(tiny, name):
    backbone = load_backbone(name, image_size=32, weights=tiny / f"{name}.safetensors", grad_from_block=2)
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(onnx_model.ViTTokens(backbone)(images), backbone.trunk(images))


def test_a_vision_transformer_with_a_trained_classifier(folder, tiny):
    """Registers, resampled positions, two blocks in the tail, the folded last one, cosines; and the oracle's mark."""
    weights = tiny / "tiny_reg.safetensors"
    settings = Settings(
        4, **FAST, epochs=1, backbone="tiny_reg", weights=weights, grad_from_block=1, oracle_clean_anchors=True
    )
    found = discover(folder[0], settings, truth=folder[1], out=tiny / "run")
    assert json.loads((tiny / "run" / "model.json").read_text())["classifier"] == "cosine"
    shutil.rmtree(folder[0])
    out = export_onnx(tiny / "run", tiny / "model.onnx", weights=weights)
    assert out.difference < 1e-5
    assert out.checked_on == "noise, as the images are not there any more"
    assert out.classes == found.results.assignment.class_names
    model, runtime = load_model(tiny / "run", weights=weights, device="cpu"), session(out.file)
    pixels = np.random.default_rng(1).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    probabilities, likeness = model.label(run_trunk(model.backbone, pixels))
    found = runtime.run(None, {"pixels": pixels})
    np.testing.assert_allclose(found[0], probabilities, atol=1e-5)
    np.testing.assert_allclose(found[1], likeness, atol=1e-6)
    assert "oracle" in runtime.get_modelmeta().custom_metadata_map


def test_a_graph_that_differs_is_not_written(made, tmp_path, monkeypatch):
    for name, wrong in (("off", 0.01), ("nan", float("nan"))):
        monkeypatch.setattr(onnx_model, "_graph_bytes", lambda *_: b"")
        monkeypatch.setattr(onnx_model, "_largest_difference", lambda *_, wrong=wrong: wrong)
        with pytest.raises(UserError, match="is not written: on 5 of the run's images"):
            export_onnx(made / "run", tmp_path / f"{name}.onnx")
    assert not os.listdir(tmp_path)


def test_likeness_among_many_distances(made):
    model = load_model(made / "run", device="cpu")
    distances = np.sort(np.random.default_rng(0).uniform(0, 1, 30_000).astype(np.float32))
    object.__setattr__(model, "usual_distances", distances)
    pixels = np.random.default_rng(1).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    with torch.inference_mode():
        likeness = onnx_model.Graph(model, torch.eye(4))(torch.from_numpy(pixels))[1]
    np.testing.assert_allclose(likeness, model.label(run_trunk(model.backbone, pixels))[1], atol=2e-4)


def test_some_images_and_noise(run, tmp_path):
    for file in sorted((tmp_path / "images").rglob("*.png")):
        if file.parent.name != "red":
            file.unlink()
    (tmp_path / "images" / "red" / "001.png").write_bytes(b"no picture")
    pixels, what = onnx_model._sample(run, 32)
    assert pixels.shape == (5, 32, 32, 3)
    assert what == "2 of the run's images and noise"
    assert onnx_model._sample(tmp_path / "nowhere", 32)[1].startswith("noise")


# What a person can mend


EXPORTS = {"a.onnx": export_onnx, "a.parquet": export_parquet, "a.json": export_label_studio}


@pytest.mark.parametrize("name", EXPORTS)
def test_nothing_is_overwritten(made, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="is there already"):
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
    for name in ("a.parquet", "a.json"):
        with pytest.raises(UserError, match="cannot be written: No space left on device"):
            EXPORTS[name](made / "run", tmp_path / name)
    assert not os.listdir(tmp_path)
    assert isinstance(outputs.cannot_write(tmp_path, OSError("x")), UserError)
