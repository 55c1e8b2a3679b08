"""Plain k-means: as scikit-learn has it, on one thread."""

import numpy as np
import sklearn.cluster
from threadpoolctl import threadpool_info

from newfound.kmeans import kmeans


def test_every_library_below_computes_on_one_thread(monkeypatch):
    """BLAS, too: beside other programs, its threads wait for each other most of the time."""
    threads = []

    class Watched(sklearn.cluster.KMeans):
        def fit(self, *args, **kwargs):
            threads.extend(library["num_threads"] for library in threadpool_info())
            return super().fit(*args, **kwargs)

    monkeypatch.setattr(sklearn.cluster, "KMeans", Watched)
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    kmeans(rows, 3, seed=0)
    assert threads
    assert set(threads) == {1}


def test_an_image_is_in_the_cluster_of_the_nearest_centre():
    rows = np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
    found = kmeans(rows, 5, seed=3)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    distances = np.linalg.norm(unit[:, None] - found.centres, axis=2)
    assert np.array_equal(distances.argmin(axis=1), found.clusters)


def test_the_seed_alone_decides():
    rows = np.random.default_rng(2).normal(size=(300, 6)).astype(np.float32)
    first, again = kmeans(rows, 30, seed=0), kmeans(rows, 30, seed=0)
    assert np.array_equal(first.clusters, again.clusters)
    assert first.centres.tobytes() == again.centres.tobytes()
    assert not np.array_equal(first.clusters, kmeans(rows, 30, seed=1).clusters)
