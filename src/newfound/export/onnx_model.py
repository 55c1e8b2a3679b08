"""One ONNX graph from pixels to probabilities, checked against torch before it is written.

pixels  B×S×S×3 uint8, the evaluation view      probabilities  B×K, classes as after a review
                                                likeness       B, as of `newfound predict`
                                                features       B×d, length 1
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from newfound.backbones import Backbone
from newfound.backbones.vit import ViTTrunk
from newfound.errors import UserError, as_path
from newfound.export.outputs import check_free, need, new_file
from newfound.export.reviewed_run import distinct, plain
from newfound.images.decode import Unreadable, open_image
from newfound.images.views import RECIPE, resized_side, views_of
from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.labelling import decided_names
from newfound.runs.model import Model, load_model
from newfound.runs.none_of_these import REFUSED
from newfound.runs.results import read_results
from newfound.screen import Screen, megabytes
from newfound.sources.bank import run_trunk

OUTPUTS = ("probabilities", "likeness", "features")
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-3  # of a probability, between onnxruntime and torch
CHECKED = (1, 5)  # batch sizes
TRIED = 200  # images of the run, at most, to find some that are still there
DISTANCES = 10_000  # at most, of those that likeness is counted among: it then is exact to 1 in 10,000
EXAMPLE = """\
import json, sys, numpy, onnxruntime, PIL.Image, PIL.ImageOps

