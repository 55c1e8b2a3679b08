"""The page of a run that leaves images out."""

import pytest

from helping.small_runs import run_with_images_left_out
from newfound.report import look_through, write_report
from newfound.report.page import read_page
from newfound.screen import Screen

QUIET = Screen(quiet=True)


@pytest.fixture
def results(tmp_path):
    return run_with_images_left_out(tmp_path)


def test_the_summary_counts_them(results):
    content, _ = look_through(results, QUIET)
    assert content["summary"][0] == (
        "26 images were sorted into 2 classes: 1 known and 1 newly found. The new ones hold 10 images."
    )
    assert content["summary"][1] == "6 images (23\u00a0%) were put into none of these classes."
    assert any("It is sure of 20 images" in sentence for sentence in content["summary"])


def test_they_have_pictures_and_are_no_class(results):
    content, pictures = read_page(write_report(results, QUIET))
    assert sorted(pictures) == list(range(26))
    assert content["none_of_these"] == 6
    assert [c["name"] for c in content["classes"]] == ["cat", "new-1"]
    assert content["state"]["class_of"][20:] == [-1] * 6
    assert content["findings"]["labels"] == []


def test_nothing_in_any_class_is_a_page_too(tmp_path):
    from helping.small_runs import write_run

    results = write_run(tmp_path, [f"{i}.png" for i in range(5)], [-1] * 5, ("new-1", "new-2"), 0, confidence=[0.0] * 5)
    content, _ = look_through(results, QUIET)
    assert content["summary"][1] == "5 images (100\u00a0%) were put into none of these classes."
