import os

import numpy as np
import pytest

from newfound.flat_map import _settled, flat_map
from newfound.report.kept_map import map_of
from newfound.runs.folder import RunFolder


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 9])
def test_a_handful_of_images_has_a_map(n):
    places = flat_map(np.random.default_rng(0).normal(size=(n, 7)))
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()
    assert places.min() >= -1e-6
    assert places.max() <= 1 + 1e-6


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 9, 20])
def test_different_images_have_different_places(n):
    """Even where all are equally far apart, and no direction is more principal than another."""
    places = flat_map(np.eye(n))
    apart = np.linalg.norm(places[:, None] - places, axis=2)[~np.eye(n, dtype=bool)]
    assert apart.min() > 0.01


def test_tied_directions_are_settled_alike_whatever_the_decomposition_returned():
    random = np.random.default_rng(4)
    few, lengths = random.normal(size=(20, 4)), np.array([3.0, 2.0, 2.0, 2.0])
    other = few.copy()
    other[:, 0] *= -1
    other[:, 1:] @= np.linalg.qr(random.normal(size=(3, 3)))[0]
    np.testing.assert_allclose(few @ _settled(few, lengths), other @ _settled(other, lengths), atol=1e-10)


@pytest.mark.parametrize("rows", [np.ones((30, 5)), np.full((8, 3), np.nan), np.zeros((7, 2))])
def test_images_that_are_all_the_same(rows):
    assert np.isfinite(flat_map(rows)).all()


def test_groups_stay_groups_and_left_out_images_join_theirs():
    random = np.random.default_rng(1)
    classes = np.arange(120) % 3
    rows = np.eye(10)[classes] + random.normal(0, 0.1, (120, 10))
    places = flat_map(rows, laid_out=70)
    centres = np.stack([places[classes == k].mean(axis=0) for k in range(3)])
    nearest = np.linalg.norm(places[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == classes).mean() > 0.97


def test_the_same_embeddings_give_the_same_map():
    rows = np.random.default_rng(2).normal(size=(50, 8))
    np.testing.assert_array_equal(flat_map(rows), flat_map(rows))


def test_a_map_is_made_once(tmp_path):
    run, rows = RunFolder(tmp_path), np.random.default_rng(3).normal(size=(4, 3))
    run.write_array("embeddings.npy", rows)
    first = map_of(run, rows)
    kept = np.full((4, 2), 0.25, dtype=np.float32)
    run.write_array("map.npy", kept)
    np.testing.assert_array_equal(map_of(run, rows), kept)
    assert not np.array_equal(first, kept)


@pytest.mark.parametrize("spoilt", [b"", b"nonsense", "shape", "nan", "old"])
def test_a_map_that_does_not_fit_is_made_again(tmp_path, spoilt):
    run, rows = RunFolder(tmp_path), np.random.default_rng(3).normal(size=(4, 3))
    run.write_array("embeddings.npy", rows)
    wanted = map_of(run, rows)
    path = tmp_path / "map.npy"
    if isinstance(spoilt, bytes):
        path.write_bytes(spoilt)
    else:
        array = {"shape": np.zeros((5, 2)), "nan": np.full((4, 2), np.nan), "old": np.zeros((4, 2))}[spoilt]
        run.write_array("map.npy", array)
    if spoilt == "old":
        os.utime(path, (1, 1))
    np.testing.assert_array_equal(map_of(run, rows), wanted)
