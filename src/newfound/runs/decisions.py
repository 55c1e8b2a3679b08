"""What a person decided about a run, kept on disk and replayed over the model's own answer.

decisions.json is rewritten whole or not at all with every decision, so it survives a kill at any point:

    {"version": 1, "results": "sha256 of assignments.csv", "revision": 3, "class_names": ["cat", "sandals", null],
     "decisions": [{"action": "rename", "class": 1, "name": "sandals", "at": "2026-01-31T09:30:00+00:00"}, ...],
     "undone": [...]}

The model's files are never changed: what they and the decisions amount to together is `reviewed.Reviewed`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from newfound.atomic import load_json, write_atomically
from newfound.errors import UserError
from newfound.runs.results import Results, digest_of
from newfound.runs.review_state import Decision, Refused, Reviewed

VERSION = 1


class Outdated(UserError):
    """A decision made while looking at an older state."""


class DecisionLog:
    """decisions.json of a run; whoever writes it holds the run folder's lock."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.path = results.run.path / "decisions.json"
        self._digest = digest_of(results.run.path)
        self.revision, self.decisions, self.undone = self._read()
        try:
            self.reviewed = Reviewed.of(results, self.decisions)
        except Refused as error:
            raise UserError(f"{self.path} has an impossible decision: {error}. Move it away to start again.") from error

    def decide(self, decision: Decision, revision: int) -> None:
        """Apply, and write down; on disk when this returns."""
        self._check(revision)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        decision = {**decision, "at": at}
        self._become([*self.decisions, decision], [])

    def undo(self, revision: int) -> None:
        """Take the last decision back."""
        self._check(revision)
        if not self.decisions:
            raise Refused("there is nothing to undo")
        self._become(self.decisions[:-1], [*self.undone, self.decisions[-1]])

    def redo(self, revision: int) -> None:
        """Decide again what was undone last."""
        self._check(revision)
        if not self.undone:
            raise Refused("there is nothing to redo")
        self._become([*self.decisions, self.undone[-1]], self.undone[:-1])

    def state(self) -> dict[str, Any]:
        """For the page: the classes, and what could be undone and redone."""
        last, next_ = self.decisions[-1:], self.undone[-1:]
        return {
            "revision": self.revision,
            **self.reviewed.state(),
            "undo": last[0]["action"] if last else None,
            "redo": next_[0]["action"] if next_ else None,
        }

    def _check(self, revision: int) -> None:
        if revision != self.revision:
            raise Outdated("something was decided elsewhere in the meantime: this is the current state. Decide again.")

    def _become(self, decisions: list[Decision], undone: list[Decision]) -> None:
        reviewed = Reviewed.of(self.results, decisions)  # raises before anything is written
        content = {
            "version": VERSION,
            "results": self._digest,
            "revision": self.revision + 1,
            "class_names": reviewed.model_names(),  # all that labelling other images needs to know
            "decisions": decisions,
            "undone": undone,
        }
        with write_atomically(self.path) as file:
            json.dump(content, file, indent=1)
        self.revision, self.decisions, self.undone, self.reviewed = self.revision + 1, decisions, undone, reviewed

    def _read(self) -> tuple[int, list[Decision], list[Decision]]:
        if not self.path.exists():
            return 0, [], []
        try:
            content = load_json(self.path)
            version, digest = content["version"], content["results"]
            decisions, undone = [dict(d) for d in content["decisions"]], [dict(d) for d in content["undone"]]
            revision = int(content["revision"])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise UserError(f"{self.path} cannot be read: {error!r}. Move it away to start again.") from error
        if version != VERSION:
            raise UserError(f"{self.path} has version {version}; this newfound knows {VERSION}. Update newfound.")
        if digest != self._digest:
            raise UserError(
                f"{self.path} belongs to other results: assignments.csv has changed since. Move one of them away."
            )
        return revision, decisions, undone


def reviewed_of(results: Results) -> Reviewed:
    """A run with the decisions that were made on it, if any."""
    return DecisionLog(results).reviewed


def initial_state(results: Results) -> dict[str, Any]:
    """For a page that nobody has decided on."""
    return {"revision": 0, **Reviewed.of(results).state(), "undo": None, "redo": None}
