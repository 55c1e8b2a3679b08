"""The same run with several seeds: each is a run of its own, and their consensus is the answer."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from helping.deciding import decide
from helping.hostile import NO_TRAINING, RUN, make_quick
from helping.quick_discovery import discover, discover_and_report, fast
from newfound import atomic
from newfound.errors import UserError
from newfound.methods import with_own
from newfound.report.page import read_page
from newfound.runs.assignments import NONE_OF_THESE
from newfound.runs.consensus_answer import assignment_of, consensus_of
from newfound.runs.decisions import DecisionLog
from newfound.runs.folder import RESULTS, RunFolder
from newfound.runs.journal import RunJournal
from newfound.runs.model import load_model
from newfound.runs.results import read_results
from newfound.runs.stability import compare
from newfound.settings import Settings

pytestmark = pytest.mark.usefixtures("small_projector")

COMMAND = ["discover", "images", *NO_TRAINING, "--bank-dir", "bank", "--truth", "truth.csv", "--out"]


@pytest.fixture
def images(folder, tmp_path, monkeypatch):
    """A folder of images beside which commands are run."""
    monkeypatch.chdir(tmp_path)
    return folder[0]


@pytest.fixture
def run(images, newfound):
    """A finished run with three seeds and no training."""
    newfound(*COMMAND, "run", "--repeat", 3).check_done()
    return Path("run")


def content(run, without=("report.html", "lock", "config.toml")):
    """Of every file of a run; the page has what the others have, and config.toml the command."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in without
    }


def seeds_of(run):
    return [read_results(path) for path in sorted((run / "seeds").iterdir())]


# The runs


def test_each_seed_is_a_run_of_its_own(folder, tmp_path, monkeypatch):
    make_quick(monkeypatch)
    found = discover_and_report(folder[0], fast(), out=tmp_path / "run", truth=folder[1], repeat=3)
    assert [path.name for path in sorted((found.run / "seeds").iterdir())] == ["0", "1", "2"]
    classes = RunFolder(found.run).settings().classes
    alone = discover(folder[0], fast(classes, seed=2), out=tmp_path / "alone", truth=folder[1])
    for name in ("assignments.csv", "embeddings.npy", "model.safetensors", "metrics.json"):
        assert (alone.run / name).read_bytes() == (found.run / "seeds" / "2" / name).read_bytes()
    each = [result.assignment for result in seeds_of(found.run)]
    assert found.results.stability == compare(found.results.assignment, each, [0, 1, 2])
    assert found.results.consensus.seeds == [0, 1, 2]
    assert (found.run / "class_count.json").exists()
    page = read_page(found.run / "report.html")[0]
    assert page["stability"]["seeds"] == [0, 1, 2]
    assert any("This is the consensus of 3 seeds; " in sentence for sentence in page["summary"])
    assert found.metrics == json.loads((found.run / "metrics.json").read_text())


def test_seeds_resume_where_they_stopped(folder, tmp_path, monkeypatch):
    make_quick(monkeypatch)
    settings, real = fast(4), RunJournal.save_epoch
    whole = discover(folder[0], settings, out=tmp_path / "whole", repeat=2)

    def stopped(self, learner, optimiser, checkpoint, entry):
        real(self, learner, optimiser, checkpoint, entry)
        if self._path.name == "1" and entry["stage"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunJournal, "save_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            discover(folder[0], settings, out=tmp_path / "run", repeat=2)
    assert not (tmp_path / "run" / "assignments.csv").exists()
    discover(folder[0], settings, out=tmp_path / "run", repeat=2, resume=True)
    without = ("log.jsonl", "config.toml", "lock")  # the seconds of epochs
    assert content(tmp_path / "run", without) == content(whole.run, without)
    chosen = whole.run / "seeds" / str(whole.results.consensus.model_seed)
    assert whole.results.journal.pseudo_labels() == RunJournal(chosen).pseudo_labels() != []


def stopped_before(monkeypatch, newfound, *words, name, error=KeyboardInterrupt):
    """A command that is interrupted when this file of the run is about to be there."""
    real = atomic.os.replace

    def interrupted(source, target):
        if Path(target) == Path("stopped", name):
            raise error
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "replace", interrupted)
        assert newfound(*words).status == 130


def test_a_consensus_resumes_where_it_stopped(run, newfound, monkeypatch):
    stopped_before(monkeypatch, newfound, *COMMAND, "stopped", "--repeat", 3, name="consensus.json")
    for name in ("assignments.csv", "embeddings.npy", "stability.json", "metrics.json", "model.json"):
        stopped_before(monkeypatch, newfound, "resume", "stopped", name=name)
        assert not Path("stopped", name).exists()
    newfound("resume", "stopped").check_done()
    assert content(Path("stopped")) == content(run)
    newfound("resume", "stopped").check_done()
    assert content(Path("stopped")) == content(run)


