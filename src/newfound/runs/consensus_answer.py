"""The answer of a run with several seeds: their consensus, with a model that imitates it.

All of it follows from what the seeds have written, so a run that is killed here writes the same bytes when it is
resumed. consensus.json comes first: results beside it are those of a consensus, of the seeds that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from newfound.consensus import Consensus, consensus
from newfound.errors import UserError
from newfound.imitation import imitated, nearest_direction, unit
from newfound.runs.assignments import FEWEST, Assignment, new_names, write_assignment
from newfound.runs.consensus_facts import FILE as CONSENSUS
from newfound.runs.consensus_facts import ConsensusFacts
from newfound.runs.folder import WHITENING, RunFolder
from newfound.runs.model import temperature_of, write_imitation
from newfound.runs.prepared import Prepared
from newfound.runs.results import Results, digest_of, read_consensus, read_results
from newfound.runs.scoring import write_score
from newfound.runs.stability import FILE as STABILITY
from newfound.runs.stability import compare
from newfound.screen import Screen

PROBABILITIES = "probabilities.npy"
SHARPEST = 0.1  # temperature of the cosines that imitate: with a higher one they could not be as sure as the seeds


def write_consensus(
    ready: Prepared, run: RunFolder, folders: Mapping[int, RunFolder], screen: Screen
) -> dict[str, Any] | None:
    """All that a run leaves behind, for the consensus of these seeds; its score, where there is a truth."""
    seeds, each = list(folders), [read_results(folder.path) for folder in folders.values()]
    answer = consensus_of(each)
    assignment = assignment_of(answer, [result.assignment for result in each])
    chosen = int(np.argmax([_same(answer, s, one.assignment.classes).sum() for s, one in enumerate(each)]))
    nearest, embeddings = each[chosen].run, each[chosen].embeddings
    temperature = min(temperature_of(nearest.path), SHARPEST)
    directions, agreement = imitation_of(answer, embeddings, temperature)
    facts = ConsensusFacts(seeds, float(answer.unanimous.mean()), seeds[chosen], agreement)
    mark = {} if ready.oracle is None else {"oracle": ready.oracle}

    _make_room(run, seeds)
    run.write_json(CONSENSUS, {**mark, **facts.as_json()})
    if whitened := [result.whitening for result in each if result.whitening is not None]:
        run.write_json(WHITENING, asdict(whitened[0]))  # it does not depend on the seed
    write_assignment(run, ready.table, assignment, embeddings, oracle=ready.oracle is not None)
    run.write_array("embeddings.npy", nearest.read_array("embeddings.npy"))
    found = compare(assignment, [result.assignment for result in each], seeds)
    run.write_json(STABILITY, {**mark, "results": digest_of(run.path), **found.as_json()})
    kmeans = each[0].run.journal.kept("kmeans")
    clusters = None if kmeans is None else kmeans["clusters"].numpy()
    metrics = write_score(run, ready.referee, assignment, clusters, ready.oracle)
    names = assignment.class_names
    write_imitation(run, nearest.path, torch.from_numpy(directions), temperature, names, facts.as_json())
    facts.tell(screen)
    return metrics


def _make_room(run: RunFolder, seeds: list[int]) -> None:
    """Results of other seeds, or of nobody knows which, go before any of these are written."""
    try:
        before = read_consensus(run.path)
    except UserError:
        run.remove_results()
        return
    if before is not None and before.seeds != seeds:
        run.remove_results()


def consensus_of(each: Sequence[Results]) -> Consensus:
    """Of finished runs that have left their probabilities."""
    answers = [result.assignment.classes for result in each]
    probabilities = [result.run.array_on_disk(PROBABILITIES) for result in each]
    return consensus(answers, probabilities, each[0].assignment.n_known, fewest=FEWEST)


def assignment_of(answer: Consensus, each: Sequence[Assignment]) -> Assignment:
    """What a person reads, of a consensus of these."""
    first, n = each[0], len(answer.classes)
    best, second = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    shares = np.empty((n, 2))
    none = answer.classes < 0
    for rows in answer.blocks():
        found = answer.probabilities(rows)
        at = np.arange(len(found))
        best[rows] = np.where(none[rows], found.argmax(axis=1), answer.classes[rows])
        shares[rows, 0], found[at, best[rows]] = found[at, best[rows]], -np.inf
        second[rows] = found.argmax(axis=1)
        shares[rows, 1] = found[at, second[rows]]
    known = first.class_names[: first.n_known]
    return Assignment(
        class_names=known + new_names(known + first.unseen, answer.count - len(known)),
        unseen=first.unseen,
        n_known=first.n_known,
        classes=answer.classes,
        confidence=np.where(none, 0.0, shares[:, 0]),
        runner_up=np.where(none, best, second),
        runner_up_confidence=np.where(none, shares[:, 0], shares[:, 1]),
        is_anchor=_anchors(answer, each),
    )


def _anchors(answer: Consensus, each: Sequence[Assignment]) -> NDArray[np.bool_]:
    """Images that more than half of the seeds treated as labelled, and put where the consensus puts them."""
    times = sum((a.is_anchor & _same(answer, s, a.classes)).astype(np.int64) for s, a in enumerate(each))
    return np.asarray(2 * times > len(each))


def _same(answer: Consensus, s: int, classes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which images are in the class of the consensus in answer number ``s``, too."""
    placed = (classes >= 0) & (answer.classes >= 0)
    return np.asarray(placed & (answer.columns[s][classes] == answer.classes))


def imitation_of(
    answer: Consensus, embeddings: NDArray[np.float32], temperature: float
) -> tuple[NDArray[np.float32], float]:
    """Directions K×d that label the images as the consensus does, and for which share of them they do.

    Images in none of the classes count only if there are no others.
    """
    probabilities = np.concatenate([answer.probabilities(rows).astype(np.float32) for rows in answer.blocks()])
    classes = np.where(answer.classes < 0, probabilities.argmax(axis=1), answer.classes)
    placed = answer.classes >= 0
    counted = placed if placed.any() else ~placed
    features = unit(embeddings[counted])
    directions = imitated(features, probabilities[counted], temperature)
    return directions, float((nearest_direction(features, directions) == classes[counted]).mean())
