import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from helping.small_runs import small_run, write_run, write_stability
from newfound.errors import UserError
from newfound.report import look_through, write_report
from newfound.report.content import reason, summary
from newfound.report.findings import Findings, Merge
from newfound.report.page import json_for_html, policy, read_page, render_page
from newfound.runs.decisions import initial_state
from newfound.runs.nearest_class import nearest_classes
from newfound.runs.results import read_results
from newfound.runs.stability import compare
from newfound.screen import Screen
from newfound.whitening_check import WhiteningCheck

QUIET = Screen(quiet=True)
NOTHING = Findings([], [], [])


def test_the_state_is_what_the_model_says(small):
    state = initial_state(small)
    nearest = nearest_classes(small.embeddings, small.assignment.classes, 4).tolist()
    assert state["classes"][0] == {"id": 0, "name": "cat", "kind": "known", "nearest": nearest[0]}
    assert state["classes"][3] == {"id": 3, "name": "new-2", "kind": "new", "nearest": nearest[3]}
    assert state["class_of"] == small.assignment.classes.tolist()
    assert set(state["verdict"]) == {0}
    assert (state["revision"], state["undo"], state["redo"]) == (0, None, None)


def test_the_page_holds_what_it_promises(small, small_page):
    content, pictures = read_page(small_page)
    promised = {"title", "live", "summary", "images", "findings", "classes", "count", "anchors", "settings", "metrics",
                "skipped", "oracle", "state"}  # fmt: skip
    assert promised <= content.keys()
    assert content["title"] == "images"
    assert content["live"] is False
    assert content["skipped"] == 1
    assert content["state"] == initial_state(small)
    assert content["count"] is content["metrics"] is None
    assert content["images"]["file"] == list(small.files)
    assert {len(column) for column in content["images"].values()} == {160}
    assert [item["image"] for item in content["findings"]["labels"]] == [64]
    assert sorted(pictures) == list(range(160))
    assert content["classes"][1] == {"id": 1, "name": "dog", "kind": "known"}


def test_a_review_hands_in_its_own_state(tmp_path):
    results = small_run(tmp_path)
    state = {**initial_state(results), "revision": 3}
    assert read_page(write_report(results, QUIET, state))[0]["state"]["revision"] == 3


def test_other_files_of_a_run_are_shown(tmp_path):
    results = small_run(tmp_path)
    results.run.write_json("class_count.json", {"best": 4, "low": 3, "high": 6})
    results.run.write_json("metrics.json", {"all": 0.875})
    results.run.journal.save_pseudo_labels({"stage": 2, "epoch": 1, "anchors": 12})
    content, _ = look_through(results, QUIET)
    assert content["count"]["high"] == 6
    assert content["anchors"][0]["anchors"] == 12
    assert (
        "The number of classes was not given. newfound estimates about 4; anything from 3 to 6 is plausible."
        in (content["summary"])
    )
    assert any("87.5\u00a0% of the unlabelled images are right" in sentence for sentence in content["summary"])


def test_whitening_is_reported_where_it_was_asked_for(tmp_path):
    results = small_run(tmp_path)
    assert results.whitening is None
    assert not any("Whitening" in sentence for sentence in look_through(results, QUIET)[0]["summary"])
    check = WhiteningCheck((1.0, 0.9), ((0.5, 0.75),), 0.9)
    results.run.write_json("whitening.json", asdict(check))
    again = read_results(results.run.path)
    assert again.whitening == check
    said = "Whitening of the features: shrinkage 0.9 (labels that were hidden: 75 % correct with, 50 % without)."
    assert said in look_through(again, QUIET)[0]["summary"]


def test_a_class_of_one_seed_is_called_unstable(tmp_path):
    results = small_run(tmp_path)
    a = results.assignment
    other = replace(a, classes=np.where(a.classes == 3, 2, a.classes))
    write_stability(results, compare(a, [a, other], [0, 1]))
    content, _ = look_through(read_results(results.run.path), QUIET)
    assert any("0 of 2 new classes came out every time; 2 came out with one" in text for text in content["summary"])
    assert content["stability"]["elsewhere"][0]["seed"] == 1


@pytest.mark.parametrize("change", [
    {"seeds": 3}, {"classes": [{}]}, {"classes": [{"together": "most", "found": 1}]}, {"classes": None},
    {"classes": [{"together": 2, "found": 1}]}, {"classes": [{"together": None, "found": 7}]},
    {"elsewhere": [{"seed": 1, "images": 5, "found": 1}]}, {"elsewhere": [{"seed": 1, "images": [999], "found": 1}]},
])  # fmt: skip
def test_a_damaged_stability_is_named(tmp_path, change):
    results = small_run(tmp_path)
    write_stability(results, compare(results.assignment, [results.assignment] * 2, [0, 1]))
    path = results.run.path / "stability.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"stability\.json is malformed .* Delete it"):
        look_through(read_results(results.run.path), QUIET)


