"""A first training taken from another run."""

import pytest

from helping.pictures import picture
from helping.quick_discovery import discover, fast
from newfound.errors import UserError
from newfound.runs.config import read_config
from newfound.screen import Screen
from newfound.training.task import Progress

pytestmark = pytest.mark.usefixtures("small_projector")


def test_a_first_training_is_taken_from_another_run(folder, tmp_path):
    whole = discover(folder[0], fast(4), out=tmp_path / "whole")
    for earlier in ("whole", "simgcd"):
        if earlier == "simgcd":
            discover(folder[0], fast(4, method="simgcd", rho=0.05), out=tmp_path / "simgcd")
        settings = fast(4, stage1=tmp_path / earlier)
        taken = discover(folder[0], settings, out=tmp_path / f"from-{earlier}")
        for name in ("assignments.csv", "embeddings.npy", "anchors.jsonl", "model.safetensors"):
            assert (taken.run / name).read_bytes() == (whole.run / name).read_bytes()


def test_a_first_training_that_does_not_fit_is_refused(folder, tmp_path):
    discover(folder[0], fast(4, method="simgcd"), out=tmp_path / "one")
    stage1 = tmp_path / "one"
    for changes, message in (
        ({"classes": 5, "stage1": stage1}, "classes 4 there, 5 here"),
        ({"classes": 4, "stage1": stage1, "image_size": 48}, "image_size 32 there, 48 here"),
        ({"classes": 4, "stage1": tmp_path / "nowhere"}, "no run of this version with a first training"),
    ):
        with pytest.raises(UserError, match=message):
            discover(folder[0], fast(**changes), out=tmp_path / "two")
    picture("red", 99).save(folder[0] / "unlabelled" / "another.png")
    with pytest.raises(UserError, match="the images or labels differ"):
        discover(folder[0], fast(4, stage1=stage1), out=tmp_path / "two")
    assert not (tmp_path / "two").exists()  # a wrong setting leaves no run in the way


def test_an_unfinished_first_training_is_refused(folder, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "report", stop)  # after the first epoch is saved
        with pytest.raises(KeyboardInterrupt):
            discover(folder[0], fast(4), out=tmp_path / "one")
    with pytest.raises(UserError, match="has done 1 of 2 epochs"):
        discover(folder[0], fast(4, stage1=tmp_path / "one"), out=tmp_path / "two")


def test_one_training_with_anchors_is_no_first_training(folder, tmp_path):
    discover(folder[0], fast(4, strategy="without-pretrain", warmup_epochs=1), out=tmp_path / "one")
    with pytest.raises(UserError, match="its first training is not one of simgcd: its method is sdas"):
        discover(folder[0], fast(4, stage1=tmp_path / "one"), out=tmp_path / "two")


@pytest.mark.parametrize(
    ("method", "message"), [("kmeans", "there is no run of this version with a"), ("gcd", "is not one of simgcd")]
)
def test_a_run_of_another_method_has_none(folder, tmp_path, method, message):
    discover(folder[0], fast(4, method=method, epochs=None if method == "kmeans" else 1), out=tmp_path / "one")
    with pytest.raises(UserError, match=message):
        discover(folder[0], fast(4, stage1=tmp_path / "one"), out=tmp_path / "two")


def test_what_was_trained_otherwise_is_reported_and_written_down(folder, tmp_path, capsys):
    discover(folder[0], fast(4, method="simgcd", rho=0.1, epochs=1, seed=5), out=tmp_path / "one")
    taken = discover(folder[0], fast(4, stage1=tmp_path / "one"), out=tmp_path / "two", screen=Screen())
    assert f"the first training is taken from {tmp_path / 'one'}, which had" in " ".join(
        capsys.readouterr().out.split()
    )
    written = read_config(taken.run / "config.toml").sections["stage1"]
    assert written == {"run": str(tmp_path / "one"), "seed": 5, "epochs": 1, "rho": 0.1}
