"""What a run leaves behind to label other images with: model.safetensors and model.json, written and read here.

Beside tail and classifier there are *references*, features of the run's own images. An image whose nearest reference is
farther away than that of almost any labelled image is unlike all that was seen; docs/predict.md has it with numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from newfound.atomic import load_json
from newfound.backbones import Backbone, load_backbone
from newfound.backbones.weights import fingerprint
from newfound.errors import UserError
from newfound.runs.assignment import Assignment
from newfound.runs.folder import ANEW, RunFolder, load_tensors
from newfound.settings import LARGEST_IMAGE, Settings, resolve_device
from newfound.training.heads import CosineClassifier, NearestCentre
from newfound.training.loop import Trained

REFERENCES = 5000  # at most: 13 MB of EfficientNet's features
STREAM = 7  # of the random numbers: see CONTRIBUTING
BLOCK = 1024  # images whose distances are held at a time


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with everything it needs, ready for new images."""

    backbone: Backbone
    tail: nn.Module
    classifier: CosineClassifier | NearestCentre
    temperature: float
    class_names: tuple[str, ...]  # K: known ones first
    n_known: int
    references: Tensor  # R×d, length 1
    usual_distances: NDArray[np.float32]  # of labelled images from their nearest reference, sorted
    oracle: bool

    @torch.inference_mode()
    def label(self, tokens: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities B×K and likeness B, of what left the trunk.

        Likeness is the share of labelled images that lie at least as far from all others as this one does.
        """
        features = self.tail(tokens.to(self.references.device))
        probabilities = (self.classifier(features) / self.temperature).softmax(dim=1)
        nearest = (F.normalize(features, dim=1) @ self.references.T).amax(dim=1)
        closer = np.searchsorted(self.usual_distances, (1 - nearest).cpu().numpy(), side="left")
        return probabilities.double().cpu().numpy(), 1 - closer / len(self.usual_distances)


def write_model(
    run: RunFolder,
    trained: Trained,
    kept: Tensor,
    backbone: Backbone,
    labels: NDArray[np.int64],
    assignment: Assignment,
    settings: Settings,
    oracle: str | None,
) -> None:
    """Tail, classifier with the ``kept`` classes alone, references, and how pixels become input; embeddings.npy too."""
    unit = F.normalize(trained.prediction.features, dim=1).half()
    run.write_array("embeddings.npy", unit.numpy())
    tensors = {name: t for name, t in trained.model.state_dict().items() if not name.startswith("projector.")}
    tensors["classifier.weight"] = tensors["classifier.weight"][kept]
    tensors["references"], tensors["usual_distances"] = references_of(unit, labels, settings.seed)
    mark = {} if oracle is None else {"oracle": oracle}
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
            "classifier": "nearest centre" if isinstance(trained.model.classifier, NearestCentre) else "cosine",
            "temperature": settings.student_temperature,
            "class_names": assignment.class_names,
            "known_classes": assignment.n_known,
            "fingerprint": fingerprint(tensors),
            **mark,
        },
    )


def references_of(features: Tensor, labels: NDArray[np.int64], seed: int) -> tuple[Tensor, Tensor]:
    """Some or all of the features (N×d, length 1), and how far labelled images are from the nearest other one, sorted.

    Where fewer than two images are labelled, all are taken as if they were.
    """
    n = len(features)
    chosen = np.arange(n)
    if n > REFERENCES:
        chosen = np.sort(np.random.default_rng([seed, STREAM]).choice(n, REFERENCES, replace=False))
    references = features[chosen]
    judged = np.flatnonzero(labels >= 0)
    judged = judged if len(judged) > 1 else np.arange(n)
    distances = []
    for start in range(0, len(judged), BLOCK):
        block = judged[start : start + BLOCK]
        cosines = features[block].float() @ references.float().T
        cosines[torch.from_numpy(block[:, None] == chosen[None])] = -1.0  # not from itself
        distances.append(1 - cosines.amax(dim=1))
    return references, torch.cat(distances).sort().values


def load_model(run: Path | str, *, weights: Path | None = None, device: str = "auto") -> Model:
    """The model of a finished run; nothing but its two files is needed, and the backbone's weights."""
    path = Path(run)
    told, tensors = _description(path), load_tensors(path / "model.safetensors")[0]
    if "fingerprint" in told and told["fingerprint"] != fingerprint(tensors):  # earlier versions wrote none
        raise UserError(
            f"{path / 'model.safetensors'} is damaged, or of another run than the model.json beside it: its numbers "
            f"are not those that were written. {ANEW}"
        )
    try:
        _check_description(told)
        return _assembled(path, told, tensors, weights, device)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path}: model.json and model.safetensors do not fit each other ({error}). {ANEW}") from error


def _assembled(
    path: Path, told: dict[str, Any], tensors: dict[str, Tensor], weights: Path | None, device: str
) -> Model:
    backbone = load_backbone(
        told["backbone"], image_size=told["image_size"], weights=weights, grad_from_block=told["grad_from_block"]
    )
    if backbone.fingerprint != told["backbone_fingerprint"]:
        raise UserError(f"{path} was trained on other weights of {backbone.name}. Give those with --weights.")
    if "references" not in tensors:
        raise UserError(f"the model in {path} is of an earlier version of newfound. Make the run again.")
    where = torch.device(resolve_device(device))
    tail = backbone.new_tail()
    tail.load_state_dict({name[5:]: t for name, t in tensors.items() if name.startswith("tail.")})
    weight = tensors["classifier.weight"]
    if len(weight) != len(told["class_names"]):
        raise ValueError(f"{len(weight)} classes in one, {len(told['class_names'])} in the other")
    classifier = _classifier(told["classifier"], weight)
    backbone.trunk.to(where)
    return Model(
        backbone=backbone,
        tail=tail.eval().to(where),
        classifier=classifier.to(where),
        temperature=float(told["temperature"]),
        class_names=tuple(told["class_names"]),
        n_known=int(told["known_classes"]),
        references=tensors["references"].float().to(where),
        usual_distances=tensors["usual_distances"].numpy(),
        oracle="oracle" in told,
    )


def _check_description(told: dict[str, Any]) -> None:
    """What would not fail by itself, or not soon."""
    names = told["class_names"]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names are {names}")
    for name, low, high in (
        ("known_classes", 0, len(names)),
        ("image_size", 1, LARGEST_IMAGE),
        ("temperature", 1e-6, 1e6),
    ):
        if not low <= told[name] <= high:
            raise ValueError(f"{name} is {told[name]}")


def _classifier(kind: str, weight: Tensor) -> CosineClassifier | NearestCentre:
    if kind == "nearest centre":
        return NearestCentre(weight)
    if kind != "cosine":
        raise ValueError(f"there is no classifier {kind!r}")
    classifier = CosineClassifier(weight.shape[1], len(weight))
    classifier.load_state_dict({"weight": weight})
    return classifier


def _description(path: Path) -> dict[str, Any]:
    for name in ("model.json", "model.safetensors"):
        if not (path / name).is_file():
            raise UserError(f"{path} has no {name}: there is no finished newfound run in it")
    try:
        told = load_json(path / "model.json")
    except ValueError as error:
        raise UserError(f"{path / 'model.json'} is damaged: {error}. {ANEW}") from error
    if not isinstance(told, dict):
        raise UserError(f"{path / 'model.json'} is not as a run writes it. {ANEW}")
    return told
