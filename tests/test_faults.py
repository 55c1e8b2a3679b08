"""Some of what `make torture` does in full, in a process of its own: it forks, and tests run threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
TORTURE = Path(__file__).with_name("torture.py")
WHAT = ["killed", "review killed", "image deleted", "image changed", "clock back", "disk full", "folder read-only"]


@pytest.fixture(scope="module")
def blows(tmp_path_factory):
    told = tmp_path_factory.mktemp("torture") / "blows.json"
    ended = subprocess.run(
        [sys.executable, str(TORTURE), "--json", str(told)],
        capture_output=True,
        text=True,
        check=False,
        timeout=420,
    )
    assert told.exists(), ended.stderr
    return json.loads(told.read_text())


@pytest.mark.parametrize("what", WHAT)
def test_nothing_is_lost(blows, what):
    of_this = [blow for blow in blows if blow["what"] == what]
    if not of_this and what in WHAT[-2:]:
        pytest.skip("no disk can be mounted here: unshare -Urm is refused")
    assert of_this
    assert [blow for blow in of_this if blow["wrong"]] == []


def test_kills_come_in_different_places(blows):
    during = {blow["during"] for blow in blows if blow["what"] == "killed"}
    assert len(during) > 2
    assert any("training" in name for name in during)
