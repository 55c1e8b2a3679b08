"""The whole line on small real folders, with the embedded network: what a run leaves behind."""

import inspect
import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from helping.pictures import write_folder
from helping.quick_discovery import FAST, discover, discover_and_report, fast, lines_of, rows
from newfound import fitting
from newfound.backbones import load_backbone
from newfound.backbones.adapter import AdapterTail
from newfound.backbones.vit import VIT_SPECS, VisionTransformer
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.methods import METHODS, load
from newfound.runs.folder import RunFolder
from newfound.runs.nearest_class import nearest_classes
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.sources.bank import default_bank_folder, open_bank
from newfound.text import counted
from newfound.training import fitted_whitening, task
from newfound.whitening_check import WhiteningCheck

pytestmark = pytest.mark.usefixtures("small_projector")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A run of which nothing is changed."""
    place = tmp_path_factory.mktemp("found")
    images, truth = write_folder(place)
    return discover(images, fast(4, bank_dir=place / "bank"), out=place / "run", truth=truth)


def test_the_run_folder_holds_everything(folder, tmp_path):
    found = discover_and_report(folder[0], fast(4), out=tmp_path / "run", truth=folder[1])
    expected = {"config.toml", "skipped.csv", "log.jsonl", "anchors.jsonl", "checkpoint", "assignments.csv",
                "classes.csv", "embeddings.npy", "model.safetensors", "model.json", "metrics.json", "map.npy",
                "report.html"}  # fmt: skip
    assert set(os.listdir(found.run)) == expected
    assert not list(found.run.rglob("*.tmp"))


def test_assignments_name_every_image_once(found):
    table = rows(found.run / "assignments.csv")
    assert [row["file"] for row in table] == list(found.results.files)
    names = {row["name"] for row in rows(found.run / "classes.csv")}
    for row in table:
        assert row["class"] in names
        assert row["class"] != row["runner_up"]
        assert row["is_new"] == ("true" if row["class"].startswith("new-") else "false")
        assert 1 >= float(row["confidence"]) >= float(row["runner_up_confidence"]) >= 0
        assert row["given_label"] == (row["file"].split("/")[0] if not row["file"].startswith("unlabelled") else "")


def test_anchors_are_marked(found):
    marked = {row["file"] for row in rows(found.run / "assignments.csv") if row["is_anchor"] == "true"}
    with safe_open(found.run / "checkpoint" / "stage2.safetensors", framework="pt") as file:
        trained_with = file.get_tensor("labels").numpy()
    expected = {
        f for f, k, given in zip(found.results.files, trained_with, found.results.given, strict=True) if k > given
    }
    assert marked == expected
    assert len(marked) == lines_of(found.run / "anchors.jsonl")[-1]["anchors"] > 0
    assert all(file.startswith("unlabelled/") for file in marked)


def test_classes_are_counted(found):
    classes = rows(found.run / "classes.csv")
    assert [row["name"] for row in classes] == ["green", "red", "new-1", "new-2"]
    assert [row["kind"] for row in classes] == ["known", "known", "new", "new"]
    assert sum(int(row["size"]) for row in classes) == len(found.results)
    nearest = nearest_classes(found.results.embeddings, found.results.assignment.classes, 4)
    assert [row["nearest_class"] for row in classes] == [classes[k]["name"] for k in nearest]


def test_embeddings_are_unit_vectors_in_the_order_of_the_table(found):
    embeddings = np.load(found.run / "embeddings.npy")
    assert embeddings.shape == (len(found.results), 1280)
    np.testing.assert_allclose(np.linalg.norm(embeddings.astype(np.float64), axis=1), 1, atol=1e-2)


def test_the_model_files_alone_reproduce_the_confidence(found, folder):
    """What `predict` needs: tail and classifier from model.safetensors, the rest from model.json."""
    description = json.loads((found.run / "model.json").read_text())
    tensors = load_file(found.run / "model.safetensors")
    backbone = load_backbone(description["backbone"], image_size=description["image_size"])
    assert backbone.fingerprint == description["backbone_fingerprint"]
    tail = backbone.new_tail()
    tail.load_state_dict({k[len("tail.") :]: t for k, t in tensors.items() if k.startswith("tail.")})
    bank = open_bank(read_folder(folder[0]), backbone, views=2, folder=default_bank_folder(), screen=Screen(quiet=True))
    features = torch.nn.functional.normalize(tail(bank.evaluation(range(len(found.results)))), dim=1)
    directions = torch.nn.functional.normalize(tensors["classifier.weight"], dim=1)
    confidence = ((features @ directions.T) / description["temperature"]).softmax(dim=1).max(dim=1).values
    np.testing.assert_allclose(confidence.detach(), found.results.assignment.confidence, atol=1e-5)
    assert description["class_names"] == list(found.results.assignment.class_names)


def test_metrics_hold_the_named_numbers(found):
    metrics = json.loads((found.run / "metrics.json").read_text())
    for name in ("all", "old", "new", "kmeans_all", "kmeans_old", "kmeans_new", "v1_all", "v2b_new", "nmi", "ari"):
        assert 0 <= metrics[name] <= 1
    assert metrics["images_scored"] == 18
    assert set(metrics["per_class"]) == {"red", "green", "blue", "yellow"}
    confusion = metrics["confusion"]
    assert confusion["known_as_known"] + confusion["known_as_new"] == 6
    assert confusion["new_as_known"] + confusion["new_as_new"] == 12


def test_same_seed_same_bytes_wherever_the_folder_lies(folder, tmp_path):
    """Order on disk, place of the folder and a cold bank do not matter."""
    discover(folder[0], fast(4), out=tmp_path / "one")
    elsewhere = tmp_path / "elsewhere"
    for file in sorted(folder[0].rglob("*.png"), reverse=True):
        target = elsewhere / file.relative_to(folder[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    discover(elsewhere, fast(4, bank_dir=tmp_path / "cold"), out=tmp_path / "two")
    for name in ("assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    discover(folder[0], fast(4, seed=1), out=tmp_path / "three")
    assert (tmp_path / "one" / "assignments.csv").read_bytes() != (tmp_path / "three" / "assignments.csv").read_bytes()


def test_training_without_a_bank(folder, tmp_path):
    found = discover(folder[0], fast(4, views="fresh", bank_views=None), out=tmp_path / "run")
    again = discover(folder[0], fast(4, views="fresh", bank_views=None), out=tmp_path / "again")
    assert np.array_equal(found.results.assignment.confidence, again.results.assignment.confidence)
    assert not default_bank_folder().exists()


@pytest.mark.parametrize("views", ["bank", "fresh"])
def test_a_vision_transformer_from_a_local_file(folder, tmp_path, views):
    """Random weights, but the real network of the paper's family, through the whole line."""
    torch.manual_seed(0)
    save_file(VisionTransformer(VIT_SPECS["dino_vits16"]).state_dict(), tmp_path / "vits16.safetensors")
    bank_views = 2 if views == "bank" else None
    weights = {"backbone": "dino_vits16", "weights": tmp_path / "vits16.safetensors"}
    settings = fast(4, epochs=1, views=views, bank_views=bank_views, **weights)
    found = discover(folder[0], settings, out=tmp_path / "run")
    assert np.load(found.run / "embeddings.npy").shape == (len(found.results), 384)
    kept = load_file(found.run / "model.safetensors")
    assert "tail.blocks.11.attn.qkv.weight" in kept
    assert not any(name.startswith("tail.blocks.10.") for name in kept)


