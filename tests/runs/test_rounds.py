"""Another round: what was decided on a run are the labels of the next one."""

import shutil
from pathlib import Path

import pytest

from helping.pictures import write_folder
from newfound.discovery import discover
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.runs.decisions import DecisionLog
from newfound.runs.places import next_out
from newfound.runs.results import read_results
from newfound.settings import Settings

pytestmark = pytest.mark.usefixtures("small_projector")

FAST = {"epochs": 2, "image_size": 32, "bank_views": 2, "batch_size": 12}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    root = tmp_path_factory.mktemp("rounds")
    images, _ = write_folder(root)
    settings = Settings(5, **FAST, bank_dir=root / "banks")
    return discover(images, settings, out=root / "run", report=False), images, root / "banks"


def another(first, tmp_path, *decisions, folder=None, **more):
    """Decide on a copy of the first run, and continue with it."""
    run = shutil.copytree(first[0].run, tmp_path / "run")
    log = DecisionLog(read_results(run))
    for decision in decisions:
        log.decide(decision, log.revision)
    settings = Settings(**{**FAST, "bank_dir": first[2], **more})
    return discover(folder or first[1], settings, after=run, report=False)


def given(found):
    names = [None if k < 0 else found.results.assignment.class_names[k] for k in found.results.given]
    return dict(zip(found.results.files, names, strict=True))


def test_decisions_are_the_labels(first, tmp_path):
    results = first[0].results
    number = len(results.assignment.class_names) - 1
    moved = [file for file, k in zip(results.files, results.given, strict=True) if k < 0][:3]
    found = another(
        first, tmp_path,
        {"action": "rename", "class": 0, "name": "grass"},
        {"action": "move", "images": moved, "name": "sky"},
        {"action": "dismiss", "class": number},
    )  # fmt: skip
    assert found.run == tmp_path / "run-2"
    labels = given(found)
    assert {labels[file] for file in moved} == {"sky"}
    assert {label for file, label in labels.items() if file.startswith("green/")} == {"grass"}
    assert {label for file, label in labels.items() if file.startswith("red/")} == {"red"}
    assert found.results.assignment.n_known == 3
    assert found.results.settings.classes == len(read_results(tmp_path / "run").assignment.class_names)  # -1 and +1
    assert found.results.data["continues"] == str(tmp_path / "run")
    third = discover(
        first[1], Settings(**FAST, bank_dir=first[2]), after=found.run, out=tmp_path / "third", report=False
    )
    assert given(third) == labels  # nothing was decided on the second: its labels stay


def test_what_a_person_took_away_stays_away(first, tmp_path):
    rejected, added = "green/007.png", "green/later.png"
    log_of = {"action": "judge", "images": [rejected], "verdict": -1}
    number = int(first[0].results.assignment.classes[first[0].results.files.index(rejected)])
    put_back = {"action": "move", "images": [rejected], "to": 0}  # wherever the model put it: now it is in green
    folder = shutil.copytree(first[1], tmp_path / "images")
    second = another(
        first, tmp_path, *([put_back] if number else []), log_of, {"action": "rename", "class": 0, "name": "grass"},
        folder=folder,
    )  # fmt: skip
    assert given(second)[rejected] is None
    shutil.copy(folder / "red/001.png", folder / added)  # the class of that folder has another name now
    settings = Settings(**FAST, bank_dir=first[2])
    third = discover(folder, settings, after=second.run, report=False)
    assert third.run == tmp_path / "run-3"
    assert given(third)[rejected] is None
    assert given(third)[added] == "grass"
    assert third.results.assignment.class_names[: third.results.assignment.n_known] == ("grass", "red")
    assert third.results.settings.classes == second.results.settings.classes


def test_a_class_known_by_name_alone_is_not_counted_twice(tmp_path, first):
    images = shutil.copytree(first[1], tmp_path / "images")
    (images / "a heron").mkdir()
    settings = Settings(5, **FAST, bank_dir=first[2])
    run = discover(images, settings, out=tmp_path / "run", report=False).run
    second = discover(images, Settings(**FAST, bank_dir=first[2]), after=run, report=False)
    assert second.results.settings.classes == len(read_results(run).assignment.class_names)


def test_where_the_next_round_goes(tmp_path, monkeypatch):
    assert next_out(tmp_path / "photos-2024") == tmp_path / "photos-2024-2"
    (tmp_path / "photos-2").mkdir()
    (tmp_path / "photos-2" / "round.json").write_text("{}")
    assert next_out(tmp_path / "photos-2") == tmp_path / "photos-3"
    monkeypatch.chdir(tmp_path / "photos-2")
    assert next_out(Path(".")) == tmp_path / "photos-3"


