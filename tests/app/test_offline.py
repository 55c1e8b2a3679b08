"""Nothing calls home: every command with the network refused, in an empty network of its own where there is such."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from helping.pictures import write_class_folders, write_folder
from newfound.app.commands import COMMANDS as ALL

pytestmark = pytest.mark.long  # all commands, one after the other

FAST = ["--epochs", "1", "--image-size", "32", "--bank-views", "2", "--batch-size", "12"]
OWN = [
    "folder", "--lists", "lists.json", "--root", "colours", "--seeds", "0", "--backbone", "efficientnet_lite0", *FAST,
]  # fmt: skip
EXPORTS = ["--onnx", "model.onnx", "--folders", "sorted", "--parquet", "run.parquet", "--label-studio", "tasks.json"]
COMMANDS = {
    "discover": ["images", "--classes", "4", "--truth", "truth.csv", "--out", "run", *FAST],
    "resume": ["run"],
    "count": ["images", "--image-size", "32"],
    "predict": ["run", "images", "--out", "predictions.csv"],
    "export": ["run", *EXPORTS],
    "report": ["run"],
    "review": ["run", "--no-browser"],
    "methods": [],
    "tune": ["images", "--classes", "4", "--labels", "labels.csv", "--try", "method=kmeans", "--out", "tune", *FAST],
    "bench": [*OWN, "--out", "bench"],
    "study": ["tsne", "--dataset", *OWN, "--out", "study"],
    "hub": ["images", "--classes", "4", "--backbone", "dino_vits16", "--image-size", "32", "--out", "hub"],
    "demo": ["--out", "demo"],
}


def own_network() -> list[str]:
    """What starts a program without any network, [] where that is not allowed."""
    for words in (["unshare", "-rn"], ["unshare", "-n"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    return []


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What came of every command, by name; and of a backbone whose weights are not here."""
    folder = tmp_path_factory.mktemp("offline")
    _, truth = write_folder(folder)
    (folder / "labels.csv").write_text("\n".join(truth.read_text().splitlines()[:-1]))  # one image is left to sort
    write_class_folders(folder)
    commands = [["discover" if name == "hub" else name, *words] for name, words in COMMANDS.items()]
    (folder / "commands.json").write_text(json.dumps(commands))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_HOME": str(folder / "hub-cache"), "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}
    words = own_network()
    script = [sys.executable, "-m", "helping.without_network", "commands.json", "done.json"]
    command = [*words, *script, *(["own-network"] if words else [])]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    content = json.loads((folder / "done.json").read_text())
    found = dict(zip(COMMANDS, content["commands"], strict=True))
    return folder, content["interfaces"], found


def test_no_command_is_left_out():
    assert set(ALL) == set(COMMANDS) - {"hub"}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "hub"])
def test_no_command_uses_the_network(done, name):
    folder, _, found = done
    assert found[name]["status"] == 0, found[name]
    bound = ["socket.bind (('127.0.0.1', 0),)"] if name == "review" else []
    assert found[name]["tried"] == bound
    if name == "demo":
        assert (folder / "demo" / "truth.csv").is_file()


def test_they_work_where_there_is_no_network(done):
    if not own_network():
        pytest.skip("unshare -n is not allowed here: what is refused in Python is all that is tested")
    assert done[1] == ["lo"]


def test_weights_from_the_hub_are_all_that_is_ever_fetched(done):
    """And without the network, that is one sentence, which says what to do."""
    hub = done[2]["hub"]
    # urllib3 binds a socket of its own to learn whether there is IPv6
    abroad = [tried for tried in hub["tried"] if not tried.startswith("socket.bind (('::1', 0)")]
    assert abroad
    assert all("huggingface.co" in tried for tried in abroad)
    assert hub["status"] == 2
    (sentence,) = hub["said"].strip().splitlines()  # no retries, and no images read before
    assert sentence.startswith("newfound: Could not get ")
    assert sentence.endswith("copy it here and pass --weights PATH.")
    assert "Traceback" not in hub["said"]


def test_the_pages_refer_to_nothing_elsewhere(done):
    folder, _, found = done
    for page in ((folder / "run" / "report.html").read_text(), found["review"]["page"][0]):
        assert "newfound" in page
        assert set(re.findall(r"\w+://[^\s\"'<>)]*", page)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched
        for link in re.findall(r"\b(?:src|href|action|poster|srcset|data)\s*=\s*[\"']([^\"']*)", page):
            assert link.startswith(("#", "data:")), link
        for link in re.findall(r"(?:fetch|url|import)\(\s*[\"'`]?([^)]*)", page):
            assert link.startswith(("api/", "#", "data:")), link
        assert "@import" not in page
