"""What a run leaves behind to label other images with: model.safetensors and model.json, written and read here.

Beside tail and classifier there are references, by which an image that is none of the classes is recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from newfound.atomic import load_json
from newfound.backbones import Backbone, load_backbone
from newfound.backbones.weights import fingerprint
from newfound.errors import UserError, as_path, option
from newfound.methods import reading_note
from newfound.runs.assignments import Assignment
from newfound.runs.folder import RunFolder
from newfound.runs.none_of_these import likeness, references_of
from newfound.runs.tensor_files import WRITE_AGAIN, load_tensors
from newfound.settings import Settings
from newfound.settings.device import resolve_device
from newfound.settings.shared_ranges import LARGEST_IMAGE
from newfound.training.classifiers import CLASSIFIERS
from newfound.training.heads import CosineClassifier, WideHead
from newfound.training.learner import Prediction, Predictor


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with everything it needs, ready for new images."""

    backbone: Backbone
    predictor: Predictor
    class_names: tuple[str, ...]  # K: known ones first
    n_known: int
    references: Tensor  # R×d, length 1
    usual_distances: NDArray[np.float32]  # of labelled images from their nearest reference, sorted
    oracle: bool
    reading: str  # what to say of a method without public code; empty for other methods

    @torch.inference_mode()
    def label(self, tokens: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities B×K and likeness B (`none_of_these.likeness`), of what left the trunk."""
        features = self.predictor.features(tokens.to(self.references.device))
        probabilities = self.predictor.probabilities(features)
        return probabilities.double().cpu().numpy(), likeness(features, self.references, self.usual_distances)


def write_model(
    run: RunFolder,
    predictor: Predictor,
    embeddings: Tensor,
    backbone: Backbone,
    labels: NDArray[np.int64],
    assignment: Assignment,
    settings: Settings,
    oracle: str | None,
) -> None:
    """What predicts, references, and how pixels become input; embeddings.npy too."""
    run.write_array("embeddings.npy", embeddings.numpy())
    tensors = predictor_tensors(predictor)
    tensors["references"], tensors["usual_distances"] = references_of(embeddings, labels, settings.seed)
    marks = {"oracle": oracle, "reading": reading_note(settings)}
    mark = {name: text for name, text in marks.items() if text}
    run.write_tensors("model.safetensors", tensors, {"format": "newfound model", **mark})
    run.write_json(
        "model.json",
        {
            "backbone": backbone.name,
            "backbone_fingerprint": backbone.fingerprint,
            "grad_from_block": settings.grad_from_block,
            "image_size": backbone.image_size,
            "pixel_mean": backbone.pixel_mean,
            "pixel_std": backbone.pixel_std,
            "head": None if predictor.head is None else "wide",
            "classifier": predictor.classifier.kind,
            "temperature": predictor.temperature,
            "class_names": assignment.class_names,
            "known_classes": assignment.n_known,
            "fingerprint": fingerprint(tensors),
            **mark,
        },
    )


def write_imitation(
    run: RunFolder,
    source: Path,
    directions: Tensor,
    temperature: float,
    class_names: Sequence[str],
    facts: dict[str, Any],
) -> None:
    """The model of another run, but with these directions as its classifier; ``facts`` say what it imitates."""
    description, (tensors, metadata) = _description(source), load_tensors(source / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier.")}
    tensors["classifier.weight"] = directions
    run.write_tensors("model.safetensors", tensors, metadata)
    changed = {
        "classifier": CosineClassifier.kind,
        "temperature": temperature,
        "class_names": class_names,
        "fingerprint": fingerprint(tensors),
        "consensus": facts,
    }
    run.write_json("model.json", description | changed)


def temperature_of(run: Path) -> float:
    """How sharply the model of a run decides."""
    return float(_description(run)["temperature"])


def embeddings_of(prediction: Prediction) -> Tensor:
    """The features as a run keeps them: N×d, of length 1, in half precision."""
    return F.normalize(prediction.features, dim=1).half()


def predictor_tensors(predictor: Predictor) -> dict[str, Tensor]:
    """By name: those of tail, head and classifier."""
    parts = {"tail": predictor.tail, "head": predictor.head, "classifier": predictor.classifier}
    return {
        f"{part}.{name}": tensor
        for part, module in parts.items()
        if module is not None
        for name, tensor in module.state_dict().items()
    }


def load_model(run: Path | str, *, weights: Path | str | None = None, device: str = "auto") -> Model:
    """The model of a finished run; nothing but its two files is needed, and the backbone's weights."""
    path = as_path("run", run)
    given = None if weights is None else as_path("weights", weights)
    description, tensors = _description(path), load_tensors(path / "model.safetensors")[0]
    if "fingerprint" in description and description["fingerprint"] != fingerprint(
        tensors
    ):  # earlier versions wrote none
        raise UserError(
            f"{path / 'model.safetensors'} is damaged, or of another run than the model.json beside it: its numbers "
            f"are not those that were written. {WRITE_AGAIN}"
        )
    try:
        _check_description(description)
        return _assembled(path, description, tensors, given, device)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{path}: model.json and model.safetensors do not fit each other ({error}). {WRITE_AGAIN}"
        ) from error


