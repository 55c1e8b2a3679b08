"""Before training: the known classes, and what was said of folders in earlier runs."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from helping.folders import put_image
from helping.pictures import write_folder
from helping.quick_discovery import discover
from newfound.errors import UserError
from newfound.images import ImageTable
from newfound.runs.before_training import show_known_classes
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results
from newfound.screen import Screen
from newfound.settings import Settings


def printed(names, labels):
    stream = io.StringIO()
    n = len(labels)
    table = ImageTable(None, ("",) * n, np.array(labels), tuple(names), ("",) * n, (), ())
    show_known_classes(table, Screen(Console(file=stream, width=400)))
    return stream.getvalue()


def shown(names, labels):
    return [
        [part.strip() for part in line.split("│")[1:-1]] for line in printed(names, labels).splitlines() if "│" in line
    ]


def test_known_classes_are_listed_with_their_sizes_and_what_is_to_be_sorted():
    assert shown(["cat", "[bold]dog\n", "empty"], [0, 1, 1, -1, -1, -1]) == [
        ["[bold]dog\\n", "2"], ["cat", "1"], ["empty", "0"], ["to sort", "3"],
    ]  # fmt: skip


def test_of_many_the_largest_and_the_smallest_are_listed():
    names = [f"class {k:02d}" for k in range(20)]
    lines = shown(names, [k for k in range(20) for _ in range(k + 1)] + [-1] * 5)
    assert lines[0] == ["class 19", "20"]
    assert lines[6] == ["… 8 more", str(sum(range(7, 15)))]
    assert [line[0] for line in lines[7:]] == [*(f"class {k:02d}" for k in range(5, -1, -1)), "to sort"]
    assert len(shown(names[:13], [*range(13), -1])) == 14  # one line would not save any


def test_classes_with_hardly_any_label_are_named():
    labels = [0, 1, 1, 2, 2, 2, -1]
    assert "2 known classes have fewer than 3 labelled images (dog, cat): a fifth to two fifths" in printed(
        ["cat", "dog", "cow"], labels
    )
    assert "1 known class has fewer than 3 labelled images (cat)" in printed(["cat", "cow"], [0, 1, 1, 1, -1])
    assert "fewer than" not in printed(["cow", "empty"], [0, 0, 0, -1])


def test_nothing_is_listed_where_nothing_is_known():
    assert shown([], [-1, -1]) == []


def settings(classes=None):
    """Nothing is trained."""
    return Settings(classes, method="kmeans", image_size=32, bank_views=2, batch_size=12)


@pytest.fixture
def images(tmp_path):
    """With the images to sort in a folder called misc."""
    images, _ = write_folder(tmp_path)
    (images / "unlabelled").rename(images / "misc")
    return images


def test_what_a_folder_means_is_remembered(images, tmp_path):
    with pytest.raises(UserError, match=r"Pass unlabelled='misc' for images to sort, or known='misc'"):
        discover(images, settings(classes=4), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    found = discover(images, settings(classes=4), unlabelled="misc", out=tmp_path / "run")
    assert found.results.assignment.class_names[:2] == ("green", "red")
    assert found.results.data["unlabelled_folders"] == ["misc"]
    discover(images, settings(classes=4), out=tmp_path / "run", resume=True)
    log = DecisionLog(read_results(tmp_path / "run"))
    log.decide({"action": "rename", "class": 2, "name": "other"}, 0)
    put_image(images / "other" / "1.png")  # a photo for the class that was found
    second = discover(images, settings(), after=tmp_path / "run", known=["other"])
    assert second.results.assignment.class_names[:3] == ("green", "other", "red")
    assert second.results.data["unlabelled_folders"] == ["misc"]
    third = discover(images, settings(), after=second.run)
    assert third.results.data["known_folders"] == ["other"]
    assert third.results.assignment.class_names[:3] == ("green", "other", "red")


def test_a_class_of_an_earlier_run_stays_one(images, tmp_path):
    put_image(images / "unlabelled" / "1.png")
    first = discover(images, settings(classes=4), known="misc", out=tmp_path / "run")
    config = first.run / "config.toml"
    text = re.sub(r"known_folders = \[[^]]*\]\n", "", config.read_text())  # as an earlier version wrote it
    config.write_text(text)
    assert "known_folders" not in read_results(first.run).data
    second = discover(images, settings(), after=first.run)
    assert "misc" in second.results.assignment.class_names


def test_nothing_to_sort_is_an_error_before_anything_is_embedded(tmp_path, monkeypatch):
    images, _ = write_folder(tmp_path, new=())
    monkeypatch.setattr("newfound.runs.prepared.OpenedImages", None)
    for file in list((images / "unlabelled").iterdir()):
        file.rename(images / "red" / file.name)
    (images / "unlabelled").rmdir()
    with pytest.raises(UserError, match=r"there is nothing to sort, as all 12 images are labelled.*unlabelled='NAME'"):
        discover(images, settings(classes=3), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_to_sort_after_a_review_names_the_export(tmp_path):
    images, _ = write_folder(tmp_path)
    first = discover(images, settings(classes=4), out=tmp_path / "run")
    log = DecisionLog(first.results)
    log.decide({"action": "judge", "images": list(first.results.files), "verdict": 1}, 0)
    with pytest.raises(UserError, match=r"nothing to sort.*newfound export .*run --csv FILE"):
        discover(images, settings(), after=first.run)
