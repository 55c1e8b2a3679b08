"""Weights, models, banks and run folders that somebody or something has spoilt."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import uvicorn
from safetensors.torch import load_file, save_file

from helping import hostile
from helping.hostile import FAST, NO_TRAINING, RUN, Case
from helping.pictures import write_folder
from newfound.backbones.efficientnet import packaged_weights
from newfound.backbones.weights import read_state_dict
from newfound.discovery import discover
from newfound.report import write_report
from newfound.runs.tensor_files import load_tensors
from newfound.screen import Screen
from newfound.settings import Settings

NESTED = "[" * 100_000


# Weights


def of_another_network(path: Path) -> None:
    save_file(torch.nn.Linear(3, 4).state_dict(), path)


def with_nan(path: Path) -> None:
    state = read_state_dict(packaged_weights("efficientnet_lite0"))
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    state["_bn0.bias"] = torch.full_like(state["_bn0.bias"], torch.nan)
    save_file(state, path)


def cut_weights(path: Path) -> None:
    of_another_network(path)
    hostile.halved(path)


WEIGHTS = [
    ("a.pth", hostile.pickled_code, "was refused, because it contains code rather than only tensors"),
    ("a.safetensors", hostile.pickled_code, "is damaged or not a weights file"),
    ("a.safetensors", cut_weights, "is damaged or not a weights file"),
    ("a.safetensors", of_another_network, "do not fit this EfficientNetLite"),
    ("a.safetensors", with_nan, "are damaged: _bn0.bias has numbers that are not finite"),
    ("a.safetensors", hostile.content("hello"), "is damaged or not a weights file"),
    ("a.safetensors", hostile.content(b"\xff" * 8 + b"{" * 50), "is damaged or not a weights file"),
    ("a.pth", hostile.content("hello"), "is damaged or not a weights file"),
    ("a.pth", hostile.content(b""), "is empty"),
    ("a.pth", Path.mkdir, "There is no weights file at a.pth"),
    ("a.pth", os.mkfifo, "There is no weights file at a.pth"),
]


@pytest.mark.parametrize(("name", "write", "words"), WEIGHTS)
def test_weights(tmp_path, newfound, monkeypatch, name, write, words):
    write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    newfound("discover", "images", *NO_TRAINING, "--weights", name).check_refused(words)
    assert not (tmp_path / "ran").exists(), "code in the file was run"


# A finished run, one file of it spoilt


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with all its files, its images beside it, and the bank."""
    root = tmp_path_factory.mktemp("finished")
    images, truth = write_folder(root, each=4)
    with pytest.MonkeyPatch.context() as patch:
        hostile.make_quick(patch)
        settings = Settings(4, epochs=1, image_size=32, bank_views=2, batch_size=12, bank_dir=root / "banks")
        write_report(
            discover(images, settings, truth=truth, out=root / "run", report=False).results, Screen(quiet=True)
        )
    (root / "run" / "report.html").unlink()
    return root


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of the finished run to spoil, in the current folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(finished), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


COMMANDS = {
    "report": ["report", "run"],
    "predict": ["predict", "run", "images", "--out", "table.csv"],
    "export": ["export", "run", "--folders", "copies"],
    "onnx": ["export", "run", "--onnx", "model.onnx"],
    "review": ["review", "run", "--no-browser"],
    "continue": ["discover", "images", "--continue", "run", "--bank-dir", "banks", *FAST],
    "resume": ["resume", "run"],
    "score": ["discover", "images", "--out", "run", "--resume", "--bank-dir", "banks", *RUN, "--truth", "truth.csv"],
}


def changed(**values: object) -> hostile.Writer:
    """A JSON file with other values."""

    def write(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return write


def line(text: str) -> hostile.Writer:
    """One line more."""

    def write(path: Path) -> None:
        with open(path, "a") as file:
            file.write(text)

    return write


def array(values: object) -> hostile.Writer:
    return lambda path: np.save(path, values)


def decided(*decisions: object, **other: object) -> hostile.Writer:
    from newfound.runs.results import digest_of

    def write(path: Path) -> None:
        content = {"version": 1, "results": digest_of(path.parent), "revision": 1, "decisions": decisions, "undone": []}
        path.write_text(json.dumps({**content, "class_names": ["a", "b", "c", "d"], **other}))

    return write


def claiming(shape: tuple[int, ...]) -> hostile.Writer:
    """An array whose header promises more than there is."""

    def write(path: Path) -> None:
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})

    return write


def other_tensors(path: Path) -> None:
    tensors, metadata = load_tensors(path)
    save_file({**tensors, "model.tail.mean": torch.zeros(3)}, path, metadata)


def checkpoint_state(state: str) -> hostile.Writer:
    return lambda path: save_file(load_file(path), path, {"state": state})


def no_metadata(path: Path) -> None:
    save_file(load_file(path), path)


