"""MATLAB files, in which some owners keep their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from newfound.errors import UserError
from newfound.research.datasets.benchmark import get_again
from newfound.research.datasets.facts import Facts


def read_matlab(facts: Facts, path: Path, variable: str) -> Any:
    """One variable of a MATLAB file."""
    from scipy.io import loadmat

    try:
        return loadmat(path, squeeze_me=True, variable_names=[variable])[variable]
    except Exception as error:  # damaged bytes make the reader raise almost anything
        detail = " ".join(str(error).split())
        raise UserError(f"{path}: `{variable}` cannot be read from it ({detail}); {get_again(facts)}") from error
