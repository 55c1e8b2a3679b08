"""One definition of the nearest class, wherever it is named."""

import csv
import json

import numpy as np
import torch

from helping.small_runs import small_run, write_run
from newfound.fitting import Found
from newfound.runs.assignments import assign
from newfound.runs.decisions import DecisionLog, initial_state
from newfound.runs.nearest_class import nearest_classes
from newfound.runs.results import read_results
from newfound.training.heads import CosineClassifier
from newfound.training.learner import Prediction, Predictor


def by_hand(embeddings, classes, count):
    found = []
    for k in range(count):
        cosines = {}
        for j in set(range(count)) - {k}:
            if (classes == k).any() and (classes == j).any():
                a, b = embeddings[classes == k].sum(axis=0), embeddings[classes == j].sum(axis=0)
                cosines[j] = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        found.append(max(cosines, key=cosines.get) if cosines else -1)
    return found


def test_it_is_the_class_whose_mean_has_the_largest_cosine():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    classes = random.integers(-1, 6, 60)  # -1: of no class
    classes[classes == 4] = 0  # and class 4 is empty
    assert nearest_classes(rows, classes, 6).tolist() == by_hand(rows, classes, 6)
    assert nearest_classes(rows, classes, 6)[4] == -1


def test_a_class_alone_is_near_to_none():
    assert nearest_classes(np.eye(2), np.array([0, 0]), 2).tolist() == [-1, -1]
    assert nearest_classes(np.eye(2), np.array([-1, -1]), 0).tolist() == []


def three_in_a_row(root, names=("a", "b", "c")):
    """The middle one lies closer to the last."""
    places = np.array([[1, 0, 0], [0.5, 0.9, 0], [0.2, 1, 0]])
    return write_run(root, [f"{i}.png" for i in range(6)], [0, 1, 2] * 2, names, 1, embeddings=places[[0, 1, 2] * 2])


def column(run, name):
    with open(run / "classes.csv", newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def test_table_and_page_name_the_same_class(tmp_path):
    results = three_in_a_row(tmp_path)
    assert column(results.run.path, "nearest_class") == ["b", "c", "b"]
    assert [c["nearest"] for c in initial_state(results)["classes"]] == [1, 2, 1]


def test_an_empty_class_has_a_blank(tmp_path):
    results = three_in_a_row(tmp_path, ("a", "b", "c", "empty"))
    assert column(results.run.path, "nearest_class") == ["b", "c", "b", ""]
    assert read_results(results.run.path).assignment.class_names[3] == "empty"
    assert initial_state(results)["classes"][3]["nearest"] is None


def test_the_directions_of_the_classifier_have_no_say():
    directions = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    predictor = Predictor(torch.nn.Identity(), CosineClassifier.holding({"weight": directions}), 0.1)
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.3], [0.2, 1.0]])
    a = assign(Found(predictor, Prediction(features, torch.eye(3)), np.zeros(3, bool), 0, task=None), ("cat",))
    assert nearest_classes(features.numpy(), a.classes, 3).tolist() == [2, 2, 0]


def test_a_run_of_an_earlier_version_is_read_and_shown_by_the_new_definition(tmp_path):
    results = three_in_a_row(tmp_path)
    path = results.run.path / "classes.csv"
    first = next(line for line in path.read_bytes().splitlines() if line.startswith(b"0,"))
    path.write_bytes(path.read_bytes().replace(first, first.removesuffix(b",b") + b",c"))
    assert column(results.run.path, "nearest_class")[0] == "c"
    assert initial_state(read_results(results.run.path))["classes"][0]["nearest"] == 1


def test_a_review_changes_what_is_nearest(tmp_path):
    log = DecisionLog(three_in_a_row(tmp_path))
    log.decide({"action": "merge", "classes": [1], "into": 2}, 0)
    assert {c["id"]: c["nearest"] for c in log.state()["classes"]} == {0: 2, 2: 0}
    log.decide({"action": "split", "class": 2, "images": ["2.png", "5.png"]}, 1)
    assert {c["id"]: c["nearest"] for c in log.state()["classes"]} == {0: 2, 2: 3, 3: 2}
    json.dumps(log.state())  # plain numbers


def test_nothing_depends_on_how_the_page_was_made(tmp_path):
    results = small_run(tmp_path)
    stored = nearest_classes(results.embeddings, results.assignment.classes, 4)
    assert column(results.run.path, "nearest_class") == [results.assignment.class_names[k] for k in stored]
