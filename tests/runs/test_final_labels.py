"""Which label an image ends up with, who decided it, and when."""

import json

import pytest

from helping.small_runs import write_run
from newfound.discovery import Discovery
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.runs.decisions import DecisionLog
from newfound.runs.final_labels import FinalLabel
from newfound.runs.results import read_results
from newfound.runs.rounds import next_round
from newfound.screen import Screen
from newfound.settings import Settings

NAMES = ("cat", "dog", "new-1", "new-2")
CAT, DOG, FIRST, SECOND = range(4)


def make(root, given=(CAT, DOG, DOG, -1, -1, -1, -1, -1)):
    """Images 0 to 7; the model puts number 2, which is labelled dog, into cat."""
    files = [f"{i}.png" for i in range(8)]
    return write_run(root, files, [CAT, DOG, CAT, CAT, FIRST, FIRST, SECOND, SECOND], NAMES, 2, given=list(given))


def decide(results, *decisions):
    log = DecisionLog(results)
    for decision in decisions:
        log.decide(decision, log.revision)
    return log


def test_without_a_review_labels_are_given_or_predicted(tmp_path):
    results = make(tmp_path)
    assert results.labels == ("cat", "dog", "dog", "cat", "new-1", "new-1", "new-2", "new-2")
    finals = results.final_labels()
    assert finals[2] == FinalLabel("dog", False, "given", None)  # whatever the model says
    assert finals[3] == FinalLabel("cat", False, "model", 1)
    assert finals[4] == FinalLabel("new-1", True, "model", 1)


def test_the_names_a_person_decided_are_there_at_once(tmp_path):
    found = Discovery(make(tmp_path).run.path)
    assert found.results.labels[4] == "new-1"
    decide(found.results, {"action": "rename", "class": FIRST, "name": "otter"})
    assert found.results.labels[4] == "otter"  # also of results that were read before
    assert found.results.final_labels()[4] == FinalLabel("otter", True, "model", 1)  # the name is a person's
    assert read_results(found.run).labels == found.results.labels


@pytest.mark.parametrize(
    ("image", "decision", "expected"),
    [
        (3, {"action": "judge", "verdict": 1}, FinalLabel("cat", False, "person", 1)),
        (3, {"action": "judge", "verdict": -1}, FinalLabel(None, None, "person", 1)),
        (3, {"action": "move", "to": SECOND}, FinalLabel("new-2", True, "person", 1)),
        (0, {"action": "judge", "verdict": -1}, FinalLabel(None, None, "person", 1)),
        (2, {"action": "judge", "verdict": 1}, FinalLabel("cat", False, "person", 1)),
        (2, {"action": "judge", "verdict": -1}, FinalLabel("dog", False, "given", None)),  # not cat: so its label
        (0, {"action": "judge", "verdict": 0}, FinalLabel("cat", False, "given", None)),
    ],
)
def test_a_persons_decision_counts_most(tmp_path, image, decision, expected):
    results = make(tmp_path)
    decide(results, {**decision, "images": [f"{image}.png"]})
    assert results.final_labels()[image] == expected


def test_classes_that_are_merged_and_dismissed(tmp_path):
    results = make(tmp_path)
    decide(results, {"action": "merge", "classes": [FIRST], "into": DOG}, {"action": "dismiss", "class": SECOND})
    finals = results.final_labels()
    assert finals[4] == FinalLabel("dog", False, "model", 1)
    assert finals[6] == FinalLabel(None, None, "person", 1)


def test_later_rounds_know_who_decided_and_when(tmp_path):
    first = make(tmp_path / "1")
    log = decide(
        first,
        {"action": "move", "images": ["3.png"], "to": DOG},
        {"action": "rename", "class": FIRST, "name": "otter"},  # one of its two images becomes an example, or both
    )
    table = read_folder(first.root).relabelled({"0.png": "cat", "1.png": "dog", "2.png": "dog"})
    second_table, _, history = next_round(table, Settings(), log.reviewed, Screen(quiet=True))
    assert history["round"] == 2
    given = [{"cat": CAT, "dog": DOG, "otter": FIRST}.get(second_table.label_of(f"{i}.png"), -1) for i in range(8)]
    second = write_run(
        tmp_path / "2", list(first.files), first.assignment.classes.tolist(), ("cat", "dog", "otter", "new-1"), 3,
        given=given,
    )  # fmt: skip
    second.run.write_json("round.json", history)
    finals = second.final_labels()
    assert finals[0] == FinalLabel("cat", False, "given", None)
    assert finals[3] == FinalLabel("dog", False, "person", 1)
    assert FinalLabel("otter", False, "model", 1) in finals[4:6]
    assert finals[6] == FinalLabel("new-1", True, "model", 2)
    log = decide(second, {"action": "judge", "images": ["6.png"], "verdict": 1})
    history = next_round(second_table, Settings(), log.reviewed, Screen(quiet=True))[2]
    assert history["round"] == 3
    assert history["decided"]["3.png"] == ("person", 1)
    assert history["decided"]["6.png"] == ("person", 2)
    assert "0.png" not in history["decided"]


def test_a_round_of_an_earlier_version_is_read(tmp_path):
    results = make(tmp_path)
    results.run.write_json("round.json", {"renamed": {}, "cleared": []})
    assert results.final_labels()[0] == FinalLabel("cat", False, "given", None)
    assert results.final_labels()[3].round == 2


@pytest.mark.parametrize("change", [{"round": "2"}, {"round": None}, {"decided": {"a": ["nobody", 1]}},
                                    {"decided": {"a": 1}}, {"decided": 3}])  # fmt: skip
def test_a_damaged_history_is_named(tmp_path, change):
    results = make(tmp_path)
    (results.run.path / "round.json").write_text(json.dumps({"renamed": {}, "cleared": [], **change}))
    with pytest.raises(UserError, match=r"round\.json is malformed"):
        results.final_labels()
