"""The model's answer with decisions applied: each action, refusals, and what the next round makes of it."""

import numpy as np
import pytest

from helping.deciding import CAT, DOG, NEW1, NEW2, decide, files
from helping.small_runs import write_run
from newfound.runs.decisions import DecisionLog
from newfound.runs.review_state import NOT_A_CLASS, Refused, Reviewed, halves


def test_rename(log):
    now = decide(log, action="rename", **{"class": NEW1}, name="  sea \t otter ")
    assert now.names == {CAT: "cat", DOG: "dog", NEW1: "sea otter", NEW2: "new-2"}
    assert now.model_names() == ["cat", "dog", "sea otter", "new-2"]


def test_merge_into_a_known_class(log):
    now = decide(log, action="merge", classes=[NEW1], into=CAT)
    assert set(now.names) == {CAT, DOG, NEW2}
    assert len(now.members(CAT)) == 80
    assert now.model_names() == ["cat", "dog", "cat", "new-2"]
    assert now.known == {CAT, DOG}


def test_a_known_class_merged_into_a_new_one_stays_known(log, results):
    decide(log, action="merge", classes=[CAT, DOG], into=NEW1)
    now = decide(log, action="merge", classes=[NEW1], into=NEW2)
    assert now.names == {NEW2: "new-2"}
    assert now.known == {NEW2}
    labels = now.next_labels()
    assert {labels[file] for file in files(results, 0, 1)} == {"new-2"}  # labels go where their class went


def test_split_and_what_is_called_what(log, results):
    leaving = files(results, 2, 6, 10)
    now = decide(log, action="split", **{"class": NEW1}, images=leaving)
    assert now.names[4] == "new-3"
    assert now.members(4).tolist() == [2, 6, 10]
    now = decide(log, action="split", **{"class": NEW2}, images=files(results, 3), name="a bee")
    assert now.names[5] == "a bee"


def test_a_split_takes_given_labels_along(log, results):
    labelled = [i for i in range(160) if results.given[i] == DOG and i % 4 == DOG]
    now = decide(log, action="split", **{"class": DOG}, images=files(results, *labelled[:3]), name="hound")
    labels = now.next_labels()
    assert {labels[results.files[i]] for i in labelled[:3]} == {"hound"}
    assert {labels[results.files[i]] for i in labelled[3:]} == {"dog"}


def test_move_to_a_class_and_to_a_new_one(log, results):
    now = decide(log, action="move", images=files(results, 2, 3), to=CAT)
    assert now.class_of[[2, 3]].tolist() == [CAT, CAT]
    now = decide(log, action="move", images=files(results, 2), name="a wasp")
    assert now.names[int(now.class_of[2])] == "a wasp"
    assert now.next_labels()[results.files[2]] == "a wasp"
    assert now.next_labels()[results.files[3]] == "cat"


def test_dismiss(log, results):
    now = decide(log, action="dismiss", **{"class": NEW2})
    assert (now.class_of == NOT_A_CLASS).sum() == 40
    assert now.model_names() == ["cat", "dog", "new-1", None]
    assert now.live_names() == {"cat", "dog", "new-1"}
    now = decide(log, action="move", images=files(results, 3), to=CAT)
    assert now.class_of[3] == CAT


def test_judge(log, results):
    now = decide(log, action="judge", images=files(results, 2, 6), verdict=1)
    assert now.verdict[[2, 6]].tolist() == [1, 1]
    assert {file for file, name in now.next_labels().items() if name == "new-1"} == set(files(results, 2, 6))
    now = decide(log, action="judge", images=files(results, 2), verdict=0)
    assert results.files[2] not in now.next_labels()


def test_a_given_label_that_a_person_rejects_is_no_label(log, results):
    right = next(i for i in range(160) if results.given[i] == DOG and i % 4 == DOG)
    wrong = 64  # labelled dog, and a cat to the model
    now = decide(log, action="judge", images=files(results, right, wrong), verdict=-1)
    labels = now.next_labels()
    assert labels[results.files[right]] is None
    assert labels[results.files[wrong]] == "dog"  # what was rejected is that it is a cat
    decide(log, action="move", images=files(results, 2, wrong), to=CAT)
    now = decide(log, action="judge", images=files(results, 2, wrong), verdict=-1)
    assert {now.next_labels()[file] for file in files(results, 2, wrong)} == {None}


def test_images_thrown_out_with_a_class_lose_their_labels(log, results):
    """Moved into a class of rubbish, which is then none."""
    labelled = [i for i in range(160) if results.given[i] == DOG][:2]
    decide(log, action="move", images=files(results, *labelled, 3), name="rubbish")
    now = decide(log, action="dismiss", **{"class": 4})
    assert [now.next_labels()[file] for file in files(results, *labelled, 3)] == [None] * 3
    others = [i for i in range(160) if results.given[i] == DOG][2:]
    assert {now.next_labels()[results.files[i]] for i in others} == {"dog"}


def test_to_accept_is_to_agree_with_the_class_it_is_in(log, results):
    wrong = 64  # labelled dog, and a cat to the model
    now = decide(log, action="judge", images=files(results, wrong), verdict=1)
    assert now.next_labels()[results.files[wrong]] == "cat"


def test_a_split_forgets_verdicts_on_the_whole(log, results):
    decide(log, action="judge", images=files(results, 2, 6), verdict=1)
    decide(log, action="move", images=files(results, 3), to=NEW1)
    now = decide(log, action="split", **{"class": NEW1}, images=files(results, 2, 3))
    assert now.verdict[[2, 3, 6]].tolist() == [0, 0, 1]
    assert not now.placed[3]


