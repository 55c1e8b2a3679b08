"""--overwrite replaces what newfound wrote, and nothing else; what it replaces is not lost if the new one fails."""

import csv
import json
from pathlib import Path

import pytest

from helping.small_runs import small_run
from newfound.export import replacing
from newfound.export.replacing import replaced

pytest.importorskip("pyarrow")
EXPORTS = ["--folders", "sorted", "--parquet", "run.parquet", "--label-studio", "tasks.json"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    small_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def contents(*names):
    """Of these files and folders."""
    paths = [path for name in names for path in (Path(name), *Path(name).rglob("*")) if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def test_exports_are_replaced(run, newfound):
    newfound("export", "run", *EXPORTS, "--overwrite").check_done()  # nothing is there yet
    before = contents("sorted", "run.parquet", "tasks.json", "tasks-config.xml")
    newfound("export", "run", *EXPORTS).check_refused("or pass --overwrite to replace what newfound wrote there before")
    newfound("export", "run", *EXPORTS, "--overwrite").check_done()
    assert contents("sorted", "run.parquet", "tasks.json", "tasks-config.xml") == before
    expected = ["images", "run", "run.parquet", "sorted", "tasks-config.xml", "tasks.json"]
    assert sorted(path.name for path in Path().iterdir()) == expected


def test_an_export_with_links_leaves_the_images(run, newfound):
    images = contents("images")
    newfound("export", "run", "--folders", "sorted", "--link").check_done()
    newfound("export", "run", "--folders", "sorted", "--overwrite").check_done()
    assert contents("images") == images
    assert not any(path.is_symlink() for path in Path("sorted").rglob("*"))


@pytest.mark.parametrize(
    ("option", "place", "why"),
    [
        ("--folders", "sorted/cat/mine.png", "it holds cat/mine.png, which the export did not write"),
        ("--folders", "sorted/notes.txt", "it holds notes.txt"),
        ("--folders", "other/notes.txt", "it is not a folder that newfound exported"),
        ("--folders", "file", "it is not a folder that newfound exported"),
        ("--parquet", "file", "it is not a table that newfound exported"),
        ("--onnx", "file", "it is not a model that newfound exported"),
        ("--label-studio", "file", "it is not a list of tasks as newfound exports it"),
        ("--label-studio", "folder/x", "it is not a list of tasks"),
    ],
)
def test_what_newfound_did_not_write_is_left_alone(run, newfound, option, place, why):
    newfound("export", "run", "--folders", "sorted").check_done()
    Path(place).parent.mkdir(exist_ok=True)
    Path(place).write_text("years of work")
    before = contents("sorted", place)
    target = Path(place).parts[0]
    newfound("export", "run", option, target, "--overwrite").check_refused(f"--overwrite leaves {target} alone: {why}")
    assert contents("sorted", place) == before


def test_tasks_that_people_have_worked_on_are_left_alone(run, newfound):
    newfound("export", "run", "--label-studio", "tasks.json").check_done()
    tasks = json.loads(Path("tasks.json").read_text())
    Path("tasks.json").write_text(json.dumps([{"id": 1, **tasks[0]}, *tasks[1:]]))  # as Label Studio gives them back
    newfound("export", "run", "--label-studio", "tasks.json", "--overwrite").check_refused("been through Label Studio")


def test_a_link_is_left_alone(run, newfound):
    newfound("export", "run", "--parquet", "real.parquet").check_done()
    Path("link.parquet").symlink_to("real.parquet")
    newfound("export", "run", "--parquet", "link.parquet", "--overwrite").check_refused("it is a link")


def test_if_the_new_one_fails_the_old_one_is_back(tmp_path):
    old = tmp_path / "table.csv"
    old.write_text(",".join(replacing.HEADER) + "\n")

    def fail():
        with replaced({old: replacing.is_predictions}):
            assert not old.exists()
            old.write_text("half of the new one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert old.read_text() == ",".join(replacing.HEADER) + "\n"
    assert list(tmp_path.iterdir()) == [old]


def test_a_table_of_predictions_is_replaced(tmp_path, newfound, monkeypatch):
    """With the list of skipped files beside it, which the new one may not have."""
    from newfound.runs import labelling

    class Nothing:
        oracle, reading, skipped, classes, is_new = False, "", (), (), labelling.np.zeros(0, bool)

        def write_csv(self, path):
            with open(path, "w", newline="") as file:
                csv.writer(file).writerow(labelling.HEADER)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labelling, "predict", lambda *_, **__: Nothing())
    newfound("predict", "run", "images", "--out", "table.csv").check_done()
    Path("table-skipped.csv").write_text("file,reason\r\n")
    newfound("predict", "run", "images", "--out", "table.csv").check_refused("table.csv already exists")
    newfound("predict", "run", "images", "--out", "table.csv", "--overwrite").check_done()
    assert [path.name for path in Path().iterdir()] == ["table.csv"]
    Path("truth.csv").write_text("file,label\n")
    newfound("predict", "run", "images", "--out", "truth.csv", "--overwrite").check_refused(
        "--overwrite leaves truth.csv alone: it is not a table with the columns file, given_label, class"
    )


def test_a_report_is_replaced_unless_that_is_not_wanted(run, newfound):
    (run / "report.html").write_text("old")
    newfound("report", "run", "--no-overwrite").check_refused("run/report.html already exists")
    assert (run / "report.html").read_text() == "old"
    newfound("report", "run", "--overwrite").check_done()
    assert (run / "report.html").read_text() != "old"
