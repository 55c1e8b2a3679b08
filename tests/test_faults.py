"""Some of what `make torture` does in full, in a process of its own: it forks, and tests run threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helping.patience import PATIENCE

TORTURE = Path(__file__).with_name("torture.py")
BLOWS = {"killed", "review killed", "image deleted", "image changed", "clock back"}
ON_SMALL_DISKS = {"disk full", "folder read-only"}
PLACES = {"building the bank", "making the run folder", "training", "choosing anchors", "training with anchors",
          "writing results", "the report"}  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_nothing_is_lost(tmp_path):
    told = tmp_path / "blows.json"
    ended = subprocess.run(
        [sys.executable, str(TORTURE), "--json", str(told)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert told.exists(), ended.stderr
    blows = json.loads(told.read_text())
    assert [blow for blow in blows if blow["wrong"]] == []
    assert {blow["what"] for blow in blows} - ON_SMALL_DISKS == BLOWS
    if "No disk could be mounted" not in ended.stdout:  # unshare -Urm may be refused
        assert {blow["what"] for blow in blows} >= ON_SMALL_DISKS
    assert {blow["during"] for blow in blows if blow["what"] == "killed"} >= PLACES
    assert any(blow["during"].startswith("saving a decision") for blow in blows if blow["what"] == "review killed")