def test_a_class_known_by_name_alone_claims_no_image(folder, tmp_path):
    (folder[0] / "a heron").mkdir()
    found = discover(folder[0], fast(5), out=tmp_path / "run", truth=folder[1])
    assert found.results.assignment.unseen == ("a heron",)
    assert "anchors_per_class = 3.0" in (found.run / "config.toml").read_text()
    assert found.results.assignment.class_names == ("green", "red", "new-1", "new-2", "new-3")
    last = rows(found.run / "classes.csv")[-1]
    assert (last["name"], last["kind"], last["size"]) == ("a heron", "known", "0")
    labels = {row["file"]: row["given_label"] for row in rows(found.run / "assignments.csv")}
    assert all(label == ("" if file.startswith("unl") else file.split("/")[0]) for file, label in labels.items())


@pytest.mark.parametrize("start", ["clusters", "random"])
def test_nothing_or_all_but_one_labelled(folder, tmp_path, start):
    (tmp_path / "most.csv").write_text("\n".join(folder[1].read_text().splitlines()[:-1]))
    most = discover(folder[0], fast(4, start=start), out=tmp_path / "most", labels=tmp_path / "most.csv")
    assert (most.results.given < 0).sum() == 1
    (tmp_path / "none.csv").write_text("file,label\nred/001.png,\n")
    nothing = discover(folder[0], fast(4, start=start), out=tmp_path / "none", labels=tmp_path / "none.csv")
    assert nothing.results.assignment.n_known == 0
    assert all(row["is_new"] == "true" for row in rows(tmp_path / "none" / "assignments.csv"))