def test_seeds_are_added_to_a_run_that_has_ended(run, newfound, monkeypatch):
    """First to one of a single seed, which becomes the first of several, then to these; with interruptions."""
    newfound(*COMMAND, "stopped").check_done()
    before = {name: Path("stopped", name).read_bytes() for name in RESULTS if Path("stopped", name).exists()}
    stopped_before(monkeypatch, newfound, *COMMAND, "stopped", "--resume", "--repeat", 2, name="seeds/0/config.toml")
    moved = Path.replace

    def interrupted(self, target):
        if self.name == "embeddings.npy":
            raise KeyboardInterrupt
        return moved(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        assert newfound("resume", "stopped").status == 130
    assert not Path("stopped", "assignments.csv").exists()
    stopped_before(monkeypatch, newfound, "resume", "stopped", name="seeds/1/config.toml")
    assert {name: Path("stopped/seeds/0", name).read_bytes() for name in before} == before
    newfound("resume", "stopped").check_done()
    assert read_results("stopped").consensus.seeds == [0, 1]
    more = [*COMMAND, "stopped", "--resume", "--repeat", 3]
    stopped_before(monkeypatch, newfound, *more, name="assignments.csv")
    assert not any(Path("stopped", name).exists() for name in RESULTS)  # none of these is of two seeds
    newfound("resume", "stopped").check_done()
    assert content(Path("stopped")) == content(run)


def as_earlier_versions_left_it(run):
    """The first seed in the run's own place, and its results were those of the run."""
    for name in (*RESULTS, "checkpoint/kept-kmeans.safetensors"):
        if (run / "seeds" / "0" / name).exists():
            shutil.move(run / "seeds" / "0" / name, run / name)
    shutil.rmtree(run / "seeds" / "0")
    for path in (run / "consensus.json", *run.glob("seeds/*/probabilities.npy")):
        path.unlink()


def test_a_run_of_an_earlier_version_opens_and_becomes_a_consensus(run, newfound):
    now = content(run)
    as_earlier_versions_left_it(run)
    before = read_results(run)
    assert before.consensus is None
    newfound("report", run).check_done()
    newfound("export", run, "--csv", "labels.csv").check_done()
    newfound("predict", run, "images", "--out", "predicted.csv").check_done()
    newfound("resume", run).check_done()
    (run / "seeds" / "0" / "map.npy").unlink()  # of the report on that seed
    assert content(run) == now


def test_a_run_of_several_seeds_stays_one(run, newfound):
    before = content(run)
    newfound(*COMMAND, "run", "--resume").check_refused(
        "run is a run of several seeds, and cannot become one of a single"
    )
    assert content(run) == before
    newfound(*COMMAND, "run", "--resume", "--repeat", 2).check_done()
    assert read_results(run).consensus.seeds == [0, 1]
    newfound(*COMMAND, "run", "--overwrite").check_done()
    assert read_results(run).consensus is None
    assert not (run / "seeds").exists()


# The answer


def test_the_table_and_the_model(run):
    results, each = read_results(run), seeds_of(run)
    answer = consensus_of(each)
    assert results.assignment.classes.tolist() == answer.classes.tolist()
    means = answer.probabilities(slice(0, len(results)))
    np.testing.assert_allclose(results.assignment.confidence, means.max(axis=1), atol=1e-6)
    facts = results.consensus
    assert facts.unanimous == answer.unanimous.mean()
    said = [np.append(columns, -1)[one.assignment.classes] for columns, one in zip(answer.columns, each, strict=True)]
    agreeing = [int((classes == answer.classes).sum()) for classes in said]
    assert agreeing[facts.model_seed] == max(agreeing)
    chosen = run / "seeds" / str(facts.model_seed)
    assert (run / "embeddings.npy").read_bytes() == (chosen / "embeddings.npy").read_bytes()


def test_a_consensus_says_how_its_seeds_were_whitened(run):
    whitening = read_results(run).whitening
    assert whitening is not None
    assert [seed.whitening for seed in seeds_of(run)] == [whitening] * 3


def test_the_model_labels_images_as_it_says(run):
    results, model = read_results(run), load_model(run)
    assert model.class_names == results.assignment.class_names
    with torch.inference_mode():
        said = model.predictor.probabilities(torch.from_numpy(results.embeddings)).argmax(dim=1).numpy()
    description = json.loads((run / "model.json").read_text())
    assert description["consensus"] == results.consensus.as_json()
    share = float((said == results.assignment.classes).mean())
    assert share == pytest.approx(results.consensus.agreement, abs=1.01 / len(results))  # one image may be on the edge


@pytest.mark.parametrize(("method", "settings"), [  # a classifier of another kind each, or images that are left out
    ("cms", {"classes": 4, "epochs": 2, "batch_size": 12}),
    ("uno", {"classes": 4, "epochs": 2, "batch_size": 12}),
    ("rankstats", {"classes": 4, "epochs": 2, "batch_size": 12}),
    ("hdbscan", {"min_cluster_size": 3}),
])  # fmt: skip
def test_any_method_has_a_consensus(folder, tmp_path, monkeypatch, method, settings):
    make_quick(monkeypatch)
    views = {"image_size": 32, "bank_views": 2}
    found = discover(folder[0], out=tmp_path / "run", repeat=2, method=method, **views, **settings)
    labelled = found.predict(folder[0], refused=0)
    said = dict(zip(labelled.files, labelled.classes, strict=True))
    names = [found.results.assignment.name_of(k) for k in found.results.assignment.classes]
    files = [str(folder[0] / file) for file in found.results.files]
    agree = [said[file] == name for file, name in zip(files, names, strict=True) if name != NONE_OF_THESE]
    assert abs(np.mean(agree) - found.results.consensus.agreement) <= 1 / len(agree)  # of one image on the edge


def test_the_order_of_the_seeds_does_not_matter(run):
    each = seeds_of(run)
    tables = [assignment_of(consensus_of(some), [one.assignment for one in some]) for some in (each, each[::-1])]
    for name in ("classes", "is_anchor", "runner_up"):
        assert getattr(tables[0], name).tolist() == getattr(tables[1], name).tolist()
    np.testing.assert_allclose(tables[0].confidence, tables[1].confidence)


def test_what_is_printed(images, newfound):
    out = newfound(*COMMAND, "run", "--repeat", 2).out
    assert "seed 0, 1 of 2" in out
    assert "seed 1, 2 of 2" in out
    assert "consensus of 2 seeds: " in out
    assert "the model agrees with the consensus on " in out


def test_the_truth_is_not_used(images, newfound):
    """Whatever it says."""
    lines = Path("truth.csv").read_text().splitlines()
    Path("truth.csv").write_text("\n".join([lines[0], *(f"{line.split(',')[0]},red" for line in lines[1:])]))
    newfound(*COMMAND, "wrong", "--repeat", 2).check_done()
    newfound(*COMMAND[:-3], "--out", "none", "--repeat", 2).check_done()
    wrong, none = (content(Path(name)) for name in ("wrong", "none"))
    created = {name for name in wrong if Path(name).name == "metrics.json"}
    assert len(created) == 3
    assert {name: wrong[name] for name in wrong.keys() - created} == none


# What comes after


def test_a_review_and_another_round(run, newfound):
    results = read_results(run)
    new = results.assignment.n_known
    decide(DecisionLog(results), action="rename", **{"class": new}, name="sky")
    newfound("predict", run, "images", "--out", "predicted.csv", "--refused", 0).check_done()
    assert "sky" in Path("predicted.csv").read_text()
    newfound("export", run, "--csv", "labels.csv").check_done()
    assert "sky" in Path("labels.csv").read_text()
    newfound("resume", run).check_done()  # the results are the same, so the decisions stay
    assert read_results(run).final_labels() == results.final_labels()
    newfound(*COMMAND, "run", "--resume", "--repeat", 2).check_refused("the consensus of 2 seeds would replace the")
    words = [*COMMAND[:2], *NO_TRAINING, "--bank-dir", "bank", "--continue", run, "--repeat", 2]
    newfound(*words).check_done()
    assert "sky" in read_results("run-2").assignment.class_names
    assert read_results("run-2").consensus.seeds == [0, 1]


def test_decisions_on_one_seed_are_not_lost(images, newfound):
    newfound(*COMMAND, "run").check_done()
    Path("run/decisions.json").write_text("{}")
    before = content(Path("run"))
    newfound(*COMMAND, "run", "--resume", "--repeat", 2).check_refused("run/decisions.json has what was decided")
    assert content(Path("run")) == before


def test_a_first_training_is_that_of_one_seed(run, newfound):
    (run / "seeds" / "1" / "checkpoint" / "stage1.safetensors").touch()
    words = ["discover", "images", *RUN, "--bank-dir", "bank", "--out", "other", "--stage1", run]
    newfound(*words).check_refused(
        "no run of this version with a first training in it. Its seeds have one each: run/seeds/1"
    )


@pytest.mark.parametrize(("repeat", "settings", "message"), [
    (0, {}, "repeat=0 must be 1 or more"),
    (2, {"seed": 2**32 - 1}, "goes beyond the largest seed, 4294967295"),
    (2, {"stage1": Path("other")}, "repeat=2 cannot be combined with stage1"),
])  # fmt: skip
def test_seeds_that_make_no_sense(tmp_path, repeat, settings, message):
    with pytest.raises(UserError, match=message):
        discover(tmp_path / "nowhere", with_own(Settings(4), settings), repeat=repeat)


def test_a_damaged_consensus_is_written_again(run, newfound):
    before = content(run)
    (run / "consensus.json").write_text("{")
    newfound("report", run).check_refused("consensus.json is damaged")
    newfound("resume", run).check_done()
    assert content(run) == before


@pytest.mark.parametrize("spoilt", [
    "{", "[]", "{}", '{"seeds": [0], "unanimous": 2, "model_seed": 0, "agreement": 1}',
    '{"seeds": [0], "unanimous": 1, "model_seed": 3, "agreement": 1}',
])  # fmt: skip
def test_a_damaged_consensus_is_named(small, tmp_path, spoilt):
    run = Path(shutil.copytree(small.run.path, tmp_path / "run"))
    (run / "consensus.json").write_text(spoilt)
    with pytest.raises(UserError, match=r"consensus\.json is (malformed|damaged)"):
        _ = read_results(run).consensus