M, J, C, A, K, E, D, S = (
    "model.safetensors", "model.json", "config.toml", "assignments.csv", "classes.csv", "embeddings.npy",
    "decisions.json", "checkpoint/stage2.safetensors",
)  # fmt: skip
TABLES = "assignments.csv and classes.csv are malformed"
NOT_FINITE = "embeddings.npy has numbers that are not finite"
SPOILT = [  # what is spoilt, how, and what each command says of it; None: it works all the same
    ("bytes changed in the header", M, hostile.flipped(0.02), {"predict": "model.safetensors"}),
    ("bytes changed in the data", M, hostile.flipped(0.9), {"predict": "model.safetensors"}),
    ("half a model", M, hostile.halved, {"predict": "model.safetensors"}),
    ("no model", M, hostile.content(b""), {"predict": "model.safetensors"}),
    ("pickle as model", M, hostile.pickled_code, {"predict": "model.safetensors"}),
    ("model of another run", M, hostile.replaced(b"F32", b"I32"), {"predict": "model.safetensors"}),
    ("not JSON", J, hostile.content("{"), {"predict": "model.json is damaged"}),
    ("not UTF-8", J, hostile.content(b"\xff\xfe{}"), {"predict": "model.json is damaged"}),
    ("nested", J, hostile.content(NESTED), {"predict": "model.json is damaged"}),
    ("nothing in it", J, hostile.content("{}"), {"predict": "model.json"}),
    ("image size of text", J, changed(image_size="big"), {"predict": "model.json"}),
    ("image size absurd", J, changed(image_size=10**6), {"predict": "image_size is 1000000"}),
    ("names a number", J, changed(class_names=5), {"predict": "model.json"}),
    ("names numbers", J, changed(class_names=[1, 2, 3, 4]), {"predict": "model.json"}),
    ("names null", J, changed(class_names=[None] * 4), {"predict": "model.json"}),
    ("temperature zero", J, changed(temperature=0), {"predict": "model.json"}),
    ("temperature NaN", J, changed(temperature=float("nan")), {"predict": "model.json"}),
    ("known classes absurd", J, changed(known_classes=99), {"predict": "model.json"}),
    ("backbone a list", J, changed(backbone=[]), {"predict": "model.json"}),
    ("classifier a list", J, changed(classifier=[]), {"predict": "model.json"}),
    ("a setting of the future", C, hostile.replaced("[settings]\n", "[settings]\nwarp = 9\n"),
     {"report": "does not know: warp. Update newfound", "resume": "does not know: warp"}),
    ("not TOML", C, hostile.content("= ="), {"report": "config.toml is not readable as TOML"}),
    ("not UTF-8", C, hostile.content(b"\xff\xfe"), {"report": "config.toml", "resume": "config.toml"}),
    ("nested", C, hostile.content("a = " + NESTED), {"report": "config.toml", "resume": "config.toml"}),
    ("endless number", C, hostile.content("[settings]\nclasses = 1" + "0" * 5000), {"report": "config.toml"}),
    ("wrong type", C, hostile.replaced("classes = 4", 'classes = "4"'), {"report": "has classes = '4'"}),
    ("section a number", C, lambda path: path.write_text("data = 3\n" + path.read_text().split("[data]")[0]),
     {"report": "config.toml", "resume": "config.toml", "continue": "config.toml"}),
    ("labels a number", C, hostile.replaced("[data]\n", "[data]\nlabels = 3\n"), {"continue": "in 3, which no longer"}),
    ("empty", C, hostile.content(""), {"report": "it is not from a newfound run"}),
    ("a setting of the method of the future", C, hostile.replaced("[method]\n", "[method]\nwarp = 9\n"),
     {"report": "does not know: warp. Update newfound", "resume": "does not know: warp"}),
    ("wrong type of the method", C, hostile.replaced("beta = 0.5", 'beta = "much"'), {"report": "has beta = 'much'"}),
    ("no such method", C, hostile.replaced('method = "sdas"', 'method = "x"'), {"report": "has the method 'x', which"}),
    ("half of k-means", "checkpoint/kmeans.safetensors", hostile.halved,
     {"resume": "Delete it, and it is made again", "score": "Delete it, and it is made again"}),
    ("half a checkpoint", S, hostile.halved, {"resume": "Delete it to train from the start"}),
    ("half of the first", "checkpoint/stage1.safetensors", hostile.halved, {"resume": "Delete it to train"}),
    ("a checkpoint of nothing", S, hostile.content(b""), {"resume": "Delete it"}),
    ("no state", S, no_metadata, {"resume": "Delete it"}),
    ("state not JSON", S, checkpoint_state("{"), {"resume": "Delete it"}),
    ("state of other names", S, checkpoint_state('{"step": 1}'), {"resume": "Delete it"}),
    ("other tensors", S, other_tensors, {"resume": "its tensors are not those of this model"}),
    ("empty", A, hostile.content(""), {"report": TABLES}),
    ("half a table", A, lambda path: path.write_text(path.read_text()[:-30]), {"report": TABLES, "export": TABLES}),
    ("half the rows", A, hostile.halved, {"report": TABLES}),
    ("binary", A, hostile.content(bytes(range(256)) * 9), {"report": TABLES}),
    ("NUL bytes", A, hostile.replaced("red", "r\0d"), {"report": TABLES}),
    ("endless cell", A, line("x" * 200_000), {"report": TABLES}),
    ("files elsewhere", A, hostile.replaced("unlabelled/", "../../"), {"export": TABLES, "review": TABLES}),
    ("files from the root", A, hostile.replaced("unlabelled/", "/etc/"), {"report": TABLES}),
    ("one file twice", A, lambda path: line(path.read_text().splitlines()[-1] + "\r\n")(path), {"report": TABLES}),
    ("confidence NaN", A, hostile.replaced("0.", "nan"), {"report": TABLES}),
    ("empty", K, hostile.content(""), {"report": TABLES}),
    ("half", K, hostile.halved, {"report": TABLES}),
    ("two of one name", K, hostile.replaced("new-2", "new-1"), {"report": TABLES}),
    ("other shape", E, array(np.ones((3, 2))), {"report": "has 3 rows, and there are 16 images"}),
    ("a number", E, array(np.float32(3)), {"report": "embeddings.npy"}),
    ("text", E, array(np.full((16, 2), "a")), {"report": "embeddings.npy"}),
    ("not a number", E, array(np.full((16, 2), np.nan)), {"report": NOT_FINITE}),
    ("one infinite", E, array(np.where(np.eye(16, 2), np.inf, 1)), {"report": NOT_FINITE, "review": NOT_FINITE}),
    ("no columns", E, array(np.ones((16, 0))), {"report": "embeddings.npy"}),
    ("an archive", E, lambda path: (np.savez(path.with_suffix(".npz"), a=1), path.with_suffix(".npz").replace(path)),
     {"report": "embeddings.npy is damaged"}),
    ("promises too much", E, claiming((16, 10**12)), {"report": "embeddings.npy is damaged"}),
    ("code", E, hostile.array_with_code, {"report": "embeddings.npy is damaged"}),
    ("half", E, hostile.halved, {"report": "embeddings.npy is damaged"}),
    ("empty", E, hostile.content(b""), {"report": "embeddings.npy is damaged"}),
    ("half", "map.npy", hostile.halved, {"report": None}),
    ("not JSON", D, hostile.content("{"), {"export": "decisions.json cannot be read", "continue": "decisions.json"}),
    ("nested", D, hostile.content(NESTED), {"report": "decisions.json cannot be read", "predict": "decisions.json"}),
    ("a list", D, hostile.content("[]"), {"report": "decisions.json cannot be read", "predict": "decisions.json"}),
    ("no such action", D, decided({"action": "explode"}), {"report": "there is no action 'explode'"}),
    ("action a list", D, decided({"action": []}), {"report": "decisions.json"}),
    ("class a list", D, decided({"action": "rename", "class": [], "name": "x"}), {"report": "no class number []"}),
    ("endless revision", D, decided(revision=float("inf")), {"report": "decisions.json cannot be read"}),
    ("of the future", D, decided(version=2), {"report": "has version 2", "predict": "Update newfound"}),
    ("of other results", D, decided(results="0"), {"report": "belongs to other results", "predict": "does not belong"}),
    ("other class names", D, decided(class_names=[{}, [], 3, 4]), {"predict": "does not belong to the model"}),
    ("half a line", "log.jsonl", line('{"stage": 2, "epo'), {"resume": None}),
    ("garbage", "log.jsonl", hostile.content("rubbish}\n"), {"resume": "log.jsonl"}),
    ("no epochs", "log.jsonl", hostile.content("{}\n"), {"resume": "log.jsonl"}),
    ("not UTF-8", "log.jsonl", hostile.content(b"\xff}\n"), {"resume": "log.jsonl"}),
    ("garbage", "anchors.jsonl", hostile.content("rubbish}\n"), {"report": "anchors.jsonl"}),
    ("endless cell", "skipped.csv", line("x" * 200_000), {"report": "skipped.csv"}),
    ("not JSON", "metrics.json", hostile.content("{"), {"report": "metrics.json is damaged"}),
    ("text", "metrics.json", changed(all="good"), {"report": "metrics.json"}),
    ("nested", "class_count.json", hostile.content(NESTED), {"report": "class_count.json is damaged"}),
    ("nothing in it", "class_count.json", hostile.content("{}"), {"report": "class_count.json"}),
    ("nested", "whitening.json", hostile.content(NESTED), {"report": "whitening.json is damaged"}),
    ("nothing in it", "whitening.json", hostile.content("{}"), {"report": "whitening.json is malformed"}),
    ("no numbers", "whitening.json", hostile.content("{}"), {"predict": None}),
    ("a list", "whitening.json", hostile.content("[]"), {"report": "whitening.json is malformed"}),
    ("nested", "round.json", hostile.content(NESTED), {"continue": "round.json"}),
    ("of text", "round.json", hostile.content('{"renamed": {"red": 3}, "cleared": [[]]}'), {"continue": "round.json"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "spoil", "command", "words"),
    [
        pytest.param(file, spoil, command, words, id=f"{file}: {name}: {command}")
        for name, file, spoil, answers in SPOILT
        for command, words in answers.items()
    ],
)
def test_a_spoilt_run(run, newfound, monkeypatch, file, spoil, command, words):
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: pytest.fail("it is served"))
    spoil(run / file)
    Case("", refused=words).check(newfound, *COMMANDS[command])
    assert not (run / "ran").exists(), "code in the file was run"


