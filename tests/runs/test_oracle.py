"""A run that learnt from the truth, for analysis: all that comes of it says so. What comes of other runs does not."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors import safe_open

from helping import hostile
from helping.browser import opened
from helping.hostile import rows_of
from helping.pictures import write_class_folders, write_folder
from helping.quick_discovery import fast, lines_of, rows
from newfound.discovery import discover
from newfound.errors import UserError
from newfound.methods import sdas
from newfound.report.page import read_page
from newfound.runs.assignments import ORACLE
from newfound.runs.results import read_results
from newfound.settings import Settings

FAST = [*hostile.FAST[:-1], "--backbone", "efficientnet_lite0"]
IN_TITLE = "; ORACLE, the truth was used in training"


@dataclass(frozen=True)
class Made:
    root: Path
    oracle: bool

    @property
    def run(self) -> Path:
        return self.root / "run"

    def check_rows(self, path: Path) -> None:
        """Every line of a table says it, or has no such column."""
        rows = rows_of(path)
        assert rows
        assert {row.get("oracle") for row in rows} == {"true" if self.oracle else None}


@pytest.fixture(scope="module", params=[True, False], ids=["oracle", "plain"])
def made(request, tmp_path_factory):
    """A run with two seeds and its page, and another one that differs only in what it may learn from."""
    root = tmp_path_factory.mktemp("made")
    images, truth = write_folder(root, each=4)
    with pytest.MonkeyPatch.context() as patch:
        hostile.make_quick(patch)
        settings = Settings(
            4, epochs=1, image_size=32, bank_views=2, batch_size=12, bank_dir=root / "banks",
            method=sdas.Settings(oracle_clean_anchors=request.param),
        )  # fmt: skip
        discover(images, settings, truth=truth, out=root / "run", repeat=2)
    return Made(root, request.param)


def words(text: str) -> str:
    """Without the line breaks of a narrow table."""
    return " ".join(text.split())


def test_the_content_of_the_page(made):
    content, _ = read_page(made.run / "report.html")
    assert content["oracle"] is made.oracle
    assert ("oracle" in content["metrics"]) == made.oracle


def test_the_page_as_one_sees_it(made, browser):
    with opened(browser, made.run / "report.html") as page:
        notices = page.locator("#notices").inner_text()
    assert ("Oracle run: the true labels were used in training" in notices) == made.oracle


def test_runs_with_other_seeds(made):
    run = made.run / "seeds" / "1"
    assert read_results(run).oracle is made.oracle
    for name in ("assignments.csv", "classes.csv"):
        made.check_rows(run / name)
    for name in ("metrics.json", "model.json"):
        assert json.loads((run / name).read_text()).get("oracle") == (ORACLE if made.oracle else None)
    with safe_open(run / "model.safetensors", framework="pt") as file:
        assert ((file.metadata() or {}).get("oracle") == ORACLE) == made.oracle


def test_predictions_of_the_model_alone(made, newfound, tmp_path):
    for name in ("model.json", "model.safetensors"):
        shutil.copy(made.run / name, tmp_path)
    answer = newfound("predict", tmp_path, made.root / "images", "--out", tmp_path / "table.csv")
    answer.check_done()
    warning = "warning: ORACLE: the truth was used in training this model, for analysis\n"
    assert (warning in answer.out) == ("ORACLE" in answer.out) == made.oracle
    made.check_rows(tmp_path / "table.csv")


def test_exported_folders(made, newfound, tmp_path):
    newfound("export", made.run, "--folders", tmp_path / "copies").check_done()
    for name in ("files.csv", "classes.csv"):
        made.check_rows(tmp_path / "copies" / name)


def test_exported_parquet(made, newfound, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    newfound("export", made.run, "--parquet", tmp_path / "t.parquet").check_done()
    table = parquet.read_table(tmp_path / "t.parquet")
    assert json.loads(table.schema.metadata[b"newfound"]).get("oracle") == (True if made.oracle else None)
    assert {row.get("oracle") for row in table.to_pylist()} == {True if made.oracle else None}


def test_exported_tasks_for_label_studio(made, newfound, tmp_path):
    newfound("export", made.run, "--label-studio", tmp_path / "tasks.json").check_done()
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    versions = {prediction["model_version"] for task in tasks for prediction in task["predictions"]}
    assert versions == {"newfound run, trained with the truth" if made.oracle else "newfound run"}


@pytest.mark.parametrize("option", [["--oracle-clean-anchors"], []], ids=["oracle", "plain"])
def test_what_a_run_prints(newfound, tmp_path, option):
    images, truth = write_folder(tmp_path, each=4)
    answer = newfound("discover", images, *hostile.RUN, "--truth", truth, "--out", tmp_path / "run", *option)
    answer.check_done()
    assert (f"warning: {ORACLE}\n" in answer.out) == bool(option)
    title = f"Against the truth, 12 images{IN_TITLE if option else ''}"
    assert f"{title} ┏" in words(answer.out)


@pytest.mark.parametrize("option", [["--oracle-clean-anchors"], []], ids=["oracle", "plain"])
def test_a_benchmark(newfound, tmp_path, option):
    root, lists = write_class_folders(tmp_path)
    out = tmp_path / "out"
    answer = newfound("bench", "folder", "--root", root, "--lists", lists, "--seeds", 3, "--out", out, *FAST, *option)
    answer.check_done()
    assert (f"warning: {ORACLE}\n" in answer.out) == bool(option)
    assert f"folder, seed 3{IN_TITLE if option else ''} ┏" in words(answer.out)
    report = json.loads((out / "report.json").read_text())
    assert report.get("oracle") == (ORACLE if option else None)
    assert report["settings"]["oracle_clean_anchors"] == str(bool(option))
    lines = (out / "report.md").read_text().splitlines()
    assert (f"**{ORACLE}**" in lines[: lines.index("| | All | Old | New |")]) == bool(option)


def test_a_study(newfound, tmp_path):
    """The one of the paper that has such a row, beside rows that are none."""
    root, lists = write_class_folders(tmp_path)
    out = tmp_path / "out"
    study = ("study", "hard-labels", "--dataset", "folder", "--root", root, "--lists", lists, "--seeds", 0)
    answer = newfound(*study, "--out", out, *FAST)
    answer.check_done()
    rows = rows_of(out / "hard-labels.csv")
    assert [row["oracle"] for row in rows] == ["False", "False", "False", "True"]
    for text in ((out / "hard-labels.md").read_text(), answer.out):
        table = [line for line in text.splitlines() if line.startswith("| SimGCD")]
        assert ["oracle" in line for line in table] == [False, False, False, True]
    runs = [path for path in (out / "runs").iterdir() if "oracle" in json.loads((path / "metrics.json").read_text())]
    assert len(runs) == 1
    assert f"warning: {ORACLE}\n" in answer.out


def test_no_other_study_may_use_the_truth(newfound, tmp_path):
    """Its rows stand beside the paper's, which were not."""
    root, lists = write_class_folders(tmp_path)
    study = ("study", "components", "--dataset", "folder", "--root", root, "--lists", lists, "--oracle-clean-anchors")
    newfound(*study, "--out", tmp_path / "out", *FAST).check_refused("--oracle-clean-anchors cannot be used in a study")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small_projector")
