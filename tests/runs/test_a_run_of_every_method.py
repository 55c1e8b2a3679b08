"""What a run of any method leaves behind serves those who come after it."""

import shutil

import numpy as np
import pytest

from helping.pictures import write_folder
from helping.quick_discovery import discover, fast
from newfound.methods import METHODS, load
from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.labelling import predict
from newfound.runs.removing import check_replaceable

pytestmark = pytest.mark.usefixtures("small_projector")
ALIKE = {"cms": 0.8, "hdbscan": 0.6}  # they cluster; the nearest centre, which labels other images, is another rule


@pytest.fixture(scope="module", params=METHODS)
def found(request, tmp_path_factory, small_projector):
    """A run of each method."""
    root = tmp_path_factory.mktemp(request.param)
    images, _ = write_folder(root)
    needs = load(request.param).NEEDS
    changes = {} if needs.training else {"epochs": None}
    settings = fast(None if needs.own_count else 4, method=request.param, bank_dir=root / "banks", **changes)
    return request.param, discover(images, settings, out=root / "run")


def test_its_model_files_label_its_images_as_it_did(found, tmp_path):
    method, found = found
    for name in ("model.json", "model.safetensors"):
        shutil.copy(found.run / name, tmp_path)
    results = found.results
    again = predict(tmp_path, [results.root / file for file in results.files], refused=0)
    names = np.array([*results.assignment.class_names, NONE_OF_THESE])[results.assignment.classes]
    assert (names == again.classes).mean() >= ALIKE.get(method, 1.0)


def test_it_may_be_replaced(found):
    check_replaceable(found[1].run)
