"""The whole line on small real folders, with the embedded network."""

import csv
import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from helping.pictures import picture, write_folder
from newfound import discovery
from newfound.backbones import load_backbone
from newfound.backbones.efficientnet import EfficientNetLite0
from newfound.backbones.vit import VIT_SPECS, VisionTransformer
from newfound.discovery import backbone_of, new_model, open_source
from newfound.discovery import discover as discover_and_report
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.report.page import read_page
from newfound.runs.folder import RunFolder
from newfound.runs.results import read_results
from newfound.runs.stability import compare
from newfound.screen import Screen
from newfound.settings import Settings
from newfound.training.loop import Progress, training_pair

pytestmark = pytest.mark.usefixtures("small_projector")

discover = partial(discover_and_report, report=False)
FAST = {"epochs": 2, "image_size": 32, "bank_views": 2, "batch_size": 12}


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines_of(path, without=()):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in without} for line in lines]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A run of which nothing is changed."""
    place = tmp_path_factory.mktemp("found")
    images, truth = write_folder(place)
    return discover(images, Settings(4, **FAST, bank_dir=place / "bank"), out=place / "run", truth=truth)


def test_the_run_folder_holds_everything(folder, tmp_path):
    found = discover_and_report(folder[0], Settings(4, **FAST), out=tmp_path / "run", truth=folder[1])
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
    assert all(row["nearest_class"] != row["name"] for row in classes)


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
    bank = discovery.open_bank(
        read_folder(folder[0]),
        backbone,
        views=2,
        folder=discovery.default_bank_folder(),
        screen=discovery.Screen(quiet=True),
    )
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
    discover(folder[0], Settings(4, **FAST), out=tmp_path / "one")
    elsewhere = tmp_path / "elsewhere"
    for file in sorted(folder[0].rglob("*.png"), reverse=True):
        target = elsewhere / file.relative_to(folder[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    discover(elsewhere, Settings(4, **FAST, bank_dir=tmp_path / "cold"), out=tmp_path / "two")
    for name in ("assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    discover(folder[0], Settings(4, **FAST, seed=1), out=tmp_path / "three")
    assert (tmp_path / "one" / "assignments.csv").read_bytes() != (tmp_path / "three" / "assignments.csv").read_bytes()


def test_the_oracle_is_named_in_every_file(folder, tmp_path):
    settings = Settings(4, **FAST, oracle_clean_anchors=True)
    with pytest.raises(UserError, match="--oracle-clean-anchors needs --truth"):
        discover(folder[0], settings, out=tmp_path / "run")
    found = discover(folder[0], settings, out=tmp_path / "run", truth=folder[1], seeds=2)
    for name in ("assignments.csv", "classes.csv"):
        assert all(row["oracle"] == "true" for row in rows(found.run / name))
    for name in ("metrics.json", "model.json", "stability.json"):
        assert "oracle" in json.loads((found.run / name).read_text())
    for name in ("anchors.jsonl", "log.jsonl"):
        assert all("oracle" in line for line in lines_of(found.run / name))
    with safe_open(found.run / "model.safetensors", framework="pt") as file:
        assert "oracle" in file.metadata()
    assert "oracle_clean_anchors = true" in (found.run / "config.toml").read_text()
    assert "oracle" in found.metrics
    assert found.results.oracle
    other = tmp_path / "other.csv"
    other.write_text(folder[1].read_text().replace("blue", "yellow"))
    with pytest.raises(UserError, match="true labels, which an oracle run learns from, have changed"):
        discover(folder[0], settings, out=tmp_path / "run", truth=other, resume=True)


def test_a_first_training_is_taken_from_another_run(folder, tmp_path):
    whole = discover(folder[0], Settings(4, **FAST), out=tmp_path / "whole")
    for earlier in ("whole", "simgcd"):
        if earlier == "simgcd":
            discover(folder[0], Settings(4, **FAST, method="simgcd", rho=0.05), out=tmp_path / "simgcd")
        settings = Settings(4, **FAST, stage1=tmp_path / earlier)
        taken = discover(folder[0], settings, out=tmp_path / f"from-{earlier}")
        for name in ("assignments.csv", "embeddings.npy", "anchors.jsonl", "model.safetensors"):
            assert (taken.run / name).read_bytes() == (whole.run / name).read_bytes()


def test_a_first_training_that_does_not_fit_is_refused(folder, tmp_path):
    discover(folder[0], Settings(4, **FAST, method="simgcd"), out=tmp_path / "one")
    stage1 = tmp_path / "one"
    for changes, message in (
        ({"classes": 5, "stage1": stage1}, "classes 4 there, 5 here"),
        ({"classes": 4, "stage1": stage1, "image_size": 48}, "image_size 32 there, 48 here"),
        ({"classes": 4, "stage1": tmp_path / "nowhere"}, "no run of this version with a first training"),
    ):
        with pytest.raises(UserError, match=message):
            discover(folder[0], Settings(**{**FAST, **changes}), out=tmp_path / "two")
    picture("red", 99).save(folder[0] / "unlabelled" / "another.png")
    with pytest.raises(UserError, match="the images or labels differ"):
        discover(folder[0], Settings(4, **FAST, stage1=stage1), out=tmp_path / "two")
    assert not (tmp_path / "two").exists()  # a wrong setting leaves no run in the way


def test_an_unfinished_first_training_is_refused(folder, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "report", stop)  # after the first epoch is saved
        with pytest.raises(KeyboardInterrupt):
            discover(folder[0], Settings(4, **FAST), out=tmp_path / "one")
    with pytest.raises(UserError, match="has done 1 of 2 epochs"):
        discover(folder[0], Settings(4, **FAST, stage1=tmp_path / "one"), out=tmp_path / "two")


def test_training_without_a_bank(folder, tmp_path):
    found = discover(folder[0], Settings(4, **{**FAST, "epochs": 2}, views="fresh"), out=tmp_path / "run")
    again = discover(folder[0], Settings(4, **{**FAST, "epochs": 2}, views="fresh"), out=tmp_path / "again")
    assert np.array_equal(found.results.assignment.confidence, again.results.assignment.confidence)
    assert not discovery.default_bank_folder().exists()


@pytest.mark.parametrize("views", ["bank", "fresh"])
def test_a_vision_transformer_from_a_local_file(folder, tmp_path, views):
    """Random weights, but the real network of the paper's family, through the whole line."""
    torch.manual_seed(0)
    save_file(VisionTransformer(VIT_SPECS["dino_vits16"]).state_dict(), tmp_path / "vits16.safetensors")
    settings = Settings(
        4, **{**FAST, "epochs": 1}, backbone="dino_vits16", weights=tmp_path / "vits16.safetensors", views=views
    )
    found = discover(folder[0], settings, out=tmp_path / "run")
    assert np.load(found.run / "embeddings.npy").shape == (len(found.results), 384)
    kept = load_file(found.run / "model.safetensors")
    assert "tail.blocks.11.attn.qkv.weight" in kept
    assert not any(name.startswith("tail.blocks.10.") for name in kept)


