"""Saved runs of methods that predict with more than a direction per class: labelling again, and as an ONNX graph."""

import json

import numpy as np
import pytest

from helping import hostile
from helping.pictures import write_folder
from helping.quick_discovery import FAST, discover, rows
from newfound.export import export_onnx
from newfound.runs.labelling import predict
from newfound.runs.model import load_model
from newfound.settings import Settings
from newfound.sources.bank import run_trunk

KINDS = {"uno": "split", "rankstats": "linear"}


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory):
    """A trained run, with a trunk that takes no time; and the kind of its classifier."""
    root = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        hostile.make_quick(patch)
        discover(write_folder(root)[0], Settings(4, request.param, **FAST, bank_dir=root / "bank"), out=root / "run")
        yield root, KINDS[request.param]


def test_the_saved_model_labels_the_images_as_the_run_did(saved):
    root, kind = saved
    assert json.loads((root / "run" / "model.json").read_text())["classifier"] == kind
    labelled = predict(root / "run", root / "images", refused=0.0)
    of_run = {str(root / "images" / row["file"]): row for row in rows(root / "run" / "assignments.csv")}
    assert of_run.keys() == set(labelled.files)
    for file, name, confidence in zip(labelled.files, labelled.classes, labelled.confidence, strict=True):
        assert name == of_run[file]["class"]
        assert confidence == pytest.approx(float(of_run[file]["confidence"]), abs=2e-6)


@pytest.mark.long
def test_the_graph_labels_as_the_model_does(saved, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    root, _ = saved
    out = export_onnx(root / "run", tmp_path / "model.onnx")
    assert out.difference < 1e-5
    model = load_model(root / "run", device="cpu")
    assert len(out.classes) == model.predictor.classifier.n_classes
    session = onnxruntime.InferenceSession(str(out.file), providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    probabilities, likeness = model.label(run_trunk(model.backbone, pixels))
    found = session.run(None, {"pixels": pixels})
    np.testing.assert_allclose(found[0], probabilities, atol=1e-5)
    np.testing.assert_allclose(found[1], likeness, atol=1e-6)
