"""The map of a run, kept as map.npy in its folder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from newfound.flat_map import flat_map
from newfound.nearest_rows import Floats
from newfound.runs.folder import RunFolder


def map_of(run: RunFolder, embeddings: NDArray[np.floating]) -> Floats:
    """The map of a run, N×2 between 0 and 1: read if it is there and not older than the embeddings, else made."""
    path, source = run.path / "map.npy", run.path / "embeddings.npy"
    if path.is_file() and (not source.is_file() or path.stat().st_mtime_ns >= source.stat().st_mtime_ns):
        try:
            places = run.read_array(path.name)
        except (ValueError, OSError):
            places = np.empty(0)
        if places.shape == (len(embeddings), 2) and np.isfinite(places).all():
            return np.asarray(places, dtype=np.float32)
    places = flat_map(embeddings)
    run.write_array("map.npy", places)
    return places
