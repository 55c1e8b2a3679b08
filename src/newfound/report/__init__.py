"""The report: one page that opens offline, written from a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from newfound.atomic import write_atomically
from newfound.report.content import page_content, stability_of
from newfound.report.findings import Findings, similar_classes, wrong_labels
from newfound.report.kept_map import map_of
from newfound.report.large_classes import large_known_classes
from newfound.report.near_duplicates import SAME_FEATURES, SAME_LOOK, duplicate_groups, similar_pairs
from newfound.report.page import render_page
from newfound.report.thumbnails import Thumbnails, gallery_order, make_thumbnails
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import Results
from newfound.screen import Screen
from newfound.text import counted

__all__ = ["NAME", "look_through", "write_report", "write_report_again"]

NAME = "report.html"


def write_report(results: Results, screen: Screen, state: dict[str, Any] | None = None) -> Path:
    """Write report.html, and map.npy if need be, to the run folder; ``state``: of a review, or the model's own."""
    content, thumbnails = look_through(results, screen, state)
    path = results.run.path / NAME
    with write_atomically(path) as file:
        file.write(render_page(content, thumbnails.pictures))
    if thumbnails.unreadable:
        screen.warn(f"{counted(thumbnails.unreadable, 'image')} without a picture in {path}: no longer readable")
    return path


def write_report_again(results: Results, screen: Screen) -> Path:
    """The report as decisions have it, while nobody else works in the run folder."""
    with results.run.held():
        return write_report(results, screen, DecisionLog(results).state())


def look_through(
    results: Results, screen: Screen, state: dict[str, Any] | None = None
) -> tuple[dict[str, Any], Thumbnails]:
    """Everything a page shows: its content, and the pictures."""
    a, embeddings = results.assignment, results.embeddings
    screen.say("checking for suspicious labels, and drawing the map")
    with threadpool_limits(1):  # the same sums, and so the same findings, on every number of cores
        labels = wrong_labels(embeddings, results.given, a.classes, a.confidence, a.runner_up_confidence)
        placed = np.flatnonzero(a.classes >= 0)
        merges = similar_classes(embeddings[placed], a.classes[placed], a.runner_up[placed], a.n_known)
        large = large_known_classes(embeddings, results.given, a.classes, a.n_known)
        copies = similar_pairs(embeddings, SAME_FEATURES)
        places = map_of(results.run, embeddings)
        needed = [item.image for item in labels] + copies.first.tolist() + copies.second.tolist()
        needed += [i for item in large for i in item.images]
        needed += [i for entry in (stability_of(results) or {}).get("elsewhere", []) for i in entry["images"]]
        thumbnails = make_thumbnails(
            results.root, results.files, gallery_order(a.classes, a.confidence, needed), screen
        )
        looks_alike = similar_pairs(thumbnails.looks, SAME_LOOK).of(np.array(list(thumbnails.pictures), np.int64))
    findings = Findings(labels, duplicate_groups(copies, looks_alike), merges, large)
    content = page_content(results, places, findings, state)
    content["thumbnails"] = {"unreadable": thumbnails.unreadable, "left_out": thumbnails.left_out}
    return content, thumbnails