def test_labels_follow_their_class(log, results):
    assert log.state()["given"] == results.given.tolist()
    decide(log, action="merge", classes=[CAT], into=DOG)
    assert set(log.state()["given"]) == {-1, DOG}
    labelled = next(i for i in range(160) if results.given[i] == DOG)
    decide(log, action="move", images=files(results, labelled, 2), to=NEW1)
    assert log.state()["given"][labelled] == NEW1
    assert log.state()["given"][2] == -1


def test_a_verdict_on_one_class_is_none_on_another(log, results):
    decide(log, action="judge", images=files(results, 2), verdict=-1)
    now = decide(log, action="move", images=files(results, 2), to=CAT)
    assert now.verdict[2] == 0
    assert now.next_labels()[results.files[2]] == "cat"


def test_the_next_round_knows_named_classes_by_their_anchors(log, results):
    untouched = log.reviewed.next_labels()
    assert set(untouched.values()) == {"cat", "dog"}
    assert len(untouched) == (results.given >= 0).sum()
    decide(log, action="rename", **{"class": NEW1}, name="otter")
    decide(log, action="judge", images=files(results, 82), verdict=-1)  # an anchor of it
    labels = log.reviewed.next_labels()
    expected = {results.files[i] for i in range(81, 160) if i % 4 == NEW1} - set(files(results, 82))
    assert {file for file, name in labels.items() if name == "otter"} == expected


def test_a_named_class_without_anchors_gives_its_more_certain_half(tmp_path):
    results = write_run(tmp_path, list("abcd"), [0, 0, 0, 0], ("new-1", "new-2"), 0, confidence=[0.9, 0.4, 0.8, 0.3])
    log = DecisionLog(results)
    assert log.reviewed.next_labels() == {}
    decide(log, action="rename", **{"class": 0}, name="otter")
    assert log.reviewed.next_labels() == {"a": "otter", "c": "otter"}
    assert log.reviewed.live_names() == {"otter"}


REFUSED = [
    ({"action": "explode"}, "no action 'explode'"),
    ({}, "no action None"),
    ({"action": "rename", "class": 17, "name": "x"}, "no class number 17"),
    ({"action": "rename", "class": True, "name": "x"}, "no class number True"),
    ({"action": "rename", "class": NEW1, "name": " "}, "needs a name"),
    ({"action": "rename", "class": NEW1, "name": 7}, "needs a name"),
    ({"action": "rename", "class": NEW1, "name": "dog"}, "a class 'dog' already"),
    ({"action": "rename", "class": NEW1, "name": "x" * 201}, "at most 200"),
    ({"action": "rename", "class": NEW1, "name": "a\x07b"}, "printable"),
    ({"action": "rename", "class": NEW1, "name": "None of these"}, "unlike any class"),
    ({"action": "merge", "classes": [NEW1], "into": NEW1}, "two classes"),
    ({"action": "merge", "classes": "no", "into": NEW1}, "two classes"),
    ({"action": "merge", "classes": [NEW2, 9], "into": NEW1}, "no class number 9"),
    ({"action": "split", "class": NEW1, "images": []}, "no images"),
    ({"action": "split", "class": NEW1, "images": ["part 0/image000.png"]}, "and no others"),
    ({"action": "move", "images": ["../../etc/passwd"], "to": CAT}, "not an image of this run"),
    ({"action": "move", "images": [3], "to": CAT}, "not an image of this run"),
    ({"action": "move", "images": ["part 0/image000.png"], "to": 9}, "no class number 9"),
    ({"action": "move", "images": ["part 0/image000.png"], "name": "dog"}, "already"),
    ({"action": "dismiss", "class": CAT}, "known class"),
    ({"action": "judge", "images": ["part 0/image000.png"], "verdict": 2}, "a verdict is"),
    ({"action": "judge", "images": ["part 0/image000.png"], "verdict": True}, "a verdict is"),
]


@pytest.mark.parametrize(("decision", "text"), REFUSED)
def test_what_makes_no_sense_is_refused_and_changes_nothing(log, decision, text):
    before = log.state()
    with pytest.raises(Refused, match=text):
        log.decide(decision, 0)
    assert log.state() == before
    assert not log.path.exists()


def test_a_split_must_leave_something(log, results):
    everything = files(results, *range(2, 160, 4))
    with pytest.raises(Refused, match="not all"):
        decide(log, action="split", **{"class": NEW1}, images=everything)


def test_set_aside_images_are_in_no_class_to_be_accepted_for(log, results):
    decide(log, action="dismiss", **{"class": NEW2})
    with pytest.raises(Refused, match="move it first"):
        decide(log, action="judge", images=files(results, 3), verdict=1)


def test_halves_are_the_two_clusters_of_a_class(tmp_path):
    random = np.random.default_rng(0)
    centres = np.eye(8)[[0] * 12 + [1] * 5 + [2] * 3]
    embeddings = centres + random.normal(0, 0.05, centres.shape)
    names = [f"{i}.png" for i in range(20)]
    results = write_run(tmp_path, names, [0] * 17 + [1] * 3, ("new-1", "new-2"), 0, embeddings=embeddings)
    assert halves(Reviewed.of(results), 0) == names[12:17]
    with pytest.raises(Refused, match="fewer than two"):
        halves(Reviewed.of(results, [{"action": "move", "images": names[17:], "to": 0}]), 1)


def test_images_that_look_all_the_same_cannot_be_split(tmp_path):
    results = write_run(tmp_path, ["a", "b"], [0, 0], ("new-1", "new-2"), 0, embeddings=np.ones((2, 4)))
    with pytest.raises(Refused, match="look the same"):
        halves(Reviewed.of(results), 0)
