"""A run as tasks for Label Studio."""

import json
import os
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit
from xml.etree import ElementTree

from helping.exporting import HOSTILE, ODD, Heard
from newfound.export import export_label_studio
from newfound.export.reviewed_run import NOT_A_CLASS_NAME


def test_label_studio_tasks_and_configuration_agree(reviewed, run, tmp_path):
    heard = Heard()
    out = export_label_studio(run, tmp_path / "tasks.json", screen=heard)
    tasks = json.loads(out.tasks.read_text("utf-8"))
    config = ElementTree.parse(out.config).getroot()
    choices = [choice.get("value") for choice in config.iter("Choice")]
    assert out.config == tmp_path / "tasks-config.xml"
    assert choices == [HOSTILE, "red", NOT_A_CLASS_NAME, f"{NOT_A_CLASS_NAME}-2"]
    assert config.find("Image").get("name") == "image"
    assert config.find("Choices").get("name") == "class"
    assert len(tasks) == out.images == len(reviewed.results)
    assert out.annotated == sum("annotations" in task for task in tasks)
    for i, task in enumerate(tasks):
        file = reviewed.results.files[i]
        url = urlsplit(task["data"]["image"])
        assert url.path == "/data/local-files/"
        assert unquote_to_bytes(url.query) == b"d=images/" + os.fsencode(file)
        if file != ODD:
            assert (out.document_root / parse_qs(url.query)["d"][0]).is_file()
        for kind in ("predictions", "annotations"):
            for entry in task.get(kind, []):
                (result,) = entry["result"]
                assert (result["from_name"], result["to_name"], result["type"]) == ("class", "image", "choices")
                assert result["value"]["choices"][0] in choices
        for prediction in task.get("predictions", []):
            assert prediction["score"] == reviewed.results.assignment.confidence[i]
            assert prediction["model_version"] == "newfound run"
    assert any("1 file with a name that is not UTF-8" in line for line in heard.warnings)
    assert any(f"DOCUMENT_ROOT={tmp_path}" in line for line in heard.lines)


def test_labels_by_people_are_annotations_and_those_by_the_model_predictions(reviewed, run, tmp_path):
    out = export_label_studio(run, tmp_path / "tasks.json")
    results = reviewed.results
    dismissed = f"{NOT_A_CLASS_NAME}-2"
    for i, task in enumerate(json.loads(out.tasks.read_text())):
        predicted = [item["result"][0]["value"]["choices"][0] for item in task.get("predictions", [])]
        labels = [item["result"][0]["value"]["choices"][0] for item in task.get("annotations", [])]
        given, now = int(results.given[i]), reviewed.names.get(int(reviewed.class_of[i]), dismissed)
        if reviewed.placed[i]:
            assert labels == [now]
            assert predicted == [dismissed]  # both came from the dismissed class
        elif given >= 0:
            rejected = reviewed.verdict[i] < 0 and reviewed.class_of[i] == given
            assert labels == ([] if rejected else [{0: HOSTILE, 1: "red"}[given]])
        else:
            assert labels == ([now] if reviewed.verdict[i] > 0 else [])
        assert task["data"]["rejected_from"] == ("red" if reviewed.verdict[i] < 0 else "")
        assert task["data"]["class"] == ("" if reviewed.verdict[i] < 0 else now)
        if not reviewed.placed[i]:
            assert predicted == ([] if reviewed.verdict[i] < 0 else [now])


def test_choices_are_printable_and_xml(run, tmp_path):
    for name in ("classes.csv", "assignments.csv"):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content.replace(b"new-1", b'"\x1b[31m\n\xff"').replace(b"new-2", b"\\x1b[31m\\n\\xff"))
    out = export_label_studio(run, tmp_path / "tasks.json")
    choices = [choice.get("value") for choice in ElementTree.parse(out.config).iter("Choice")]
    assert choices == ["green", "red", r"\x1b[31m\n\xff-2", r"\x1b[31m\n\xff", NOT_A_CLASS_NAME]
    names = {task["data"]["class"] for task in json.loads(out.tasks.read_text())}
    assert names <= set(choices)