model = onnxruntime.InferenceSession({file})
about = {{key: json.loads(text) for key, text in model.get_modelmeta().custom_metadata_map.items()}}
photo, size, side = PIL.Image.open(sys.argv[1]), about["image_size"], about["shorter_side"]
photo.draft(None, (2 * side, 2 * side))  # a large JPEG is decoded at a smaller size, as newfound does
photo = PIL.ImageOps.exif_transpose(photo).convert("RGB")
photo = photo.resize([max(side, side * n // min(photo.size)) for n in photo.size], PIL.Image.Resampling.BICUBIC)
left, top = [round((n - size) / 2) for n in photo.size]
(p,), (likeness,), _ = model.run(None, {{"pixels": numpy.asarray(photo)[None, top : top + size, left : left + size]}})
print(about["classes"][p.argmax()] if likeness >= about["refused"] else "none of these", p.max(), likeness)
"""


@dataclass(frozen=True)
class OnnxExport:
    """What was written, and how far onnxruntime's probabilities are from torch's at most."""

    file: Path
    classes: tuple[str, ...]  # of the columns of ``probabilities``
    difference: float
    checked_on: str
    example: str  # Python that needs onnxruntime, numpy and pillow alone; the image is its argument


def export_onnx(
    run: Path | str, out: Path | str, *, weights: Path | str | None = None, screen: Screen | None = None
) -> OnnxExport:
    """Write the model of a finished run as ONNX, and say how to use it.

    Classes have the names of a review; those merged in it are one column, those dismissed are "none of these".
    """
    need("onnx", *PACKAGES)
    screen, out = screen or Screen(quiet=True), as_path("out", out)
    check_free(out)
    model = load_model(run, weights=weights, device="cpu")
    classes, merging = merged_columns(decided_names(Path(run), model))
    screen.say("exporting; this takes up to a minute")
    content = _graph_bytes(model, merging, _metadata(model, classes, merging))
    pixels, checked_on = _sample(Path(run), model.backbone.image_size)
    difference = _largest_difference(content, model, merging, pixels)
    if not difference <= TOLERANCE:  # NaN is none either
        raise UserError(
            f"{out} is not written: on {checked_on} its probabilities are up to {difference:.2g} from torch's; "
            f"{TOLERANCE} is allowed. Other versions of onnxruntime or torch may do better."
        )
    with new_file(out, "wb") as file:
        file.write(content)
    export = OnnxExport(out, classes, difference, checked_on, EXAMPLE.format(file=json.dumps(str(out))))
    screen.say(f"{out}: {megabytes(len(content))}, {len(classes)} classes, any number of images at a time")
    screen.say(f"largest difference from torch in a probability: {difference:.1e}, on {checked_on}")
    screen.say(f"to use it without newfound (python example.py photo.jpg):\n\n{export.example}")
    return export


def merged_columns(names: list[str | None]) -> tuple[tuple[str, ...], Tensor]:
    """The columns that are left, and the K×columns matrix of 0 and 1 which adds up classes that go by one name.

    >>> merged_columns(["cat", None, "shoe", "shoe"])[0]
    ('cat', 'shoe', 'none of these')
    """
    columns: list[str | None] = [name for name in dict.fromkeys(names) if name is not None]
    columns += [None] if None in names else []
    merging = torch.zeros(len(names), len(columns))
    for k, name in enumerate(names):
        merging[k, columns.index(name)] = 1
    return tuple(distinct(NONE_OF_THESE if name is None else plain(name) for name in columns)), merging


class Graph(nn.Module):
    """Everything from pixels on, as one module."""

    def __init__(self, model: Model, merging: Tensor) -> None:
        super().__init__()
        backbone, usual = model.backbone, torch.from_numpy(model.usual_distances)
        if len(usual) > DISTANCES:
            usual = usual[torch.linspace(0, len(usual) - 1, DISTANCES, dtype=torch.float64).round().long()]
        self.trunk = ViTTokens(backbone) if isinstance(backbone.trunk, ViTTrunk) else backbone.trunk
        self.predictor = model.predictor
        self.parts = nn.ModuleList(part for part in (self.predictor.tail, self.predictor.head) if part is not None)
        self.classifier = self.predictor.classifier
        constants = {
            "mean": torch.tensor(backbone.pixel_mean), "std": torch.tensor(backbone.pixel_std), "merging": merging,
            "references": model.references, "usual": usual,
        }  # fmt: skip
        for name, tensor in constants.items():
            self.register_buffer(name, tensor)

    mean: Tensor
    std: Tensor
    merging: Tensor
    references: Tensor
    usual: Tensor

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """B×S×S×3 uint8 to the `OUTPUTS`."""
        images = ((pixels.float() - self.mean) / self.std).permute(0, 3, 1, 2)
        features = self.predictor.features(self.trunk(images))
        probabilities = self.predictor.probabilities(features) @ self.merging
        unit = F.normalize(features, dim=1)
        distances = 1 - (unit @ self.references.T).amax(dim=1)
        return probabilities, (self.usual >= distances[:, None]).float().mean(dim=1), unit


class ViTTokens(nn.Module):
    """A ViT's trunk for one image size: positions resampled beforehand, as ONNX's bicubic is another one."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        trunk = backbone.trunk
        assert isinstance(trunk, ViTTrunk)
        side = backbone.image_size // trunk.spec.patch_size
        positions = trunk.positions(side, side).detach()
        first = [trunk.cls_token + positions[:, :1], *([trunk.register_tokens] if trunk.spec.registers else [])]
        self.trunk = trunk
        self.register_buffer("first", torch.cat(first, dim=1).detach())  # 1×(1+registers)×D
        self.register_buffer("positions", positions[:, 1:])  # 1×N×D

    first: Tensor
    positions: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """B×3×S×S to what the trunk gives."""
        patches = self.trunk.patch_embed(images) + self.positions
        # shape[0], not len(): that would make the batch size a constant of the graph
        return self.trunk.run_blocks(torch.cat([self.first.expand(patches.shape[0], -1, -1), patches], dim=1))


def _graph_bytes(model: Model, merging: Tensor, metadata: dict[str, str]) -> bytes:
    import onnx

    size = model.backbone.image_size
    graph = Graph(model, merging).eval().requires_grad_(False)
    with _without_chatter():
        try:
            program = torch.onnx.export(
                graph,
                (torch.zeros(2, size, size, 3, dtype=torch.uint8),),
                dynamo=True,
                input_names=["pixels"],
                output_names=list(OUTPUTS),
                dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
        except ModuleNotFoundError as error:
            raise UserError(
                f"torch {torch.__version__} does not fit the onnxscript that is installed ({error}). Update it: "
                "pip install --upgrade onnxscript"
            ) from error
        except torch.onnx.OnnxExporterError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"torch {torch.__version__} cannot write this model as ONNX: {reason}") from error
    assert program is not None
    proto = program.model_proto
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        del part.metadata_props[:]  # lines of our source, with the paths of this machine
    onnx.helper.set_model_props(proto, metadata)
    try:
        content: bytes = proto.SerializeToString()
    except ValueError as error:
        raise UserError(f"the model is larger than the 2 GB that one ONNX file can hold: {error}") from error
    return content


@contextmanager
def _without_chatter() -> Iterator[None]:
    """No warnings about the exporter's own insides; its errors are exceptions and come through."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _metadata(model: Model, classes: tuple[str, ...], merging: Tensor) -> dict[str, str]:
    """Each value is JSON."""
    known = merging[: model.n_known].sum(dim=0) > 0
    about: dict[str, Any] = {
        "classes": classes,
        "known_classes": [name for name, is_known in zip(classes, known.tolist(), strict=True) if is_known],
        "image_size": model.backbone.image_size,
        "shorter_side": resized_side(model.backbone.image_size),
        "view": f"upright RGB; {RECIPE.split(',')[0]}, then the centre crop",
        "refused": REFUSED,
        "backbone": model.backbone.name,
        "newfound_version": version("newfound"),
    }
    if model.oracle:
        about["oracle"] = "the truth was used in training, for analysis"
    if model.reading:
        about["reading"] = model.reading
    return {name: json.dumps(value) for name, value in about.items()}


# Parity


def _sample(run: Path, size: int) -> tuple[NDArray[np.uint8], str]:
    """Views of images of the run, or noise where they are gone: n×S×S×3, and what they are."""
    wanted = max(CHECKED)
    views: list[NDArray[np.uint8]] = []
    for path in _some_images(run, TRIED):
        try:
            views.append(views_of(open_image(path, shorter_side=resized_side(size)), size, 0, "", []))
        except (Unreadable, OSError):
            continue
        if len(views) == wanted:
            return np.concatenate(views), f"{wanted} of the run's images"
    noise = np.random.default_rng(0).integers(0, 256, (wanted - len(views), size, size, 3), dtype=np.uint8)
    images = f"{len(views)} of the run's images and noise" if views else "noise, as the images no longer exist"
    return np.concatenate([*views, noise]), images


def _some_images(run: Path, n: int) -> list[Path]:
    """Spread over the run; a model alone, without the run's other files, has none."""
    try:
        results = read_results(run)
        root = results.root
    except (UserError, KeyError):
        return []
    return [root / results.files[i] for i in np.unique(np.linspace(0, len(results) - 1, n).astype(int))]


def _largest_difference(content: bytes, model: Model, merging: Tensor, pixels: NDArray[np.uint8]) -> float:
    """Between onnxruntime's and torch's labelling, in any probability, over all `CHECKED` batch sizes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    differences = []
    for n in CHECKED:
        batch = pixels[:n]
        expected = model.label(run_trunk(model.backbone, batch))[0] @ merging.double().numpy()
        differences.append(np.abs(session.run(OUTPUTS[:1], {"pixels": batch})[0] - expected).max())
    return float(np.max(differences))