def _assembled(
    path: Path, description: dict[str, Any], tensors: dict[str, Tensor], weights: Path | None, device: str
) -> Model:
    backbone = load_backbone(
        description["backbone"],
        image_size=description["image_size"],
        weights=weights,
        grad_from_block=description["grad_from_block"],
    )
    if backbone.fingerprint != description["backbone_fingerprint"]:
        raise UserError(f"{path} was trained on other weights of {backbone.name}. Give those with {option('weights')}.")
    if "references" not in tensors:
        raise UserError(f"the model in {path} is of an earlier version of newfound. Make the run again.")
    where = torch.device(resolve_device(device))
    predictor = _predictor(description, tensors, backbone)
    n_classes = predictor.classifier.n_classes
    if n_classes != len(description["class_names"]):
        raise ValueError(f"{n_classes} classes in one, {len(description['class_names'])} in the other")
    for part in (predictor.tail, predictor.head, predictor.classifier):
        if part is not None:
            part.eval().to(where)
    backbone.trunk.to(where)
    return Model(
        backbone=backbone,
        predictor=predictor,
        class_names=tuple(description["class_names"]),
        n_known=int(description["known_classes"]),
        references=tensors["references"].float().to(where),
        usual_distances=tensors["usual_distances"].numpy(),
        oracle="oracle" in description,
        reading=str(description.get("reading", "")),  # earlier versions wrote none
    )


def _predictor(description: dict[str, Any], tensors: dict[str, Tensor], backbone: Backbone) -> Predictor:
    tail = backbone.new_tail()
    tail.load_state_dict(_part("tail.", tensors))
    kind = description["classifier"]
    if kind not in CLASSIFIERS:
        raise ValueError(f"there is no classifier {kind!r}")
    classifier = CLASSIFIERS[kind].holding(_part("classifier.", tensors))
    head = None
    if description.get("head") is not None:  # earlier versions wrote none
        head = WideHead.sized_as(_part("head.", tensors))
        head.load_state_dict(_part("head.", tensors))
    return Predictor(tail, classifier, float(description["temperature"]), head)


def _part(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _check_description(description: dict[str, Any]) -> None:
    """What would not fail by itself, or not soon."""
    names = description["class_names"]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names are {names}")
    for name, low, high in (
        ("known_classes", 0, len(names)),
        ("image_size", 1, LARGEST_IMAGE),
        ("temperature", 1e-6, 1e6),
    ):
        if not low <= description[name] <= high:
            raise ValueError(f"{name} is {description[name]}")


def _description(path: Path) -> dict[str, Any]:
    for name in ("model.json", "model.safetensors"):
        if not (path / name).is_file():
            raise UserError(f"{path} has no {name}: there is no finished newfound run in it")
    try:
        description = load_json(path / "model.json")
    except ValueError as error:
        raise UserError(f"{path / 'model.json'} is damaged: {error}. {WRITE_AGAIN}") from error
    if not isinstance(description, dict):
        raise UserError(f"{path / 'model.json'} is malformed. {WRITE_AGAIN}")
    return description
