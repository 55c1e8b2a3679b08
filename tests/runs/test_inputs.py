"""What a run begins with: places, labels, images, and what is refused before anything is written."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from helping.doubles import mean_colour_backbone
from helping.pictures import picture
from helping.quick_discovery import discover, fast, rows
from newfound import settings as shared
from newfound.backbones.efficientnet import LITE_SPECS, EfficientNetLite
from newfound.errors import UserError
from newfound.settings import method_name
from newfound.training import opened_images

pytestmark = pytest.mark.usefixtures("small_projector")


def test_a_labels_file_does_the_same_as_class_folders(folder, tmp_path):
    flat, lines = tmp_path / "flat", ["file,label"]
    flat.mkdir()
    for file in folder[0].rglob("*.png"):
        shutil.copy(file, flat / file.name)
        if file.parent.name != "unlabelled":
            lines.append(f"{file.name},{file.parent.name}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    discover(flat, fast(4), out=tmp_path / "run", labels=tmp_path / "labels.csv")
    by_folder = discover(folder[0], fast(4), out=tmp_path / "by-folder")
    given = {row["file"]: row["given_label"] for row in rows(tmp_path / "run" / "assignments.csv")}
    expected = {row["file"].split("/")[1]: row["given_label"] for row in rows(by_folder.run / "assignments.csv")}
    assert given == expected


def test_a_run_inside_the_image_folder_is_not_read_as_images(folder):
    found = discover(folder[0], fast(4), out=folder[0] / "run")
    assert found.results.assignment.class_names[:2] == ("green", "red")
    assert found.results.assignment.n_known == 2
    again = discover(folder[0], fast(4), out=folder[0] / "run", resume=True)
    assert again.results.data["fingerprint"] == found.results.data["fingerprint"]


def test_what_newfound_wrote_among_the_images_is_no_class(folder):
    settings = fast(4, bank_dir=folder[0] / "banks")
    first = discover(folder[0], settings, out=folder[0] / "run1")
    second = discover(folder[0], fast(4), out=folder[0] / "run2")
    assert first.results.data["fingerprint"] == second.results.data["fingerprint"]
    assert {row["reason"] for row in rows(second.run / "skipped.csv")} == {"cache folder", "a newfound run"}


def test_broken_files_are_listed_and_do_no_harm(folder, tmp_path):
    clean = discover(folder[0], fast(4), out=tmp_path / "clean")
    (folder[0] / "unlabelled" / "empty.jpg").write_bytes(b"")
    (folder[0] / "unlabelled" / "notes.txt").write_text("buy milk")
    picture("red", 1).save(folder[0] / "whole.jpg")
    (folder[0] / "half.jpg").write_bytes((folder[0] / "whole.jpg").read_bytes()[:300])
    (folder[0] / "whole.jpg").unlink()
    broken = discover(folder[0], fast(4), out=tmp_path / "broken")
    reasons = {row["file"]: row["reason"] for row in rows(tmp_path / "broken" / "skipped.csv")}
    assert set(reasons) == {"unlabelled/empty.jpg", "unlabelled/notes.txt", "half.jpg"}
    assert all(reasons.values())
    assert clean.results.data["fingerprint"] == broken.results.data["fingerprint"]


def test_a_truth_of_other_files_is_named(folder, tmp_path):
    (tmp_path / "other.csv").write_text("file,label\nnowhere.png,cat\n")
    with pytest.raises(UserError, match="names none of the 18"):
        discover(folder[0], fast(4), out=tmp_path / "run", truth=tmp_path / "other.csv")


def test_a_wrong_setting_leaves_no_run_in_the_way(folder, tmp_path):
    for wrong in ({"backbone": "dino_vits16", "weights": tmp_path / "no.pth"}, {"backbone": "resnet"}):
        with pytest.raises(UserError):
            discover(folder[0], fast(4, **wrong), out=tmp_path / "run")
    discover(folder[0], fast(4), out=tmp_path / "run")


def test_other_weights_are_not_mixed_into_a_run(folder, tmp_path):
    torch.manual_seed(0)
    weights = EfficientNetLite(LITE_SPECS["efficientnet_lite0"]).state_dict()
    save_file(weights, tmp_path / "one.safetensors")
    settings = fast(4, epochs=1, weights=tmp_path / "one.safetensors")
    discover(folder[0], settings, out=tmp_path / "run")
    weights["_conv_stem.weight"] *= 1.5
    save_file(weights, tmp_path / "one.safetensors")
    with pytest.raises(UserError, match="backbone's weights have changed"):
        discover(folder[0], settings, out=tmp_path / "run", resume=True)


def test_a_mistake_does_not_wait_for_the_count(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(opened_images, "open_source", None)
    with pytest.raises(UserError, match="beta must be between 0 and 1"):
        discover(folder[0], fast(beta=2.0), out=tmp_path / "run")
    with pytest.raises(UserError, match="stage1='nowhere': there is no run"):
        discover(folder[0], fast(stage1=Path("nowhere")), out=tmp_path / "run")
    with pytest.raises(UserError, match=r"classes=24 is too many: 22 of them are new.* only 18 unlabelled images"):
        discover(folder[0], fast(24, method="gcd"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_places_may_be_strings(folder, tmp_path):
    """All of them, and the run is that of paths."""
    labels = tmp_path / "labels.csv"
    labels.write_text("file,label\nred/001.png,crimson\ngreen/007.png,moss\n")
    by_path = discover(folder[0], fast(4), out=tmp_path / "a", labels=labels, truth=folder[1])
    by_name = discover(str(folder[0]), fast(4), out=str(tmp_path / "b"), labels=str(labels), truth=str(folder[1]))
    assert by_name.run == tmp_path / "b"
    assert by_name.metrics == by_path.metrics
    assert (by_name.run / "assignments.csv").read_bytes() == (by_path.run / "assignments.csv").read_bytes()
    next_round = discover(str(folder[0]), fast(4), after=str(tmp_path / "b"), out=str(tmp_path / "c"))
    assert next_round.results.data["continues"] == str(tmp_path / "b")


def test_settings_may_be_left_out(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "QUICK_EPOCHS", 1)
    monkeypatch.setattr(opened_images, "load_backbone", lambda *_, **__: mean_colour_backbone())
    monkeypatch.chdir(tmp_path)
    found = discover(str(folder[0]))
    assert found.run == Path("newfound-images")
    settings = found.results.settings
    assert (method_name(settings), settings.epochs, settings.seed) == ("sdas", 1, 0)
    assert (found.run / "class_count.json").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grad_from_block": 11}, "grad_from_block=11 has no effect with efficientnet_lite0, which has no blocks"),
        ({"views": "fresh"}, "bank_views=2 has no effect with fresh views, which keep no bank"),
        ({"classes": 0}, "classes=0 is too few"),
        ({"method": "kmeans"}, "epochs=2 has no effect with kmeans, which trains nothing"),
    ],
)
def test_what_would_be_ignored_is_refused(folder, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        discover(folder[0], fast(**{"classes": 4, **changes}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
