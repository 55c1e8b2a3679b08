"""Some of what `make torture` does in full, in a process of its own: it forks, and tests run threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helping.patience import PATIENCE

TORTURE = Path(__file__).with_name("torture.py")
FAULTS = {"killed", "review killed", "image deleted", "image changed"}
ON_SMALL_DISKS = {"disk full", "folder read-only"}
PLACES = {"building the bank", "making the run folder", "grouping the frozen features", "training",
          "choosing anchors", "training with anchors", "writing results", "the report"}  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_nothing_is_lost(tmp_path):
    told = tmp_path / "faults.json"
    ended = subprocess.run(
        [sys.executable, str(TORTURE), "--json", str(told)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert told.exists(), ended.stderr
    faults = json.loads(told.read_text())
    assert [fault for fault in faults if fault["wrong"]] == []
    assert {fault["what"] for fault in faults} - ON_SMALL_DISKS == FAULTS
    if "No disk could be mounted" not in ended.stdout:  # unshare -Urm may be refused
        assert {fault["what"] for fault in faults} >= ON_SMALL_DISKS
    assert {fault["during"] for fault in faults if fault["what"] == "killed"} >= PLACES
    assert any(fault["during"].startswith("saving a decision") for fault in faults if fault["what"] == "review killed")