def test_a_labels_file_does_the_same_as_class_folders(folder, tmp_path):
    flat, lines = tmp_path / "flat", ["file,label"]
    flat.mkdir()
    for file in folder[0].rglob("*.png"):
        shutil.copy(file, flat / file.name)
        if file.parent.name != "unlabelled":
            lines.append(f"{file.name},{file.parent.name}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    discover(flat, Settings(4, **FAST), out=tmp_path / "run", labels=tmp_path / "labels.csv")
    by_folder = discover(folder[0], Settings(4, **FAST), out=tmp_path / "by-folder")
    given = {row["file"]: row["given_label"] for row in rows(tmp_path / "run" / "assignments.csv")}
    expected = {row["file"].split("/")[1]: row["given_label"] for row in rows(by_folder.run / "assignments.csv")}
    assert given == expected


def test_a_run_inside_the_image_folder_is_not_read_as_images(folder):
    found = discover(folder[0], Settings(4, **FAST), out=folder[0] / "run")
    assert found.results.assignment.class_names[:2] == ("green", "red")
    assert found.results.assignment.n_known == 2
    again = discover(folder[0], Settings(4, **FAST), out=folder[0] / "run", resume=True)
    assert again.results.data["fingerprint"] == found.results.data["fingerprint"]


def test_broken_files_are_listed_and_do_no_harm(folder, tmp_path):
    clean = discover(folder[0], Settings(4, **FAST), out=tmp_path / "clean")
    (folder[0] / "unlabelled" / "empty.jpg").write_bytes(b"")
    (folder[0] / "unlabelled" / "notes.txt").write_text("buy milk")
    picture("red", 1).save(folder[0] / "whole.jpg")
    (folder[0] / "half.jpg").write_bytes((folder[0] / "whole.jpg").read_bytes()[:300])
    (folder[0] / "whole.jpg").unlink()
    broken = discover(folder[0], Settings(4, **FAST), out=tmp_path / "broken")
    reasons = {row["file"]: row["reason"] for row in rows(tmp_path / "broken" / "skipped.csv")}
    assert set(reasons) == {"unlabelled/empty.jpg", "unlabelled/notes.txt", "half.jpg"}
    assert all(reasons.values())
    assert clean.results.data["fingerprint"] == broken.results.data["fingerprint"]


def test_a_class_known_by_name_alone_claims_no_image(folder, tmp_path):
    (folder[0] / "a heron").mkdir()
    found = discover(folder[0], Settings(5, **FAST), out=tmp_path / "run", truth=folder[1])
    assert found.results.assignment.unseen == ("a heron",)
    assert "anchors_per_class = 3.0" in (found.run / "config.toml").read_text()
    assert found.results.assignment.class_names == ("green", "red", "new-1", "new-2", "new-3")
    last = rows(found.run / "classes.csv")[-1]
    assert (last["name"], last["kind"], last["size"]) == ("a heron", "known", "0")
    labels = {row["file"]: row["given_label"] for row in rows(found.run / "assignments.csv")}
    assert all(label == ("" if file.startswith("unl") else file.split("/")[0]) for file, label in labels.items())


@pytest.mark.parametrize("start", ["clusters", "random"])
def test_nothing_or_everything_labelled(folder, tmp_path, start):
    everything = discover(folder[0], Settings(4, **FAST, start=start), out=tmp_path / "all", labels=folder[1])
    assert (everything.results.given >= 0).all()
    (tmp_path / "none.csv").write_text("file,label\nred/001.png,\n")
    nothing = discover(folder[0], Settings(4, **FAST, start=start), out=tmp_path / "none", labels=tmp_path / "none.csv")
    assert nothing.results.assignment.n_known == 0
    assert all(row["is_new"] == "true" for row in rows(tmp_path / "none" / "assignments.csv"))


def test_a_truth_of_other_files_is_named(folder, tmp_path):
    (tmp_path / "other.csv").write_text("file,label\nnowhere.png,cat\n")
    with pytest.raises(UserError, match="names none of the 18"):
        discover(folder[0], Settings(4, **FAST), out=tmp_path / "run", truth=tmp_path / "other.csv")


def test_what_newfound_wrote_among_the_images_is_no_class(folder):
    settings = Settings(4, **FAST, bank_dir=folder[0] / "banks")
    first = discover(folder[0], settings, out=folder[0] / "run1")
    second = discover(folder[0], Settings(4, **FAST), out=folder[0] / "run2")
    assert first.results.data["fingerprint"] == second.results.data["fingerprint"]
    assert {row["reason"] for row in rows(second.run / "skipped.csv")} == {"cache folder", "a newfound run"}


def test_a_wrong_setting_leaves_no_run_in_the_way(folder, tmp_path):
    for wrong in ({"backbone": "dino_vits16", "weights": tmp_path / "no.pth"}, {"backbone": "resnet"}):
        with pytest.raises(UserError):
            discover(folder[0], Settings(4, **FAST, **wrong), out=tmp_path / "run")
    discover(folder[0], Settings(4, **FAST), out=tmp_path / "run")


def test_other_weights_are_not_mixed_into_a_run(folder, tmp_path):
    torch.manual_seed(0)
    weights = EfficientNetLite0().state_dict()
    save_file(weights, tmp_path / "one.safetensors")
    settings = Settings(4, **{**FAST, "epochs": 1}, weights=tmp_path / "one.safetensors")
    discover(folder[0], settings, out=tmp_path / "run")
    weights["_conv_stem.weight"] *= 1.5
    save_file(weights, tmp_path / "one.safetensors")
    with pytest.raises(UserError, match="backbone's weights have changed"):
        discover(folder[0], settings, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("method", ["gcd", "kmeans"])
def test_the_table_of_a_clustering_method_is_the_nearest_centre(folder, tmp_path, method):
    epochs = {"epochs": None} if method == "kmeans" else {}
    found = discover(folder[0], Settings(4, **{**FAST, **epochs}, method=method), truth=folder[1], out=tmp_path / "run")
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
    again = discover(folder[0], found_settings(found), truth=folder[1], out=tmp_path / "run", resume=True)
    assert np.array_equal(again.results.assignment.confidence, found.results.assignment.confidence)


def found_settings(found):
    return RunFolder(found.run).settings().stripped()


def test_the_number_of_classes_is_counted_where_it_is_not_told(folder, tmp_path, monkeypatch):
    found = discover(folder[0], Settings(**FAST), out=tmp_path / "run")
    count = json.loads((found.run / "class_count.json").read_text())
    assert count["known"] == 2
    assert RunFolder(found.run).settings().classes == max(count["best"], 2)
    assert {"best", "low", "high", "curve", "tree", "criterion"} <= set(count)
    monkeypatch.setattr(discovery, "count_classes", None)  # a run goes on with what it has counted
    discover(folder[0], Settings(**FAST), out=tmp_path / "run", resume=True)
    again = discover(folder[0], Settings(**FAST, stage1=found.run), out=tmp_path / "again")  # and so do those after it
    assert RunFolder(again.run).settings().classes == RunFolder(found.run).settings().classes


def test_other_seeds_are_runs_of_their_own(folder, tmp_path):
    found = discover_and_report(folder[0], Settings(**FAST), out=tmp_path / "run", truth=folder[1], seeds=3)
    assert [path.name for path in sorted((found.run / "seeds").iterdir())] == ["1", "2"]
    classes = RunFolder(found.run).settings().classes
    alone = discover(folder[0], Settings(classes, **FAST, seed=2), out=tmp_path / "alone", truth=folder[1])
    for name in ("assignments.csv", "embeddings.npy", "model.safetensors", "metrics.json"):
        assert (alone.run / name).read_bytes() == (found.run / "seeds" / "2" / name).read_bytes()
    written = json.loads((found.run / "stability.json").read_text())
    assert written["seeds"] == [0, 1, 2]
    others = [read_results(found.run / "seeds" / name).assignment for name in ("1", "2")]
    assert found.results.stability == compare([found.results.assignment, *others], [0, 1, 2])
    assert read_page(found.run / "report.html")[0]["stability"]["seeds"] == [0, 1, 2]


def test_seeds_go_on_where_they_stopped(folder, tmp_path, monkeypatch):
    settings, real = Settings(4, **FAST), RunFolder.save_epoch
    whole = discover(folder[0], settings, out=tmp_path / "whole", seeds=2)

    def stopped(self, model, optimiser, checkpoint, entry):
        real(self, model, optimiser, checkpoint, entry)
        if self.path.name == "1" and entry["stage"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            discover(folder[0], settings, out=tmp_path / "run", seeds=2)
    assert not (tmp_path / "run" / "stability.json").exists()
    discover(folder[0], settings, out=tmp_path / "run", seeds=2, resume=True)
    for name in ("stability.json", "seeds/1/assignments.csv", "assignments.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.run / name).read_bytes()


def test_seeds_are_added_to_a_run_that_has_ended(folder, tmp_path):
    """Its own training is not done again, and its results stay as they are."""
    kept = ("assignments.csv", "classes.csv", "embeddings.npy", "model.safetensors", "log.jsonl")
    one = discover_and_report(folder[0], Settings(4, **FAST), out=tmp_path / "run", seeds=1)
    before = {name: (one.run / name).read_bytes() for name in kept}
    assert one.results.stability is None
    two = discover_and_report(folder[0], Settings(4, **FAST), out=tmp_path / "run", seeds=2, resume=True)
    assert {name: (two.run / name).read_bytes() for name in kept} == before
    assert json.loads((two.run / "stability.json").read_text())["seeds"] == [0, 1]
    other = read_results(two.run / "seeds" / "1").assignment
    assert two.results.stability == compare([one.results.assignment, other], [0, 1])
    assert read_page(two.run / "report.html")[0]["stability"]["seeds"] == [0, 1]


@pytest.mark.parametrize(("seeds", "settings", "message"), [
    (0, {}, "--seeds must be 1 or more"),
    (2, {"seed": 2**32 - 1}, "goes beyond 4294967295"),
    (2, {"stage1": Path("other")}, "--seeds does not go with --stage1"),
])  # fmt: skip
def test_seeds_that_make_no_sense(tmp_path, seeds, settings, message):
    with pytest.raises(UserError, match=message):
        discover(tmp_path / "nowhere", Settings(4, **settings), seeds=seeds)


def test_a_slip_does_not_wait_for_the_count(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "open_source", None)
    with pytest.raises(UserError, match="--beta must be between 0 and 1"):
        discover(folder[0], Settings(**FAST, beta=2.0), out=tmp_path / "run")
    with pytest.raises(UserError, match="--stage1 nowhere: there is no run"):
        discover(folder[0], Settings(**FAST, stage1=Path("nowhere")), out=tmp_path / "run")
    with pytest.raises(UserError, match=r"22 are new, are too many for 18 unlabelled images\. Give fewer --classes"):
        discover(folder[0], Settings(24, **FAST, method="gcd"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_classes_that_end_up_empty_are_left_out(folder, tmp_path):
    lines = []

    class Said(Screen):
        def warn(self, text):
            lines.append(text)

    settings = Settings(20, **{**FAST, "batch_size": 8})  # larger batches: all classes keep images
    found = discover(folder[0], settings, truth=folder[1], out=tmp_path / "run", screen=Said(quiet=True))
    empty = lines_of(found.run / "log.jsonl")[-1]["empty_classes"]
    assert empty > 0
    assert any(f"{empty} of the new classes ended up empty" in line for line in lines)
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


def test_compiled_parts_are_the_same_model(monkeypatch, folder, tmp_path):
    compiled, plain_compile = [], torch.nn.Module.compile

    def compile_quickly(part):
        compiled.append(type(part).__name__)
        plain_compile(part, backend="eager")  # what a GPU would do with a compiler, without one

    monkeypatch.setattr(torch.nn.Module, "compile", compile_quickly)
    table = read_folder(folder[0])
    settings = Settings(4, **FAST, bank_dir=tmp_path).resolved(2, len(table), 3.0)
    losses, names = [], []
    for chosen in (settings, replace(settings, compile=True)):  # a CPU user is refused it by `resolved`
        backbone = backbone_of(chosen)
        source = open_source(table, backbone, chosen, Screen(quiet=True))
        model = new_model(backbone, source, chosen)
        pair = training_pair(source, np.arange(6), 0, 0)
        losses.append(model.losses(pair, torch.tensor([0, 0, 1, -1, -1, -1]), 0)["total"])
        names.append([*model.state_dict(), *backbone.trunk.state_dict()])
    assert compiled == ["FoldedEfficientNet", "AdapterTail", "Projector"]
    torch.testing.assert_close(losses[1], losses[0])
    assert names[0] == names[1]  # a checkpoint of one serves the other