@pytest.mark.parametrize("where", [0.02, 0.9])
def test_no_graph_of_a_spoilt_model(run, newfound, where):
    """It is refused as predicting is, word by word."""
    hostile.flipped(where)(run / M)
    predicted, exported = newfound(*COMMANDS["predict"]), newfound(*COMMANDS["onnx"])
    exported.check_refused("model.safetensors is damaged")
    assert exported == predicted
    assert sorted(os.listdir()) == ["banks", "images", "run", "truth.csv"]


def results_of(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in (A, K, E, M, J)}


def test_resuming_writes_damaged_results_again(run, newfound):
    before = results_of(run)
    for name in before:
        hostile.halved(run / name)
    newfound(*COMMANDS["resume"]).check_done()
    assert results_of(run) == before


@pytest.mark.parametrize(
    ("pattern", "spoil"),
    [
        ("*.f16", hostile.halved),
        ("*.f16", hostile.content(b"")),
        ("*.f16", Path.unlink),
        ("shard-*.json", hostile.content(NESTED)),
        ("shard-*.json", hostile.content(b"\xff")),
        ("shard-*.json", hostile.content('{"images": 3}')),
        ("shard-*.json", hostile.content('{"images": "abcdefgh"}')),
        ("recipe.json", hostile.content("{")),
    ],
)
def test_a_damaged_bank_is_built_again(run, newfound, pattern, spoil):
    before = results_of(run)
    (file,) = Path("banks").glob(f"*/{pattern}")
    spoil(file)
    shutil.rmtree(run)
    newfound("discover", "images", "--out", "run", "--bank-dir", "banks", *RUN).check_done()
    assert results_of(run) == before


