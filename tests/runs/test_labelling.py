"""Labelling other images with the model files of a run."""

import csv
import json
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helping.pictures import picture, write_folder
from newfound import Discovery
from newfound.discovery import discover
from newfound.errors import UserError
from newfound.runs import labelling as module
from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.decisions import DecisionLog
from newfound.runs.labelling import HEADER, NamedClasses, label, predict
from newfound.runs.model import load_model
from newfound.settings import Settings

FAST = {"epochs": 6, "image_size": 32, "bank_views": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def found(tmp_path_factory, small_projector):
    """A run on coloured squares, two colours known."""
    root = tmp_path_factory.mktemp("found")
    images, _ = write_folder(root, each=12)
    settings = Settings(4, **FAST, bank_dir=root / "banks")
    return discover(images, settings, out=root / "run", report=False)


@pytest.fixture
def model_alone(found, tmp_path):
    """The two files of the model, on another machine."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("model.json", "model.safetensors"):
        shutil.copy(found.run / name, folder)
    return folder


@pytest.fixture
def new_images(tmp_path):
    """Images the run has not seen: two of each colour, a broken file, and one unlike all."""
    folder = tmp_path / "new"
    (folder / "deep").mkdir(parents=True)
    for colour in ("red", "green", "blue", "yellow"):
        for number in (100, 101):
            picture(colour, number).save(folder / "deep" / f"{colour}{number}.png")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff no")
    Image.effect_mandelbrot((64, 64), (-2, -1.5, 1, 1.5), 100).convert("RGB").save(folder / "unlike.png")
    return folder


def test_images_of_the_run_get_the_answer_of_the_run(found, model_alone):
    results = found.results
    again = Discovery.load(model_alone).predict([results.root / file for file in results.files])
    names = [results.assignment.class_names[k] for k in results.assignment.classes]
    agree = [a == b for a, b in zip(names, again.classes, strict=True) if b != NONE_OF_THESE]
    assert all(agree)
    assert len(agree) >= 0.9 * len(names)
    kept = ~np.isnan(again.confidence)
    np.testing.assert_allclose(again.confidence[kept], results.assignment.confidence[kept], atol=2e-3)
    assert (again.likeness[results.given >= 0] > 0).all()


@pytest.mark.parametrize("method", ["kmeans", "gcd"])
def test_a_model_of_centres(found, tmp_path, method):
    settings = Settings(4, method=method, image_size=32, bank_views=2, bank_dir=found.run.parent / "banks")
    settings = replace(settings, epochs=1) if method == "gcd" else settings
    results = discover(found.results.root, settings, out=tmp_path / "run", report=False).results
    again = predict(tmp_path / "run", [results.root / file for file in results.files], refused=0)
    assert list(again.classes) == [results.assignment.class_names[k] for k in results.assignment.classes]


def test_new_images_and_one_unlike_all(found, new_images):
    labelled = found.predict(new_images)
    by_name = {file.rpartition("/")[2]: i for i, file in enumerate(labelled.files)}
    assert labelled.classes[by_name["red100.png"]] == "red"
    assert labelled.classes[by_name["green101.png"]] == "green"
    assert labelled.classes[by_name["blue100.png"]] == labelled.classes[by_name["blue101.png"]]
    assert labelled.is_new[by_name["blue100.png"]]
    unlike = by_name["unlike.png"]
    assert labelled.classes[unlike] == NONE_OF_THESE
    assert labelled.likeness[unlike] == 0
    assert np.isnan(labelled.confidence[unlike])
    assert labelled.runner_up[unlike] in found.results.assignment.class_names
    assert [(item.file.rpartition("/")[2], bool(item.reason)) for item in labelled.skipped] == [("broken.jpg", True)]


def test_a_class_for_everybody(found, new_images):
    labelled = predict(found.run, new_images, refused=0)
    assert NONE_OF_THESE not in labelled.classes
    assert not np.isnan(labelled.confidence).any()


def test_files_folders_and_patterns(found, new_images):
    one = new_images / "deep" / "red100.png"
    assert found.predict(one).files == (str(one),)
    assert len(found.predict(str(new_images / "deep" / "*10?.png"))) == 8
    assert len(found.predict(str(new_images / "**" / "blue*.png"))) == 2
    both = found.predict([one, new_images / "deep"])
    assert both.files[0] == str(one)
    assert len(both) == 8  # the one only once
    (new_images / "odd [1].png").write_bytes(one.read_bytes())
    assert len(found.predict(new_images / "odd [1].png")) == 1  # a name is a name before it is a pattern


def test_the_table_is_that_of_the_run_with_one_column_more(found, new_images, tmp_path):
    found.predict(new_images).write_csv(tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(found.run / "assignments.csv", newline="") as file:
        assert [*next(csv.reader(file)), "likeness"] == list(rows[0]) == list(HEADER)
    none = next(row for row in rows if row["class"] == NONE_OF_THESE)
    assert (none["confidence"], none["is_new"], none["given_label"]) == ("", "", "")
    assert float(none["likeness"]) == 0
    assert "broken.jpg" in (tmp_path / "table-skipped.csv").read_text()


def test_what_was_decided_in_a_review_holds(found, new_images, tmp_path):
    run = shutil.copytree(found.run, tmp_path / "run")
    log = DecisionLog(Discovery.load(run).results)
    blue = next(name for file, name in zip(*found_by_colour(found, new_images), strict=True) if "blue" in file)
    number = found.results.assignment.class_names.index(blue)
    log.decide({"action": "rename", "class": number, "name": "sky"}, 0)
    log.decide({"action": "merge", "classes": [1], "into": 0}, 1)  # red into green
    for name in ("assignments.csv", "classes.csv", "embeddings.npy", "config.toml"):
        (run / name).unlink()  # the model and the decisions are enough
    files, names = found_by_colour(Discovery.load(run), new_images)
    assert {name for file, name in zip(files, names, strict=True) if "blue" in file} == {"sky"}
    assert {name for file, name in zip(files, names, strict=True) if "red" in file or "green" in file} == {"green"}


def test_a_class_that_is_none(found, new_images, tmp_path):
    run = shutil.copytree(found.run, tmp_path / "run")
    files, names = found_by_colour(found, new_images)
    blue = next(name for file, name in zip(files, names, strict=True) if "blue" in file)
    number = found.results.assignment.class_names.index(blue)
    DecisionLog(Discovery.load(run).results).decide({"action": "dismiss", "class": number}, 0)
    labelled = predict(run, new_images / "deep", refused=0)
    there = [i for i, file in enumerate(labelled.files) if "blue" in file]
    assert {labelled.classes[i] for i in there} == {NONE_OF_THESE}
    assert blue not in {*labelled.classes, *labelled.runner_up}


def found_by_colour(discovery, images):
    labelled = predict(discovery.run, images / "deep", refused=0)
    return labelled.files, labelled.classes


def naive_rows(probabilities, likeness, names, n_known, refused):
    """Rows of the table, image by image and class by class: sort all columns, then look for what is a class."""
    columns = list(dict.fromkeys(names))
    for i, line in enumerate(probabilities):
        merged = [0.0] * len(columns)
        for k, name in enumerate(names):
            merged[columns.index(name)] += line[k]
        order = sorted(range(len(columns)), key=lambda c: -merged[c])  # stable: of equal ones the first
        named = [c for c in order if columns[c] is not None]
        none = likeness[i] < refused or columns[order[0]] is None
        second = named[0] if none else named[1] if len(named) > 1 else None
        is_new = all(k >= n_known for k, name in enumerate(names) if name == columns[order[0]])
        yield [
            f"{i}.png", "", NONE_OF_THESE if none else columns[order[0]],
            "" if none else "true" if is_new else "false", "" if none else f"{merged[order[0]]:.6f}",
            "" if second is None else columns[second], f"{0.0 if second is None else merged[second]:.6f}",
            "false", f"{likeness[i]:.4f}",
        ]  # fmt: skip


@st.composite
def answers(draw):
    """Probabilities with ties, and names of which some are shared and some are of no class."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(1, 7))
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=k, max_size=k).filter(any))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    counts = random.integers(0, 4, (n, k)) + 1e-3
    return counts / counts.sum(axis=1, keepdims=True), random.choice([0.0, 0.005, 0.5], n), names


