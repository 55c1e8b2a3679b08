"""What a study keeps as JSON, read back: a file that is damaged is named, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from newfound.errors import UserError
from newfound.hessian import Spectrum
from newfound.runs.results import read_json

WRITTEN_AGAIN = "Delete it and run the study again, which writes a new one."


def read_metrics(run: Path) -> dict[str, Any]:
    """metrics.json of a finished run with a truth."""
    path = run / "metrics.json"
    metrics = read_json(path, "all", "nmi", "ari", remedy=WRITTEN_AGAIN)
    if metrics is None:
        raise UserError(f"{path} is missing. Run the study again, which writes it.")
    return metrics


def read_class_count(path: Path) -> dict[str, Any] | None:
    """How many classes there seemed to be: ``of`` which images and backbone, ``best``, ``sentence``; None: no file."""
    count = read_json(path, "best", remedy=WRITTEN_AGAIN)
    if count is not None and not (isinstance(count["best"], int) and isinstance(count.get("sentence"), str)):
        raise _not_as_written(path)
    return count


def read_spectrum(path: Path) -> Spectrum | None:
    """The Hessian's spectrum where a run ended, None where it was not computed yet."""
    content = read_json(path, "largest", "smallest", "trace", "trace_error", remedy=WRITTEN_AGAIN)
    if content is None:
        return None
    try:
        spectrum = Spectrum.from_dict(content)
    except (KeyError, TypeError) as error:
        raise _not_as_written(path) from error
    values = (*spectrum.nodes, *spectrum.weights)
    if len(spectrum.nodes) != len(spectrum.weights) or not all(isinstance(value, int | float) for value in values):
        raise _not_as_written(path)
    return spectrum


def read_memory(path: Path) -> float | None:
    """Gigabytes that a run needed; None where the system did not tell, or an earlier version ran it."""
    content = read_json(path, remedy=WRITTEN_AGAIN)
    found = None if content is None else content.get("gigabytes", "nothing")
    if not isinstance(found, int | float | None):
        raise _not_as_written(path)
    return found


def _not_as_written(path: Path) -> UserError:
    return UserError(f"{path} is malformed. {WRITTEN_AGAIN}")
