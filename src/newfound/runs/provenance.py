"""Where a run comes from: images, labels, weights, versions, machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch

from newfound.images import ImageTable

PACKAGES = ("newfound", "torch", "numpy", "scikit-learn", "pillow")


def provenance(
    table: ImageTable, origin: Mapping[str, object], fingerprints: dict[str, str], first_training: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Sections of config.toml."""
    sections: dict[str, dict[str, Any]] = {name: {"fingerprint": value} for name, value in fingerprints.items()}
    sections["data"] |= {
        "folder": str(table.root.resolve()),
        **origin,
        "images": len(table),
        "labelled": table.n_labelled,
        "known_classes": table.n_known,
    }
    sections["stage1"] = first_training  # taken from elsewhere, and its settings where they differ
    sections["versions"] = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    sections["machine"] = {"processor": platform.machine(), "threads": torch.get_num_threads()}
    return {name: content for name, content in sections.items() if content}