@given(answers(), st.integers(0, 3), st.integers(1, 5))
def test_the_table_is_that_of_a_naive_loop(answer, n_known, batch):
    probabilities, likeness, names = answer
    files, classes, found = [f"{i}.png" for i in range(len(likeness))], NamedClasses(names, n_known), []
    for start in range(0, len(files), batch):
        part = slice(start, start + batch)
        found += label(files[part], probabilities[part], likeness[part], classes, refused=0.01).rows()
    assert found == list(naive_rows(probabilities, likeness, names, n_known, refused=0.01))


def test_memory_does_not_grow_with_images_times_classes(tmp_path, monkeypatch):
    n, k, random = 3_000, 1_000, np.random.default_rng(0)

    class ManyClasses:
        class_names, n_known, oracle, reading = tuple(f"class {i % 600}" for i in range(k)), 100, False, ""

        def label(self, tokens):
            return random.dirichlet(np.ones(k), len(tokens)), np.ones(len(tokens))

    batches = [[(f"{i}.png", torch.zeros(1)) for i in range(start, start + 100)] for start in range(0, n, 100)]
    monkeypatch.setattr(module, "load_model", lambda *_, **__: ManyClasses())
    monkeypatch.setattr(module, "_batches", lambda *_: ((batch, []) for batch in batches))
    tracemalloc.start()
    labelled = predict(tmp_path, np.zeros((8, 8, 3), np.uint8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(labelled) == n
    assert peak < n * k * 8 / 3


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("nowhere", "no such file or folder"),
        ("nothing/*.jpg", "nothing matches"),
        ([], "nothing: there are no files"),
    ],
)
def test_nothing_to_label(found, asked, text):
    with pytest.raises(UserError, match=text):
        found.predict(asked)