def test_an_oracle_is_not_continued(first, tmp_path):
    run = shutil.copytree(first[0].run, tmp_path / "run")
    lines = (run / "assignments.csv").read_text().splitlines()
    (run / "assignments.csv").write_text("\n".join([f"{lines[0]},oracle", *(f"{line},true" for line in lines[1:])]))
    with pytest.raises(UserError, match="made with the truth"):
        discover(first[1], Settings(**FAST), after=run, report=False)


def test_a_damaged_history_is_named(first, tmp_path):
    run = shutil.copytree(first[0].run, tmp_path / "run")
    (run / "round.json").write_text("[]")
    with pytest.raises(UserError, match=r"round\.json is malformed"):
        discover(first[1], Settings(**FAST), after=run, out=tmp_path / "next", report=False)


def test_it_resumes_as_long_as_nothing_else_is_decided(first, tmp_path):
    found = another(first, tmp_path, {"action": "rename", "class": 0, "name": "grass"})
    before = (found.run / "assignments.csv").read_bytes()
    settings = Settings(**FAST, bank_dir=first[2])
    with pytest.raises(UserError, match="run-2 holds a finished run"):
        discover(first[1], settings, after=tmp_path / "run", report=False)
    discover(first[1], settings, after=tmp_path / "run", resume=True, report=False)
    assert (found.run / "assignments.csv").read_bytes() == before
    log = DecisionLog(read_results(tmp_path / "run"))
    log.decide({"action": "rename", "class": 0, "name": "moss"}, log.revision)
    with pytest.raises(UserError, match="the images or labels have changed"):
        discover(first[1], settings, after=tmp_path / "run", resume=True, report=False)


def test_photos_that_came_since_keep_their_own_labels(first, tmp_path):
    folder = shutil.copytree(first[1], tmp_path / "images")
    shutil.move(folder / "unlabelled", folder / "later")  # all of them now labelled, as somebody has decided on disk
    shutil.copytree(first[1] / "unlabelled", folder / "unlabelled")
    for file in (folder / "unlabelled").iterdir():
        file.rename(file.with_name(f"another-{file.name}"))
    found = another(first, tmp_path, {"action": "rename", "class": 0, "name": "grass"}, folder=folder)
    labels = given(found)
    assert {label for file, label in labels.items() if file.startswith("later/")} == {"later"}
    assert {label for file, label in labels.items() if file.startswith("green/")} == {"grass"}


def test_other_images_cannot_continue_a_run(first, tmp_path):
    other, _ = write_folder(tmp_path / "other", known=("blue",), new=("yellow",), each=2)
    for file in list(other.rglob("*.png")):
        file.rename(file.with_name(f"other-{file.name}"))
    with pytest.raises(UserError, match="nothing to continue"):
        another(first, tmp_path, folder=other)


def test_the_labels_file_of_the_first_round_is_taken_again(first, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("file,label\nred/001.png,rot\n")
    settings = Settings(4, **FAST, bank_dir=first[2])
    run = discover(first[1], settings, labels=labels, out=tmp_path / "a", report=False).run
    labels.write_text("file,label\nred/001.png,rouge\nunlabelled/002.png,bleu\n")
    second = discover(first[1], settings, after=run, out=tmp_path / "b", report=False)
    after = {file: name for file, name in given(second).items() if name}
    assert after == {"red/001.png": "rot", "unlabelled/002.png": "bleu"}  # the run's own labels stay, others are added
    labels.unlink()
    with pytest.raises(UserError, match=r"labels\.csv, which no longer exists"):
        discover(first[1], settings, after=run, out=tmp_path / "c", report=False)


def test_a_run_that_is_none(first, tmp_path):
    with pytest.raises(UserError, match="not a newfound run"):
        discover(first[1], Settings(**FAST), after=tmp_path, report=False)


def test_no_classes_are_too_few(first, tmp_path):
    """0 is a number like any other, not a wish to count."""
    with pytest.raises(UserError, match="classes=0 is too few"):
        another(first, tmp_path, classes=0)


def test_a_table_with_other_labels(tmp_path):
    images, _ = write_folder(tmp_path, each=2)
    (images / "a heron").mkdir()
    table = read_folder(images)
    changed = table.relabelled({"red/001.png": "crimson", "unlabelled/002.png": "crimson"})
    assert changed.class_names == ("a heron", "crimson", "green")  # red has no image left
    assert changed.label_of("unlabelled/002.png") == "crimson"
    assert table.label_of("red/001.png") == "red"
    assert changed.fingerprint != table.fingerprint
    assert table.relabelled({}).fingerprint == table.fingerprint