@pytest.mark.parametrize("method", ["gcd", "kmeans"])
def test_the_table_of_a_clustering_method_is_the_nearest_centre(folder, tmp_path, method):
    settings = fast(4, method=method, frozen_views="one", **({"epochs": None} if method == "kmeans" else {}))
    found = discover(folder[0], settings, truth=folder[1], out=tmp_path / "run")
    assert (found.run / "log.jsonl").exists() == (method == "gcd")
    assert found.metrics is not None
    if method == "kmeans":
        assert found.metrics["all"] == found.metrics["kmeans_all"]
    about = json.loads((found.run / "model.json").read_text())
    assert about["classifier"] == "nearest centre"
    centres = load_file(found.run / "model.safetensors")["classifier.weight"]
    features = torch.from_numpy(np.load(found.run / "embeddings.npy").astype(np.float32))
    nearest = torch.cdist(features, centres).argmin(dim=1)
    written = [about["class_names"].index(row["class"]) for row in rows(found.run / "assignments.csv")]
    assert nearest.tolist() == written
    assert not any(row["is_anchor"] == "true" for row in rows(found.run / "assignments.csv"))
    again = discover(folder[0], RunFolder(found.run).settings(), truth=folder[1], out=tmp_path / "run", resume=True)
    assert np.array_equal(again.results.assignment.confidence, found.results.assignment.confidence)


def test_whitened_features_stay_with_the_run(folder, tmp_path, monkeypatch):
    settings = fast(4, method="kmeans", epochs=None, whitening=0.5)
    found = discover(folder[0], settings, out=tmp_path / "run")
    assert found.results.whitening == WhiteningCheck((), (), 0.5)
    assert load_file(found.run / "model.safetensors")["tail.whitening"].shape == (1280, 1280)
    labelled = found.predict(folder[0], refused=0)
    by_file = dict(zip(labelled.files, labelled.classes, strict=True))
    assert [by_file[str(folder[0] / file)] for file in found.results.files] == [
        found.results.assignment.class_names[k] for k in found.results.assignment.classes
    ]
    before = {path: path.read_bytes() for path in found.run.rglob("*") if path.is_file()}
    for name in ("whitening.json", "assignments.csv", "model.safetensors"):
        (found.run / name).unlink()
    monkeypatch.setattr(fitted_whitening, "_fitted", None)  # a run resumes with what it has
    discover(folder[0], settings, out=found.run, resume=True)
    assert {path: path.read_bytes() for path in before} == before


