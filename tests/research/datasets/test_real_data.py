"""The real files, where they are at hand: NEWFOUND_DATA names the folder of archives, NEWFOUND_SPLITS that of lists."""

import os
from pathlib import Path

import numpy as np
import pytest

from newfound.research.datasets import load_benchmark


def place(variable: str, name: str) -> Path:
    folder = os.environ.get(variable)
    if folder is None:
        pytest.skip(f"{variable} is not set: the images are not ours to distribute")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def check_images(benchmark):
    for position in (0, len(benchmark) // 2, len(benchmark) - 1):
        image = benchmark.open(position, shorter_side=64)
        assert image.mode == "RGB"
        assert np.asarray(image).std() > 0
        assert len(benchmark.digest(position)) == 64


def test_cub(golden):
    lists = place("NEWFOUND_SPLITS", "cub")
    benchmark = load_benchmark("cub", place("NEWFOUND_DATA", "cub_train_160.zip"), lists=lists)
    stored = np.load(golden / "split_cub_p50.npz")
    assert benchmark.labelled.tolist() == stored["labelled_positions"].tolist()
    check_images(benchmark)


def test_flowers():
    benchmark = load_benchmark("flowers", place("NEWFOUND_DATA", "flowers_train_128.zip"))
    assert (len(benchmark), len(benchmark.labelled)) == (2040, 510)
    check_images(benchmark)


def test_cifar100_subset(golden):
    benchmark = load_benchmark("cifar100", place("NEWFOUND_DATA", "cifar100_train_100pc.npz"))
    official = np.load(golden / "split_cifar100_p50.npz")["labels_official_order"]
    assert (benchmark.classes == official[[int(file) for file in benchmark.files]]).all()
    assert (len(benchmark), len(benchmark.labelled)) == (10_000, 4_000)
    check_images(benchmark)