def test_only_broken_files(found, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"")
    with pytest.raises(UserError, match=r"no readable image .*a\.jpg"):
        found.predict(tmp_path / "a.jpg")


def spoil_json(run, **change):
    path = run / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def decided(run, **change):
    content = {"version": 1, "results": "", "class_names": ["a", "b", "c", "d"], **change}
    (run / "decisions.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda run: (run / "model.json").unlink(), "no model.json"),
        (lambda run: (run / "model.json").write_text("{"), "is damaged"),
        (lambda run: (run / "model.json").write_text("[]"), "malformed"),
        (lambda run: (run / "model.json").write_text("{}"), "do not fit"),
        (lambda run: (run / "model.safetensors").write_bytes(b"x" * 50), "is damaged"),
        (lambda run: spoil_json(run, class_names=["a"]), "do not fit"),
        (lambda run: spoil_json(run, classifier="oracle"), "no classifier 'oracle'"),
        (lambda run: spoil_json(run, backbone_fingerprint="0"), "other weights"),
        (lambda run: (run / "decisions.json").write_text("{"), "cannot be read"),
        (lambda run: (run / "decisions.json").write_text('{"class_names": ["a"]}'), "cannot be read"),
        (lambda run: decided(run, version=9), "Update newfound"),
        (lambda run: decided(run, class_names=["a"]), "does not belong"),
        (lambda run: decided(run, class_names=[None] * 4), "does not belong"),
        (lambda run: (decided(run), (run / "assignments.csv").write_text("")), "does not belong"),
    ],
)
def test_a_spoilt_model_is_named(model_alone, new_images, spoil, text):
    spoil(model_alone)
    with pytest.raises(UserError, match=text):
        predict(model_alone, new_images)


def test_a_folder_that_is_not_there():
    with pytest.raises(UserError, match="no such run folder"):
        Discovery.load("nowhere")


def test_an_odd_share(found, new_images):
    with pytest.raises(UserError, match="refused must be at least 0 and below 1; found refused="):
        predict(found.run, new_images, refused=1.5)