PREDICT = [
    Case("no such file", args=("gone.png",), refused="gone.png: there is no such file or folder"),
    Case("a pattern of nothing", args=("gone/*.png",), refused="gone/*.png: nothing matches this pattern"),
    Case("an unclosed pattern", args=("[gone.png",), refused="[gone.png: nothing matches this pattern"),
    Case("empty folder", Path.mkdir, args=("new",), refused="new: there are no files"),
    Case("nothing readable", hostile.content("text"), args=("new",), refused="new: no readable image (new: not a PNG"),
    Case("a FIFO", os.mkfifo, args=("new",), refused="new: no readable image (new: not a regular file)"),
    Case("some broken", hostile.content(b""), args=("new", "images"), says="warning: skipped: new: zero bytes"),
    Case("all may be refused", args=("images", "--refused", 1), refused="--refused must be at least 0 and below 1"),
    Case("refused NaN", args=("images", "--refused", "nan"), refused="--refused must be at least 0 and below 1"),
    Case("unknown device", args=("images", "--device", "toaster"), refused="--device toaster cannot be used here"),
    Case("out is there", args=("images", "--out", "truth.csv"), refused="truth.csv already exists"),
    Case("out in a file", args=("images", "--out", "truth.csv/x"), refused="there is no folder truth.csv"),
    Case(
        "other weights", hostile.content("text"), args=("images", "--weights", "new"), refused="new is damaged or not"
    ),
]


@pytest.mark.parametrize("case", PREDICT, ids=lambda case: case.name)
def test_predict(run, newfound, case):
    case.prepare(Path("new"))
    case.check(newfound, "predict", "run")


@pytest.mark.parametrize("command", ["report", "predict", "export", "continue"])
def test_a_run_folder_without_a_run(tmp_path, newfound, monkeypatch, command):
    write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    newfound(*COMMANDS[command]).check_refused("run has no ")
    Path("run").mkdir()
    newfound(*COMMANDS[command]).check_refused("run has no ")
    Path("run").rmdir()
    Path("run").write_text("")
    newfound(*COMMANDS[command]).check_refused("run has no ")