@pytest.mark.parametrize("text", ["[]", "{", '{"seeds": NaN}'])
def test_what_is_no_stability_at_all_is_named(tmp_path, text):
    results = small_run(tmp_path)
    (results.run.path / "stability.json").write_text(text)
    with pytest.raises(UserError, match=r"stability\.json .* Delete it"):
        look_through(read_results(results.run.path), QUIET)


def test_the_stability_of_other_results_is_not_shown(tmp_path):
    results = small_run(tmp_path)
    write_stability(results, compare(results.assignment, [results.assignment] * 2, [0, 1]))
    assert read_results(results.run.path).stability is not None
    path = results.run.path / "assignments.csv"
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.4", 1))
    assert read_results(results.run.path).stability is None


def test_folders_of_the_machine_stay_out_of_the_page(small, small_page):
    text = small_page.read_text("utf-8")
    assert str(small.root.parent) not in text


def test_the_same_run_gives_the_same_page(tmp_path):
    results = small_run(tmp_path)
    assert write_report(results, QUIET).read_bytes() == write_report(results, QUIET).read_bytes()


@pytest.mark.parametrize(
    ("classes", "names", "n_known", "given", "start"),
    [
        ([0, 0, 1], ("a", "b"), 1, [0, -1, -1], "3 images were sorted into 2 classes: 1 known and 1 newly found."),
        ([0, 1], ("a", "b"), 2, [0, 1], "2 images were sorted into 2 classes, all of them known."),
        ([0, 1], ("a", "b"), 0, None, "2 images were sorted into 2 classes, all newly found: nothing was labelled."),
    ],
)  # fmt: skip
def test_the_summary_is_grammatical(tmp_path, classes, names, n_known, given, start):
    results = write_run(tmp_path, [f"{i}.png" for i in range(len(classes))], classes, names, n_known, given=given)
    assert summary(results, NOTHING)[0].startswith(start)


def test_the_summary_of_labels(small):
    text = " ".join(summary(small, NOTHING)).replace("\u00a0", " ")
    assert "The model agrees with 39 of 40 given labels (98 %); none of the others looks clearly wrong." in text
    assert "1 file skipped: skipped.csv lists the reasons" in text


def test_classes_nobody_could_recognise_are_named_as_such(tmp_path):
    results = write_run(tmp_path, ["a.png", "b.png"], [0, 1], ("a", "b"), 1, unseen=("ghost",))
    assert "1 known class has no labelled image" in summary(results, NOTHING)[-1]


def test_reasons_have_numbers_but_no_names():
    assert reason(Merge((3, 5), 0.412, 0.6)).replace("\u00a0", " ") == (
        "Neighbours mix 41 % as much as within a single class; "
        "60 % of the images have the other class as second choice."
    )


@pytest.mark.parametrize("n", [2, 3, 5])
def test_tiny_runs_have_a_page(tmp_path, n):
    results = write_run(tmp_path, [f"{i}.png" for i in range(n)], [i % 2 for i in range(n)], ("a", "b"), 1)
    assert write_report(results, QUIET).stat().st_size > 10_000


def test_a_run_whose_images_are_gone_has_a_page(tmp_path):
    results = small_run(tmp_path)
    for file in results.files[:150]:
        (results.root / file).unlink()
    content, pictures = read_page(write_report(results, QUIET))
    assert content["thumbnails"] == {"unreadable": 150, "left_out": 0}
    assert len(pictures) == 10


def test_copies_are_found_by_their_looks_where_features_differ(tmp_path):
    results = small_run(tmp_path)
    (results.root / results.files[7]).write_bytes((results.root / results.files[90]).read_bytes())
    content, _ = look_through(results, QUIET)
    assert [7, 90] in [list(group["images"]) for group in content["findings"]["duplicates"]]


# The page's text


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<!--", "a&b", "\u2028\u2029", "caf\udce9", "😀", '"']
)
def test_json_inside_html_is_inert_and_loses_nothing(name):
    text = json_for_html([name])
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == [name]


def test_numbers_that_json_has_not_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        json_for_html([float("nan")])


def test_policy_lets_nothing_else_in(small):
    assert policy("s", "c", live=False).startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "connect-src 'self'" in policy("s", "c", live=True)
    assert "unsafe" not in policy("s", "c", live=True)
    content, _ = look_through(small, QUIET)
    assert "img-src data: &#39;self&#39;" in render_page({**content, "live": True}, {})


def test_a_title_is_escaped(small):
    content, _ = look_through(small, QUIET)
    page = render_page({**content, "title": "<img src=x onerror=alert(1)>\udce9"}, {})
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
