import pytest

from helping.small_runs import small_run
from newfound.runs.decisions import DecisionLog


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two known classes, two new ones, 40 images each: image i is in class i % 4; the anchors are beyond image 80."""
    return small_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def log(results):
    (results.run.path / "decisions.json").unlink(missing_ok=True)
    return DecisionLog(results)
