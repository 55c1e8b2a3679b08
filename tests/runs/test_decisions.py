"""Decisions on disk: undo and redo, kills, full disks, damaged files; and whatever a person may decide."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helping.deciding import NEW1, NEW2, decide
from newfound.errors import UserError
from newfound.runs import decisions as module
from newfound.runs.decisions import DecisionLog, Outdated, reviewed_of
from newfound.runs.review_state import NOT_A_CLASS, Refused, Reviewed


def test_undo_and_redo(log):
    first = log.state()
    decide(log, action="rename", **{"class": NEW1}, name="otter")
    second = log.state()
    decide(log, action="dismiss", **{"class": NEW2})
    log.undo(2)
    assert {**log.state(), "redo": None, "revision": 1} == second
    log.undo(3)
    assert {**log.state(), "redo": None, "revision": 0} == first
    with pytest.raises(Refused, match="nothing to undo"):
        log.undo(4)
    log.redo(4)
    assert log.reviewed.names[NEW1] == "otter"
    decide(log, action="rename", **{"class": NEW1}, name="weasel")
    with pytest.raises(Refused, match="nothing to redo"):
        log.redo(log.revision)


def test_an_outdated_page_cannot_decide(log):
    decide(log, action="rename", **{"class": NEW1}, name="otter")
    for change in (
        lambda: log.decide({"action": "dismiss", "class": NEW1}, 0),
        lambda: log.undo(0),
        lambda: log.redo(7),
    ):
        with pytest.raises(Outdated):
            change()
    assert log.reviewed.names[NEW1] == "otter"


def test_everything_is_there_again_after_a_kill(log, results):
    decide(log, action="rename", **{"class": NEW1}, name="otter")
    decide(log, action="dismiss", **{"class": NEW2})
    log.undo(2)
    assert DecisionLog(results).state() == log.state()
    log.redo(3)
    assert reviewed_of(results).state() == log.reviewed.state()


def test_a_full_disk_loses_nothing(log, results, monkeypatch):
    decide(log, action="rename", **{"class": NEW1}, name="otter")
    state = log.state()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.json, "dump", full)
    with pytest.raises(OSError, match="No space"):
        decide(log, action="dismiss", **{"class": NEW2})
    assert log.state() == state == DecisionLog(results).state()
    assert [path.name for path in results.run.path.glob("*.tmp")] == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": 2, "results": ""}', "cannot be read"),
        ('{"version": 1, "results": "", "revision": 1, "undone": [], "decisions": ["a"]}', "cannot be read"),
    ],
)
def test_a_damaged_file_is_named(log, results, content, text):
    log.path.write_text(content)
    with pytest.raises(UserError, match=text):
        DecisionLog(results)


def test_decisions_of_another_version_or_on_other_results_are_refused(log, results):
    decide(log, action="rename", **{"class": NEW1}, name="otter")
    content = json.loads(log.path.read_text())
    log.path.write_text(json.dumps({**content, "version": 2}))
    with pytest.raises(UserError, match="Update newfound"):
        DecisionLog(results)
    log.path.write_text(json.dumps({**content, "decisions": [{"action": "dismiss", "class": 77}]}))
    with pytest.raises(UserError, match=r"decisions\.json has an impossible decision: there is no class number 77"):
        DecisionLog(results)
    log.path.write_text(json.dumps({**content, "results": "0" * 64}))
    with pytest.raises(UserError, match="has changed since"):
        DecisionLog(results)


NUMBERS = st.integers(0, 159)
CLASSES = st.integers(0, 8)
WISHES = st.one_of(
    st.tuples(st.just("rename"), CLASSES, st.text(max_size=5)),
    st.tuples(st.just("merge"), st.lists(CLASSES, max_size=3), CLASSES),
    st.tuples(st.just("split"), CLASSES, st.lists(NUMBERS, max_size=4)),
    st.tuples(st.just("move"), st.lists(NUMBERS, max_size=4), CLASSES | st.none()),
    st.tuples(st.just("dismiss"), CLASSES),
    st.tuples(st.just("judge"), st.lists(NUMBERS, max_size=4), st.sampled_from([-1, 0, 1])),
    st.tuples(st.just("undo")),
    st.tuples(st.just("redo")),
)


def carry_out(log, wish):
    name = log.results.files.__getitem__
    match wish:
        case ("undo",):
            log.undo(log.revision)
        case ("redo",):
            log.redo(log.revision)
        case ("rename", number, text):
            decide(log, action="rename", **{"class": number}, name=text)
        case ("merge", numbers, into):
            decide(log, action="merge", classes=numbers, into=into)
        case ("split", number, images):
            decide(log, action="split", **{"class": number}, images=[*map(name, images)])
        case ("move", images, to):
            decide(log, action="move", images=[*map(name, images)], **({} if to is None else {"to": to}))
        case ("dismiss", number):
            decide(log, action="dismiss", **{"class": number})
        case ("judge", images, verdict):
            decide(log, action="judge", images=[*map(name, images)], verdict=verdict)


@given(st.lists(WISHES, max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_is_decided(results, wishes):
    (results.run.path / "decisions.json").unlink(missing_ok=True)
    log = DecisionLog(results)
    for wish in wishes:
        before, revision = log.state(), log.revision
        try:
            carry_out(log, wish)
        except Refused:
            assert log.state() == before
        else:
            assert log.revision == revision + 1
        now = log.reviewed
        assert set(now.class_of.tolist()) <= set(now.names) | {NOT_A_CLASS}
        assert len(set(now.names.values())) == len(now.names)
        assert now.known <= set(now.names)
        assert set(now.next_labels().values()) <= {*now.names.values(), None}
        assert (now.class_of[now.verdict != 0] >= 0).all()
    assert DecisionLog(results).state() == log.state()
    while log.decisions:
        log.undo(log.revision)
    assert log.reviewed.state() == Reviewed.of(results).state()
