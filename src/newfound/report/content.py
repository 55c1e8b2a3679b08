"""What the page shows, as one dictionary that JSON can hold."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from newfound.errors import UserError
from newfound.methods import own_settings, reading_note
from newfound.nearest_rows import Floats
from newfound.report.findings import Findings, Merge, WrongLabel
from newfound.report.large_classes import LargeClass
from newfound.report.near_duplicates import Duplicates
from newfound.runs.decisions import initial_state
from newfound.runs.results import Results, read_json
from newfound.settings import method_name

SHOWN = 8  # images of a class that only other seeds have
CERTAIN, UNCERTAIN = 0.9, 0.5  # confidence from which, and below which, the summary speaks of an image


def page_content(
    results: Results,
    places: Floats,
    findings: Findings,
    state: dict[str, Any] | None = None,
    *,
    live: bool = False,
) -> dict[str, Any]:
    """Everything but the pictures; ``places`` is the map, N×2."""
    a, run = results.assignment, results.run.path
    count = read_json(run / "class_count.json", "low", "best", "high")
    metrics = read_json(run / "metrics.json", "all")
    return {
        "title": _name(results.data.get("folder", "")) or "images",
        "live": live,
        "summary": summary(results, findings, count, metrics),
        "images": {
            "file": list(results.files),
            "confidence": _rounded(a.confidence),
            "runner_up": a.runner_up.tolist(),
            "runner_up_confidence": _rounded(a.runner_up_confidence),
            "given": results.given.tolist(),
            "anchor": a.is_anchor.astype(int).tolist(),
            "x": _rounded(places[:, 0]),
            "y": _rounded(places[:, 1]),
        },
        "findings": {
            "labels": [asdict(item) for item in findings.labels],
            "duplicates": [asdict(item) for item in findings.duplicates],
            "merges": [{**asdict(item), "alike": item.alike, "reason": reason(item)} for item in findings.merges],
            "large": [_large(item) for item in findings.large],
        },
        "classes": [{"id": k, "name": name, "kind": _kind(k, a.n_known)} for k, name in enumerate(a.class_names)],
        "unseen": list(a.unseen),
        "none_of_these": a.none(),
        "count": count,
        "stability": stability_of(results),
        "anchors": results.journal.pseudo_labels(),
        "settings": _settings(results),
        "versions": results.versions,
        "metrics": metrics,
        "skipped": _lines(run / "skipped.csv"),
        "oracle": results.oracle,
        "state": initial_state(results) if state is None else state,
    }


def stability_of(results: Results) -> dict[str, Any] | None:
    """Beside runs with other seeds; of classes that only those have, the images shown at first."""
    if results.stability is None:
        return None
    found = results.stability.as_json()
    found["elsewhere"] = [
        {**entry, "size": len(entry["images"]), "images": entry["images"][:SHOWN]} for entry in found["elsewhere"]
    ]
    return found


def summary(
    results: Results,
    findings: Findings,
    count: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
) -> list[str]:
    """What came out, in plain words, a sentence each."""
    parts = [
        _of_classes(results),
        _of_none(results),
        _of_count(results, count),
        _of_consensus(results),
        "" if results.stability is None else results.stability.sentence(results.assignment),
        _of_labels(results, findings.labels),
        _of_confidence(results),
        _of_large(findings.large),
        _of_merges(findings.merges),
        _of_duplicates(findings.duplicates),
        _of_truth(metrics),
        _of_method(results),
        _of_whitening(results),
        _of_the_rest(results),
    ]
    return [part for part in parts if part]


def _of_classes(results: Results) -> str:
    a = results.assignment
    known, new = a.n_known, len(a.class_names) - a.n_known
    in_new = int((a.classes >= a.n_known).sum())
    sorted_into = f"{_n(len(results), 'image')} {_was(len(results))} sorted into {_n(known + new, 'class')}"
    if not new:
        return f"{sorted_into}, all of them known."
    if not known:
        return f"{sorted_into}, all newly found: nothing was labelled."
    return f"{sorted_into}: {known:,} known and {new:,} newly found. The new ones hold {_n(in_new, 'image')}."


def _of_none(results: Results) -> str:
    left_out = results.assignment.none()
    share = _percent(left_out / len(results))
    return f"{_n(left_out, 'image')} ({share}) {_was(left_out)} put into none of these classes." if left_out else ""


def _of_count(results: Results, count: dict[str, Any] | None) -> str:
    if count is None:
        return ""
    low, high = count["low"], count["high"]
    plausible = f"; anything from {low} to {high} is plausible" if low < high else ""
    return f"The number of classes was not given. newfound estimates about {count['best']}{plausible}."


def _of_consensus(results: Results) -> str:
    found = results.consensus
    if found is None:
        return ""
    return (
        f"This is the consensus of {_n(len(found.seeds), 'seed')}; {_percent(found.unanimous, 1)} of the images are in "
        "the same class with each of them. The model for other images is an approximation, which agrees with the "
        f"consensus on {_percent(found.agreement, 1)} of these."
    )


def _of_labels(results: Results, wrong: Sequence[WrongLabel]) -> str:
    labelled = results.given >= 0
    total, agree = int(labelled.sum()), int((results.given == results.assignment.classes)[labelled].sum())
    if not total:
        return ""
    text = f"The model agrees with {agree:,} of {_n(total, 'given label')} ({_percent(agree / total)})"
    if agree == total:
        return f"{text}."
    if not wrong:
        return f"{text}; none of the others looks clearly wrong."
    one = len(wrong) == 1
    return f"{text}; {len(wrong):,} of the others {'looks' if one else 'look'} wrong and deserve{'s' * one} a check."


def _of_confidence(results: Results) -> str:
    confidence = results.assignment.confidence[results.assignment.classes >= 0]
    sure, unsure = int((confidence >= CERTAIN).sum()), int((confidence < UNCERTAIN).sum())
    text = f"It is sure of {_n(sure, 'image')} (confidence of {_percent(CERTAIN)} or more)"
    return f"{text} and unsure of {unsure:,} (below {_percent(UNCERTAIN)})." if unsure else f"{text}."


def _of_large(large: Sequence[LargeClass]) -> str:
    if not large:
        return ""
    one = len(large) == 1
    return (
        f"{_n(len(large), 'known class')} {'is' if one else 'are'} much larger than {'its' if one else 'their'} labels "
        "suggest and may have taken in a new one."
    )


def _of_merges(merges: Sequence[Merge]) -> str:
    if not merges:
        return ""
    return f"{_n(len(merges), 'pair')} of classes look{'s' * (len(merges) == 1)} alike and may be one."


def _of_duplicates(groups: Sequence[Duplicates]) -> str:
    if not groups:
        return ""
    where = f" in {_n(len(groups), 'group')}" if len(groups) > 1 else ""
    return f"{_n(sum(len(group.images) for group in groups), 'image')}{where} are nearly the same picture as another."


def _of_truth(metrics: dict[str, Any] | None) -> str:
    if not metrics or metrics.get("all") is None:
        return ""
    return f"Measured against the true classes, {_percent(metrics['all'], 1)} of the unlabelled images are right."


def _of_method(results: Results) -> str:
    note = reading_note(results.settings)
    return f"The method {note}." if note else ""


def _of_whitening(results: Results) -> str:
    return "" if results.whitening is None else f"Whitening of the features: {results.whitening}."


def _of_the_rest(results: Results) -> str:
    names, skipped = results.assignment.unseen, _lines(results.run.path / "skipped.csv")
    parts = []
    if names:
        parts.append(
            f"{_n(len(names), 'known class')} {'has' if len(names) == 1 else 'have'} no labelled image, so nothing "
            "could be recognised as one of them"
        )
    if skipped:
        parts.append(f"{_n(skipped, 'file')} skipped: skipped.csv lists the reasons")
    return ". ".join(parts) + "." if parts else ""


def reason(pair: Merge) -> str:
    """Why two classes may be one, without their names: a person may have changed them."""
    return (
        f"Neighbours mix {_percent(pair.mixed)} as much as within a single class; "
        f"{_percent(pair.runner_up)} of the images have the other class as second choice."
    )


def _large(item: LargeClass) -> dict[str, Any]:
    reason = (
        f"{_n(item.labelled, 'labelled image')}, {_n(item.size, 'image')} in total; "
        f"the other known classes suggest about {item.expected:,}."
    )
    return {"class": item.class_, "images": list(item.images), "reason": reason}


def _settings(results: Results) -> dict[str, Any]:
    """Without folders: a page may be passed on, and paths are private."""
    settings = results.settings
    values = {**vars(settings), "method": method_name(settings), **vars(own_settings(settings))}
    return {name: v.name if isinstance(v, Path) else v for name, v in values.items() if v is not None}


def _kind(k: int, n_known: int) -> str:
    return "known" if k < n_known else "new"


def _rounded(values: Any) -> list[float]:
    return [round(value, 4) for value in np.nan_to_num(np.asarray(values, dtype=np.float64)).tolist()]


def _lines(path: Path) -> int:
    """Of a CSV, without its header."""
    if not path.is_file():
        return 0
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        try:
            return max(0, sum(1 for _ in csv.reader(file)) - 1)
        except csv.Error as error:
            raise UserError(f"{path} is damaged: {error}. Delete it to continue without it.") from error


def _name(folder: str) -> str:
    return folder.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _n(count: int, noun: str) -> str:
    """
    >>> _n(1, "class"), _n(2000, "class"), _n(0, "image")
    ('1 class', '2,000 classes', '0 images')
    """
    plural = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{plural}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _percent(share: float, digits: int = 0) -> str:
    """
    >>> _percent(0.824), _percent(0.996), _percent(1)
    ('82\\xa0%', '> 99\\xa0%', '100\\xa0%')
    """
    text = f"{100 * share:.{digits}f}"
    text = "> 99" if text == "100" and share < 1 else text
    return f"{text}\u00a0%"  # a line never ends between the two
