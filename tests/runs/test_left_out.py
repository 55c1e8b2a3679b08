"""Images that a method leaves out: read back, reviewed, compared and scored as none of these."""

import numpy as np
import pytest

from helping.deciding import decide, files
from helping.small_runs import run_with_images_left_out
from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.decisions import DecisionLog
from newfound.runs.review_state import NOT_A_CLASS
from newfound.runs.scoring import Truth, score
from newfound.runs.stability import compare

LEFT_OUT = range(20, 26)
LABELLED, UNLABELLED = 20, 25  # two of them


@pytest.fixture
def results(tmp_path):
    return run_with_images_left_out(tmp_path)


@pytest.fixture
def log(results):
    return DecisionLog(results)


def test_they_are_read_back(results):
    a = results.assignment
    assert a.classes.tolist() == [0] * 10 + [1] * 10 + [-1] * 6
    assert (a.sizes().tolist(), a.none(), a.name_of(-1)) == ([10, 10], 6, NONE_OF_THESE)
    assert a.mean_confidence().round(6).tolist() == [0.9, 0.9]
    assert set(a.confidence[list(LEFT_OUT)].tolist()) == {0.0}


def test_the_model_decided_it_and_a_given_label_still_counts(results):
    final = results.final_labels()
    assert (final[UNLABELLED].label, final[UNLABELLED].is_new, final[UNLABELLED].decided_by) == (None, None, "model")
    assert (final[LABELLED].label, final[LABELLED].decided_by) == ("cat", "given")


def test_a_person_may_move_them_but_not_accept_them(log, results):
    assert set(log.reviewed.class_of[list(LEFT_OUT)].tolist()) == {NOT_A_CLASS}
    with pytest.raises(Exception, match="in no class cannot be accepted"):
        decide(log, action="judge", images=files(results, UNLABELLED), verdict=1)
    now = decide(log, action="move", images=files(results, UNLABELLED), to=1)
    assert (now.human_label(UNLABELLED), now.decided_by(UNLABELLED)) == (1, "person")


def test_what_a_person_dismisses_beside_them_is_a_persons_decision(log):
    now = decide(log, action="dismiss", **{"class": 1})
    assert (now.decided_by(15), now.decided_by(UNLABELLED)) == ("person", "model")


def test_the_next_round_takes_their_labels_and_no_others(log):
    labels = log.reviewed.next_labels()
    assert labels["image20.png"] == "cat"
    assert "image25.png" not in labels


def test_other_seeds_are_compared_without_them(results):
    same = compare(results.assignment, [results.assignment] * 2, [0, 1])
    assert [found.together for found in same.classes] == [1.0, 1.0]
    assert [found.found for found in same.classes] == [2, 2]


def test_they_are_never_right():
    """Not even where all of a class is left out, and nothing else is."""
    truth = Truth(np.arange(6), np.array([0, 0, 1, 1, 2, 2]), np.array([True] * 2 + [False] * 4), 0, tuple("abc"))
    predicted = np.array([0, 0, 1, -1, -1, -1])
    metrics = score(truth, predicted, predicted.clip(0), n_known=1)
    assert (metrics["all"], metrics["old"], metrics["new"]) == (0.5, 1.0, 0.25)
    assert metrics["images_none_of_these"] == 3
    assert metrics["per_class"] == {"a": 1.0, "b": 0.5, "c": 0.0}
    assert metrics["confusion"] == {"known_as_known": 2, "known_as_new": 0, "new_as_known": 0, "new_as_new": 1}
