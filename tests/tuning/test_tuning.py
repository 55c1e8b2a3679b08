"""The comparison as a whole: a folder in, a table out."""

from dataclasses import replace

import numpy as np
import pytest

from helping.groups import QUIET
from helping.pictures import COLOURS, write_folder
from helping.tasks import Listening
from newfound import fitting, tuning
from newfound.errors import UserError
from newfound.settings import BANK_VIEWS, DEFAULTS, Settings
from newfound.training import opened_images
from newfound.tuning import Tuned, tune
from newfound.tuning.trials import Planned, read_trials

BASE = Settings(5, "kmeans", image_size=32, bank_views=2, batch_size=16, device="cpu")
CHANGES = [{"method": "simgcd"}, {"method": "simgcd", "start": "random"}]


@pytest.fixture
def images(tmp_path, monkeypatch, quick_backbone):
    """A folder with four known classes."""
    monkeypatch.setattr(opened_images, "load_backbone", lambda *_, **__: quick_backbone)
    monkeypatch.setitem(DEFAULTS, "projector_width", 16)
    return write_folder(tmp_path, known=tuple(COLOURS), new=(), each=8)[0]


def compared(images, out, *, changes=CHANGES, base=BASE, screen=QUIET, splits=2):
    return tune(images, base, changes, out=images.parent / out, splits=splits, epochs=1, screen=screen)


def told(found: Tuned):
    """All but how long it took."""
    names = [candidate.name for candidate in found.candidates]
    return names, [found.accuracy(group).tolist() for group in ("all", "old", "new")]


def test_every_candidate_is_scored_on_every_split(images):
    found = compared(images, "out")
    names, numbers = told(found)
    assert names == ["default (kmeans)", "method=simgcd", "method=simgcd start=random"]
    assert np.shape(numbers) == (3, 3, 2)
    assert [[trial.split for trial in trials] for trials in found.trials] == [[1, 2]] * 3
    assert [[trial.settings for trial in trials] for trials in found.trials] == [[name] * 2 for name in names]
    assert found.accuracy().min() >= 0


class Stopped(Exception):
    """What ends it."""


def test_interrupted_it_resumes_to_the_same_table(images, monkeypatch):
    whole, done, original = compared(images, "whole"), [], Planned.done

    def stopping(self, *about):
        if len(done) == 4:
            raise Stopped
        done.append(self.key)
        return original(self, *about)

    with monkeypatch.context() as patch:
        patch.setattr(Planned, "done", stopping)
        with pytest.raises(Stopped):
            compared(images, "halves")
    assert list(read_trials(images.parent / "halves" / "trials.csv")) == done
    screen = Listening()
    assert told(compared(images, "halves", screen=screen)) == told(whole)
    assert "2 trainings to do, 4 done before" in screen.said
    trained = [line.partition("; about ") for line in screen.said if " of 2: " in line]
    assert [before for before, _, _ in trained] == [
        "1 of 2: method=simgcd, split 2",
        "2 of 2: method=simgcd start=random, split 2",
    ]
    assert all(after.endswith(" left in all") for _, _, after in trained)


def test_more_splits_and_candidates_keep_what_is_there(images):
    before, screen = compared(images, "out", changes=CHANGES[:1]), Listening()
    after = compared(images, "out", splits=3, screen=screen)
    assert "5 trainings to do, 4 done before" in screen.said
    np.testing.assert_array_equal(after.accuracy()[:2, :2], before.accuracy())


def test_the_same_settings_under_another_name_are_trained_once(images):
    found = compared(images, "out", changes=[{"temperature": 0.1}, {"method": "kmeans"}, {"temperature": 0.2}])
    assert [candidate.name for candidate in found.candidates] == ["default (kmeans)", "temperature=0.2"]


def test_features_are_whitened_as_the_candidate_says_by_the_labels_that_are_left(images, monkeypatch):
    asked, original = [], fitting.whitened

    def whitened(pretrained, labels, whitening, *more):
        asked.append((whitening, int((labels >= 0).sum())))
        return original(pretrained, labels, whitening, *more)

    monkeypatch.setattr(fitting, "whitened", whitened)
    compared(images, "out", changes=[{"whitening": 0.5}, {"whitening": "none"}])
    left = 2 * 3  # of four classes with four labels each
    assert asked == 2 * [("auto", left), (0.5, left), ("none", left)]


def test_without_changes_the_usual_ones_are_compared(images, monkeypatch):
    monkeypatch.setattr(tuning, "_all_trials", lambda planned, *_: {trial.key: trial for trial in planned})
    assert [candidate.name for candidate in compared(images, "out", changes=()).candidates] == [
        "default (kmeans)",
        "method=gcd",
        "method=simgcd",
        "method=sdas",
        "method=simgcd entropy_weight=0.5",
        "method=simgcd entropy_weight=2.0",
        "method=simgcd start=random",
    ]


@pytest.fixture
def opened(monkeypatch):
    """How many views the images were opened with, each time they were."""
    views, original = [], opened_images.open_source

    def open_source(*about, **more):
        views.append(more["bank_views"])
        return original(*about, **more)

    monkeypatch.setattr(opened_images, "open_source", open_source)
    return views


def test_candidates_share_the_images_they_see_alike(images, opened):
    compared(images, "out", changes=[{"bank_views": 3}, {"temperature": 0.2}, {"method": "gcd"}])
    assert opened == [2, 3]


def test_the_count_of_classes_shares_them_too(images, opened):
    found = compared(images, "out", changes=[{"temperature": 0.2}], base=Settings(None, "kmeans", image_size=32))
    assert opened == [BANK_VIEWS]
    assert len(found.candidates) == 2


def test_the_number_of_classes_is_counted_once_by_all_labels(images, monkeypatch):
    asked = []

    def count(settings, facts, pretrained, labels, screen):
        asked.append((labels >= 0).sum())
        return settings, replace(facts, classes=6), None

    monkeypatch.setattr(fitting, "with_count", count)
    found = compared(images, "out", base=Settings(None, "kmeans", image_size=32, bank_views=2, device="cpu"))
    assert asked == [16]
    assert found.candidates[0].settings.classes is None  # newfound discover will count them, too


def test_mistakes_do_not_wait_for_the_images(tmp_path):
    for changes, why in (({"rho": 0.1}, "rho=0.1 has no effect"), ({"method": "cms", "rho": -1.0}, "rho must be")):
        with pytest.raises(UserError, match=why):
            tune(tmp_path / "nowhere", BASE, [changes], out=tmp_path / "out", screen=QUIET)
    for wrong in ({"splits": 1}, {"epochs": 0}):
        with pytest.raises(UserError, match="must be at least"):
            tune(tmp_path / "nowhere", BASE, out=tmp_path / "out", screen=QUIET, **wrong)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_few_known_classes_is_refused(tmp_path):
    images, _ = write_folder(tmp_path)
    with pytest.raises(UserError, match="found 2 known classes like that"):
        compared(images, "out")


def test_fewer_classes_than_are_known_are_refused(images):
    """Although there would be enough for those that are left."""
    with pytest.raises(UserError, match="classes=3 is too few: 4 classes are known"):
        compared(images, "out", base=replace(BASE, classes=3))