def test_a_model_is_the_same_for_every_batch(found, new_images, monkeypatch):
    whole = found.predict(new_images)
    monkeypatch.setattr(module, "BATCH", 3)
    parts = found.predict(new_images)
    assert parts.classes == whole.classes
    np.testing.assert_allclose(parts.likeness, whole.likeness, atol=0.05)
    assert load_model(found.run).n_known == 2


def test_pictures_in_memory_get_the_answer_of_their_files(found, new_images):
    files = sorted((new_images / "deep").glob("*.png"))
    by_file = found.predict(files)
    pictures = [Image.open(file) for file in files]
    for images in (pictures, [np.asarray(image) for image in pictures], np.stack([*map(np.asarray, pictures)])):
        labelled = found.predict(images)
        assert labelled.files == tuple(f"[{i}]" for i in range(8))
        assert labelled.classes == by_file.classes
        np.testing.assert_allclose(labelled.likeness, by_file.likeness, atol=0.05)
    assert found.predict(pictures[0]).classes == by_file.classes[:1]
    assert found.predict(np.asarray(pictures[0])[:, ::-1]).files == ("[0]",)  # mirrored: its bytes are not in a row
    assert found.predict(np.array([str(file) for file in files])).files == tuple(map(str, files))


def test_a_picture_is_turned_as_its_file_would_be(found, tmp_path):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    by_file, in_memory = found.predict(tmp_path / "turned.png"), found.predict(Image.open(tmp_path / "turned.png"))
    np.testing.assert_allclose(in_memory.runner_up_confidence, by_file.runner_up_confidence, atol=1e-6)


def test_a_picture_whose_file_is_cut_short_is_skipped(found, tmp_path):
    Image.effect_noise((90, 90), 50).save(tmp_path / "noise.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "noise.png").read_bytes()[:900])
    labelled = found.predict([Image.open(tmp_path / "cut.png"), Image.open(tmp_path / "noise.png")])
    assert labelled.files == ("[1]",)
    assert [item.file for item in labelled.skipped] == ["[0]"]
    with pytest.raises(UserError, match=r"^images: no readable image \(\[0\]: "):
        found.predict(np.zeros((0, 5, 3), np.uint8))


@pytest.mark.parametrize(("images", "message"), [
    (np.zeros((5, 5, 3)), r"images\[0\] is an array of float64 with the shape \(5, 5, 3\): give H×W×3 of uint8"),
    (np.zeros((5, 5), np.uint8), r"images\[0\] is an array of uint8 with the shape \(5, 5\)"),
    ([np.zeros((5, 5, 3), np.uint8), "a.jpg"], r"images\[1\] is 'a\.jpg': give paths, or images, but not both"),
    (5, "images must be paths, PIL images or arrays H×W×3 of uint8; found 5"),
    (["a.jpg", None], "images must be a path: a string, or a pathlib.Path; found images=None"),
    ([], "nothing: there are no files"),
], ids=str)  # fmt: skip
def test_what_is_no_picture(found, images, message):
    with pytest.raises(UserError, match=f"^{message}"):
        found.predict(images)


def test_weights_and_tables_may_be_strings(found, new_images, tmp_path):
    with pytest.raises(UserError, match=r"weights\.pth"):
        found.predict(new_images, weights="weights.pth")
    with pytest.raises(UserError, match=r"^weights must be a path"):
        found.predict(new_images, weights=5)
    with pytest.raises(UserError, match=r"^device=1\.5 cannot be used here"):
        found.predict(new_images, device=1.5)
    found.predict(new_images).write_csv(str(tmp_path / "table.csv"))
    assert (tmp_path / "table-skipped.csv").is_file()


def test_the_share_that_may_be_refused_is_chosen_in_python_too(found, new_images):
    assert NONE_OF_THESE not in found.predict(new_images, refused=0).classes
    with pytest.raises(UserError, match="refused must be at least 0 and below 1; found refused='none'"):
        found.predict(new_images, refused="none")