def test_the_oracle_is_named_in_every_file(folder, tmp_path):
    settings = fast(4, oracle_clean_anchors=True)
    with pytest.raises(UserError, match="oracle_clean_anchors=True needs a truth"):
        discover(folder[0], settings, out=tmp_path / "run")
    found = discover(folder[0], settings, out=tmp_path / "run", truth=folder[1], repeat=2)
    for name in ("assignments.csv", "classes.csv"):
        assert all(row["oracle"] == "true" for row in rows(found.run / name))
    for name in ("metrics.json", "model.json", "stability.json", "consensus.json"):
        assert "oracle" in json.loads((found.run / name).read_text())
    for name in ("anchors.jsonl", "log.jsonl"):
        assert all("oracle" in line for line in lines_of(found.run / "seeds" / "0" / name))
    with safe_open(found.run / "model.safetensors", framework="pt") as file:
        assert "oracle" in file.metadata()
    assert "oracle_clean_anchors = true" in (found.run / "config.toml").read_text()
    assert "oracle" in found.metrics
    assert found.results.oracle
    other = tmp_path / "other.csv"
    other.write_text(folder[1].read_text().replace("blue", "yellow"))
    with pytest.raises(UserError, match="true labels, which an oracle run learns from, have changed"):
        discover(folder[0], settings, out=tmp_path / "run", truth=other, repeat=2, resume=True)