def test_without_whitening_a_run_is_as_before_there_was_any(folder, tmp_path):
    """Also where the check is against it: of two known classes, there is no telling."""
    runs = [
        discover(folder[0], fast(4, method="gcd", whitening=how), out=tmp_path / str(how)).run
        for how in ("none", 1, "auto")
    ]
    for name in ("assignments.csv", "embeddings.npy", "model.safetensors", "checkpoint/stage1.safetensors"):
        plain, *others = [(run / name).read_bytes() for run in runs]
        assert others == [plain, plain], name
    assert [(run / "whitening.json").exists() for run in runs] == [False, False, True]
    assert not any("whitening" in name for name in load_file(runs[0] / "model.safetensors"))


def test_the_number_of_classes_is_counted_where_it_is_not_given(folder, tmp_path, monkeypatch):
    found = discover(folder[0], fast(), out=tmp_path / "run")
    count = json.loads((found.run / "class_count.json").read_text())
    assert count["known"] == 2
    assert RunFolder(found.run).settings().classes == max(count["best"], 2)
    assert {"best", "low", "high", "curve", "tree", "criterion"} <= set(count)
    monkeypatch.setattr(fitting, "count_classes", None)  # a run resumes with what it has counted
    discover(folder[0], fast(), out=tmp_path / "run", resume=True)
    again = discover(folder[0], fast(stage1=found.run), out=tmp_path / "again")  # and so do those after it
    assert RunFolder(again.run).settings().classes == RunFolder(found.run).settings().classes


def test_classes_that_end_up_empty_are_left_out(folder, tmp_path):
    lines = []

    class Said(Screen):
        def warn(self, text):
            lines.append(text)

    published = {"label_balance": 0.0, "frozen_views": "one"}
    settings = fast(20, batch_size=8, **published)  # with these, new classes run empty, and no known one
    found = discover(folder[0], settings, truth=folder[1], out=tmp_path / "run", screen=Said(quiet=True))
    empty = lines_of(found.run / "log.jsonl")[-1]["empty_classes"]
    assert empty > 0
    assert any(f"{counted(empty, 'new class')} ended up empty" in line for line in lines)
    classes = rows(found.run / "classes.csv")
    assert len(classes) == 20 - empty
    assert all(int(row["size"]) > 0 for row in classes if row["kind"] == "new")
    about = json.loads((found.run / "model.json").read_text())
    tensors = load_file(found.run / "model.safetensors")
    assert len(tensors["classifier.weight"]) == len(about["class_names"]) == 20 - empty
    features = torch.from_numpy(np.load(found.run / "embeddings.npy").astype(np.float32))
    cosines = features @ torch.nn.functional.normalize(tensors["classifier.weight"], dim=1).T
    confidence, said = (cosines / about["temperature"]).softmax(dim=1).max(dim=1)
    table = rows(found.run / "assignments.csv")
    assert [about["class_names"][k] for k in said] == [row["class"] for row in table]
    np.testing.assert_allclose(confidence, [float(row["confidence"]) for row in table], atol=0.01)


def test_a_run_resumes_on_another_device(folder, tmp_path):
    """As if it had been begun on a GPU: the device is no part of what a run is."""
    found = discover(folder[0], fast(4, device="cpu"), out=tmp_path / "run")
    before = (found.run / "assignments.csv").read_bytes()
    config = (found.run / "config.toml").read_text()
    assert 'device = "cpu"' in config
    (found.run / "config.toml").write_text(config.replace('device = "cpu"', 'device = "cuda"'))
    discover(folder[0], fast(4, device="cpu"), out=found.run, resume=True)
    assert (found.run / "assignments.csv").read_bytes() == before


