"""A run read back is what was written."""

import numpy as np
import pytest

from helping.small_runs import small_run, write_run
from newfound import Discovery
from newfound.errors import UserError
from newfound.runs.results import read_results

HOSTILE = ["a,b.png", 'quote".png', "line\nbreak.png", "cr\rlf.png", "caf\udcff.png", "<script>.png"]


def test_everything_comes_back(tmp_path):
    names = ("cat, the", 'dog "x"', "new-1")
    written = write_run(
        tmp_path, HOSTILE, [0, 1, 2, 0, 1, 2], names, 2, given=[0, -1, -1, 1, 0, -1], unseen=("a heron",)
    )
    results = read_results(str(tmp_path / "run"))
    assert results.files == tuple(HOSTILE)
    assert results.given.tolist() == [0, -1, -1, 1, 0, -1]
    assert results.assignment.class_names == names
    assert results.assignment.unseen == ("a heron",)
    assert results.assignment.n_known == 2
    assert results.assignment.classes.tolist() == [0, 1, 2, 0, 1, 2]
    np.testing.assert_allclose(results.assignment.confidence, written.assignment.confidence, atol=1e-6)
    assert results.root == tmp_path / "images"
    assert results.settings.classes == 3
    assert not results.oracle
    assert results.embeddings.dtype == np.float32


def test_a_run_that_is_not_finished_and_a_folder_that_is_none(tmp_path):
    results = small_run(tmp_path)
    (results.run.path / "assignments.csv").unlink()
    with pytest.raises(UserError, match="the run is not finished"):
        read_results(results.run.path)
    with pytest.raises(UserError, match="not a newfound run"):
        read_results(tmp_path)


@pytest.mark.parametrize("change", [("cat", "cow"), ("class", "klass"), ("0.5", "half")])
def test_tables_that_somebody_changed(tmp_path, change):
    path = small_run(tmp_path).run.path / "assignments.csv"
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match="malformed"):
        read_results(path.parent)


def test_other_damage_is_named(tmp_path):
    results = small_run(tmp_path)
    run = results.run.path
    table = (run / "assignments.csv").read_text()
    (run / "assignments.csv").write_text(table.splitlines()[0] + "\n")
    with pytest.raises(UserError, match="malformed"):
        read_results(run)
    (run / "assignments.csv").write_text(table)
    (run / "embeddings.npy").write_bytes((run / "embeddings.npy").read_bytes()[:300])
    with pytest.raises(UserError, match=r"embeddings\.npy is damaged"):
        _ = read_results(run).embeddings
    np.save(run / "embeddings.npy", np.ones((3, 2)))
    with pytest.raises(UserError, match="3 rows, and there are 160 images"):
        _ = read_results(run).embeddings
    config = run / "config.toml"
    config.write_text(config.read_text().replace("folder = ", "other = "))
    with pytest.raises(UserError, match="does not say where the images are"):
        _ = read_results(run).root
    (run / "metrics.json").write_text("{")
    with pytest.raises(UserError, match=r"metrics\.json is damaged"):
        Discovery.load(run)
