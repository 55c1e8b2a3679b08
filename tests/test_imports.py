"""Who needs a part of newfound loads no more than that."""

import json
import subprocess
import sys

import pytest

import newfound.methods

COMMAND_LINE = {"tyro", "rich", "docstring_parser", "fastapi", "uvicorn", "starlette"}


def loaded_by(statement):
    """The packages that a fresh interpreter has after it."""
    code = f"import json, sys; {statement}; print(json.dumps([*sys.modules]))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "module", ["losses", "anchors", "sharpness"]
)  # those that need no scikit-learn, which has rich
def test_the_mathematics_needs_no_command_line(module):
    assert not loaded_by(f"import newfound.{module}") & COMMAND_LINE


def test_help_does_not_wait_for_torch():
    loaded = loaded_by("import newfound.app.main")
    assert "tyro" in loaded
    assert not loaded & {"torch", "numpy", "scipy", "sklearn", "PIL", "fastapi", "uvicorn"}


def test_help_of_a_method_does_not_wait_for_scikit_learn():
    """A quarter of the time until --help is there; torch is needed, as a method's settings are in its file."""
    methods = ", ".join(f"newfound.methods.{name}" for name in newfound.methods.METHODS)
    assert not loaded_by(f"import {methods}") & {"sklearn"}


def test_every_public_name_is_there():
    assert all(getattr(newfound, name) is not None for name in newfound.__all__)
    assert {*newfound.LOADED_WHEN_ASKED_FOR} < {*newfound.__all__}
    with pytest.raises(AttributeError, match="no attribute 'undiscover'"):
        newfound.undiscover  # noqa: B018
