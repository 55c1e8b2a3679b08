"""Parameters of the estimator as settings of a training, and errors in the words of its parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, get_type_hints

import numpy as np
from sklearn.utils import check_random_state

from newfound.errors import SettingError, UserError
from newfound.methods import load, reading_note, with_own, without_effect
from newfound.settings import Settings
from newfound.settings.value_types import described, fits

NARROW, WIDE = 256, 2048  # of the projector; the latter is SimGCD's, for features of 768 numbers
# Of the settings: what goes by another name here, and what has a meaning for image files alone
RENAMED = {"classes": "n_classes", "seed": "random_state"}
OF_IMAGES = ("backbone", "weights", "grad_from_block", "image_size", "views", "bank_views", "bank_dir")


def settings_of(parameters: Mapping[str, Any], n_features: int) -> Settings:
    """The parameters as settings, each of a type that fits.

    Those that have no effect with the method are left out; what was given in ``settings`` is not. A method whose code
    is not public is warned of.
    """
    name = parameters["method"]
    if not isinstance(name, str):
        raise ValueError(f"method must be str; found {name!r}")
    method = load(name)
    types = {**get_type_hints(Settings), **get_type_hints(method.Settings)}
    own = {key: value for key, value in parameters.items() if key in types and key != "method"}
    more = dict(parameters["settings"] or {})
    of_runs = {*OF_IMAGES, method.NEEDS.first_training_from, method.NEEDS.oracle}
    if wrong := sorted(more.keys() - (types.keys() - {*own, *RENAMED, *of_runs, "method"})):
        raise ValueError(f"settings has {', '.join(wrong)}: not a training setting, or a parameter of its own")
    values = {key: _plain(value) for key, value in {**own, **more, "classes": parameters["n_classes"]}.items()}
    for key, value in values.items():
        if not fits(value, types[key]) and value is not None:
            raise ValueError(f"{_parameter(key)} must be {described(types[key])}; found {value!r}")
    idle = without_effect(Settings(method=name)).keys()
    values = {key: value for key, value in values.items() if key not in idle or key in more}
    if "projector_width" not in idle:
        values.setdefault("projector_width", min(max(4 * n_features, NARROW), WIDE))
    seed = int(check_random_state(parameters["random_state"]).randint(np.iinfo(np.int32).max))
    settings = with_own(Settings(method=name, seed=seed), values)
    warn_once(reading_note(settings))
    return settings


@cache
def warn_once(text: str) -> None:
    """Whoever called ``fit``, if there is something to say; once, as a search fits many times."""
    if text:
        warnings.warn(text, stacklevel=4)


@contextmanager
def value_errors() -> Iterator[None]:
    """What a person can fix is a ValueError here, and speaks of parameters."""
    try:
        yield
    except SettingError as error:
        raise ValueError(error.phrased(_parameter)) from error
    except UserError as error:
        raise ValueError(str(error)) from error


def _parameter(name: str) -> str:
    return RENAMED.get(name, name)


def _plain(value: Any) -> Any:
    """A search hands NumPy's numbers over."""
    return value.item() if isinstance(value, np.generic) else value
