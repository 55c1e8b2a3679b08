"""A model as an ONNX graph, with everything in it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from helping.exporting import FAST, HOSTILE, Heard, decide_on
from helping.pictures import picture
from newfound.backbones import load_backbone, vit
from newfound.backbones.vit import VisionTransformer, ViTSpec
from newfound.discovery import discover
from newfound.errors import UserError
from newfound.export import export_onnx, onnx_model
from newfound.images.views import evaluation_view, resize_shorter_side, resized_side
from newfound.methods import sdas
from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.labelling import predict
from newfound.runs.model import load_model
from newfound.settings import Settings
from newfound.sources.bank import run_trunk


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
    assert "tail.whitening" in load_file(run / "model.safetensors")
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
            predicted = out.classes[p.argmax()] if like >= 0.01 else NONE_OF_THESE
            assert predicted == name
            assert (
                predicted == NONE_OF_THESE or abs(p.max() - confidence) < 1e-3
            )  # predict rounds tokens as a bank does
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
    printed = subprocess.run(
        [sys.executable, "-I", "example.py", f"photo.{kind}"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    name, confidence, likeness = printed.rstrip().rsplit(" ", 2)
    labelled = predict(run, tmp_path / f"photo.{kind}")
    assert name == labelled.classes[0]
    assert abs(float(likeness) - labelled.likeness[0]) < 1e-6
    if name != NONE_OF_THESE:
        assert abs(float(confidence) - labelled.confidence[0]) < 1e-3


TINY = {
    "dino_tiny": ViTSpec(8, 48, 3, 3, image_size=64),  # other positions than 32 pixels need
    "dinov2_tiny": ViTSpec(8, 48, 3, 3, image_size=64, layer_scale=True, interpolate_in_float32=True),
    "dinov2_tiny_reg": ViTSpec(8, 48, 3, 3, image_size=64, layer_scale=True, registers=4, interpolation_offset=0.0,
                        antialias=True, interpolate_in_float32=True),
    "dino_tiny_native": ViTSpec(8, 48, 3, 3, image_size=32),
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


@pytest.mark.long
def test_a_vision_transformer_with_a_trained_classifier(folder, tiny):
    """Registers, resampled positions, two blocks in the tail, the folded last one, cosines; and the oracle's mark."""
    weights = tiny / "dinov2_tiny_reg.safetensors"
    oracle = sdas.Settings(oracle_clean_anchors=True)
    settings = Settings(
        4, **FAST, method=oracle, epochs=1, backbone="dinov2_tiny_reg", weights=weights, grad_from_block=1
    )
    found = discover(folder[0], settings, truth=folder[1], out=tiny / "run")
    assert json.loads((tiny / "run" / "model.json").read_text())["classifier"] == "cosine"
    shutil.rmtree(folder[0])
    out = export_onnx(tiny / "run", tiny / "model.onnx", weights=weights)
    assert out.difference < 1e-5
    assert out.checked_on == "noise, as the images no longer exist"
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


def test_an_onnxscript_that_does_not_fit_is_named(made, tmp_path, monkeypatch):
    def export(*_, **__):
        raise ModuleNotFoundError("No module named 'onnxscript._framework_apis.torch_2_11'")

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(UserError, match=r"does not fit the onnxscript .*torch_2_11.*pip install --upgrade onnxscript"):
        export_onnx(made / "run", tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
