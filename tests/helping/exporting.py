"""A small run with awkward names, decisions on it, and how the tests of exports look at files."""

import csv
import hashlib
import os

from newfound.export.reviewed_run import NOT_A_CLASS_NAME
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results
from newfound.screen import Screen

HOSTILE = '../a/b: "shoe" <&> $x'
ODD = os.fsdecode(b"unlabelled/caf\xe9 #1&2.png")
TWIN = "unlabelled/deeper/001.png"  # a name that red/001.png has, too
FAST = {"image_size": 32, "bank_views": 2, "batch_size": 12}


class Heard(Screen):
    def __init__(self):
        super().__init__(quiet=True)
        self.lines, self.warnings = [], []

    def say(self, text):
        self.lines.append(text)

    def warn(self, text):
        self.warnings.append(text)


def decide_on(run):
    """green is renamed, the first new class is merged into it, the second is dismissed; some images are judged."""
    log = DecisionLog(read_results(run))
    green, red, first, second = range(4)
    reds, dismissed = log.reviewed.members(red), log.reviewed.members(second)
    files = log.results.files
    for decision in (
        {"action": "rename", "class": green, "name": HOSTILE},
        {"action": "merge", "classes": [first], "into": green},
        {"action": "dismiss", "class": second},
        {"action": "move", "images": [files[dismissed[0]]], "to": red},
        {"action": "move", "images": [files[dismissed[1]]], "to": None, "name": NOT_A_CLASS_NAME},
        {"action": "judge", "images": [files[reds[0]]], "verdict": -1},
        {"action": "judge", "images": [files[reds[-1]]], "verdict": 1},
    ):
        log.decide(decision, log.revision)
    return log.reviewed


def rows(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


def digests(folder):
    """Of everything below: content, time and mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = os.stat(path)
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (hashlib.sha256(content).hexdigest(), status.st_mtime_ns, status.st_mode)
    return found