def test_k_means_runs_only_where_it_is_needed(folder, tmp_path, monkeypatch):
    """Not where the classifier starts at random and nothing is scored; and not again when a run resumes."""
    settings = fast(4, method="simgcd", start="random")
    kept = tmp_path / "run" / "checkpoint" / "kept-kmeans.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(task, "kmeans", None)
        discover(folder[0], settings, out=tmp_path / "run")
        assert not kept.exists()
    scored = discover(folder[0], settings, out=tmp_path / "run", truth=folder[1], resume=True)
    assert kept.is_file()
    monkeypatch.setattr(task, "kmeans", None)
    again = discover(folder[0], settings, out=tmp_path / "run", truth=folder[1], resume=True)
    assert again.metrics == scored.metrics


@pytest.mark.parametrize("views", ["bank", "fresh"])
def test_standardisation_is_computed_once(folder, tmp_path, monkeypatch, views):
    """It is a pass over all images: counting classes, both trainings and the score share it."""
    passes, fit = [], AdapterTail.fit_standardisation
    monkeypatch.setattr(AdapterTail, "fit_standardisation", lambda *args: (passes.append(1), fit(*args))[1])
    settings = fast(views=views, bank_views=2 if views == "bank" else None)
    discover(folder[0], settings, out=tmp_path / "run", truth=folder[1])
    assert len(passes) == 1


def test_settings_may_be_keywords(folder, tmp_path):
    """Shared ones and the method's own; they win over a ``Settings``, and the run is that of the same settings."""
    by_settings = discover(folder[0], fast(4, method="simgcd", start="random"), out=tmp_path / "a")
    keywords = {**FAST, "classes": 4, "method": "simgcd", "start": "random"}
    by_keywords = discover(str(folder[0]), out=str(tmp_path / "b"), **keywords)
    both = discover(folder[0], Settings(9, epochs=1), out=tmp_path / "c", screen=False, **keywords)
    assert by_keywords.results.settings == by_settings.results.settings == both.results.settings
    for found in (by_keywords, both):
        assert (found.run / "assignments.csv").read_bytes() == (by_settings.run / "assignments.csv").read_bytes()


@pytest.mark.parametrize(("arguments", "message"), [
    ({"epoch": 3}, r"epoch=3 is not a setting of sdas \(did you mean epochs\?\)"),
    ({"epochs": "ten"}, "epochs must be int or None; found epochs='ten'"),
    ({"method": "umap"}, "method='umap' is not a method"),
    ({"method": "gcd", "beta": 0.5}, "beta=0.5 is not a setting of gcd"),
    ({"settings": 12}, "settings must be a newfound.Settings; a single setting is a keyword: classes=12; found"),
    ({"folder": 5}, "folder must be a path"),
    ({"out": 5}, "out must be a path"),
    ({"labels": ["a.csv"]}, "labels must be a path"),
    ({"resume": "yes"}, "resume must be True or False; found resume='yes'"),
    ({"repeat": "2"}, "repeat='2' must be 1 or more"),
    ({"screen": 1}, "screen must be True, False or a newfound.Screen"),
    ({"truth": "nowhere.csv"}, "truth='nowhere.csv': there is no such file"),
], ids=str)  # fmt: skip
def test_mistakes_are_reported_in_the_words_of_python(tmp_path, arguments, message):
    with pytest.raises(UserError, match=f"^{message}"):
        discover(**{"folder": tmp_path, **arguments})


def test_progress_is_shown_where_it_is_wanted(folder, tmp_path, capsys):
    quick = {"method": "kmeans", "classes": 4, "image_size": 32, "bank_views": 2}
    discover(folder[0], out=tmp_path / "a", **quick)  # nobody watches
    assert capsys.readouterr().out == ""
    discover(folder[0], out=tmp_path / "b", screen=True, **quick)
    assert "24 images: 6 labelled in 2 known classes, 18 to sort" in capsys.readouterr().out


def test_no_setting_has_the_name_of_another_argument():
    """Or the keyword could not be told from it."""
    arguments = set(inspect.signature(discover_and_report).parameters)
    for name in METHODS:
        assert not arguments & {*Settings.__dataclass_fields__, *load(name).Settings.__dataclass_fields__}
