"""As which class an image is exported."""

from helping.small_runs import write_run
from newfound.export import export_folders
from newfound.export.reviewed_run import REJECTED, REJECTED_NAME, exported_classes, rejected_from
from newfound.runs.decisions import DecisionLog


def test_a_rejected_image_is_not_in_the_class_it_was_rejected_from(tmp_path):
    """Images 0 to 2 are in cat: one without a label, one labelled cat, one labelled dog; 3 is accepted, 4 untouched."""
    results = write_run(
        tmp_path, [f"{i}.png" for i in range(6)], [0, 0, 0, 0, 0, 1], ("cat", "dog"), 2, given=[-1, 0, 1, -1, -1, 1]
    )
    log = DecisionLog(results)
    log.decide({"action": "judge", "images": ["0.png", "1.png", "2.png"], "verdict": -1}, 0)
    log.decide({"action": "judge", "images": ["3.png"], "verdict": 1}, 1)
    cat, dog = 0, 1
    assert exported_classes(log.reviewed).tolist() == [REJECTED, REJECTED, dog, cat, cat, dog]
    assert [rejected_from(log.reviewed, i) for i in range(6)] == ["cat", "cat", "cat", None, None, None]
    export_folders(results.run.path, tmp_path / "out")
    there = {folder.name: len(list(folder.iterdir())) for folder in (tmp_path / "out").iterdir() if folder.is_dir()}
    assert there == {"cat": 2, "dog": 2, REJECTED_NAME: 2}


def test_a_class_may_be_called_like_the_folder_of_rejected_images(tmp_path):
    results = write_run(tmp_path, ["a.png", "b.png", "c.png"], [0, 0, 1], (REJECTED_NAME, "dog"), 1)
    DecisionLog(results).decide({"action": "judge", "images": ["c.png"], "verdict": -1}, 0)
    out = export_folders(results.run.path, tmp_path / "out")
    assert out.names == {REJECTED_NAME: REJECTED_NAME, f"{REJECTED_NAME}-2": REJECTED_NAME}
    assert len(list((tmp_path / "out" / REJECTED_NAME).iterdir())) == 2
