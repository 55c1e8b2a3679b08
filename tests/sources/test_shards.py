import gc
import hashlib

import numpy as np
import torch

from newfound.images import ImageTable
from newfound.screen import Screen
from newfound.sources.bank import Bank, Recipe, open_bank
from newfound.sources.shards import find_rows, map_shard, remove_leftovers, write_shard

ROW_SHAPE = (3, 2)
ROW_BYTES = 2 * 3 * 2


def digests(*numbers):
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in numbers]


def rows(*numbers, shape=ROW_SHAPE):
    """Each row holds its number throughout."""
    return torch.stack([torch.full(shape, float(number)) for number in numbers]).half()


def put(store, *numbers):
    write_shard(store, rows(*numbers), digests(*numbers))


def test_rows_are_found_in_whichever_shard_they_lie(tmp_path):
    put(tmp_path, 0, 1, 2)
    put(tmp_path, 3, 4)
    wanted = [4, 0, 9, 2, 4]  # 9 is nowhere, 4 is asked for twice
    places = find_rows(tmp_path, digests(*wanted), ROW_BYTES)
    assert (places.shard >= 0).tolist() == [True, True, False, True, True]
    shards = [map_shard(file, ROW_SHAPE) for file in places.files]
    found = [shards[s][r] for s, r in zip(places.shard, places.row, strict=True) if s >= 0]
    assert np.array_equal(found, rows(4, 0, 2, 4).numpy())


def test_shards_without_any_of_the_images_are_not_mapped(tmp_path):
    for number in range(10):
        put(tmp_path, number)
    assert len(find_rows(tmp_path, digests(3, 7), ROW_BYTES).files) == 2


def test_an_image_may_lie_in_two_shards(tmp_path):
    put(tmp_path, 0, 1)
    put(tmp_path, 1, 2)
    places = find_rows(tmp_path, digests(0, 1, 2), ROW_BYTES)
    shards = [map_shard(file, ROW_SHAPE) for file in places.files]
    assert [shards[s][r][0, 0] for s, r in zip(places.shard, places.row, strict=True)] == [0, 1, 2]


def test_leftovers_are_removed_and_whole_shards_kept(tmp_path):
    put(tmp_path, 0, 1)
    whole = {path.name for path in tmp_path.iterdir()}
    put(tmp_path, 2)
    (damaged,) = [path for path in tmp_path.glob("*.f16") if path.name not in whole]
    damaged.write_bytes(b"cut")
    (tmp_path / "shard-0.json.tmp").write_text("{")
    (tmp_path / "shard-1.f16").write_bytes(b"no list")
    remove_leftovers(tmp_path, ROW_BYTES)
    assert {path.name for path in tmp_path.iterdir()} == whole


def test_an_open_bank_has_no_python_object_per_image(quick_backbone, tmp_path):
    """A tensor each took 716 bytes and 8 µs."""
    n, recipe = 2000, Recipe.of(quick_backbone, 1)
    store = tmp_path / recipe.folder_name
    store.mkdir()
    write_shard(store, torch.zeros(n, *recipe.row_shape).half(), digests(*range(n)))
    files = tuple(map(str, range(n)))
    table = ImageTable(tmp_path, files, np.full(n, -1), (), tuple(digests(*range(n))), (), ())
    gc.collect()
    before = len(gc.get_objects())
    bank = open_bank(table, quick_backbone, views=1, folder=tmp_path, screen=Screen(quiet=True))
    gc.collect()
    assert len(bank) == n
    assert len(gc.get_objects()) - before < n / 10


def test_a_bank_reads_what_indexing_would(quick_backbone):
    random = np.random.default_rng(0)
    recipe = Recipe.of(quick_backbone, 3)
    shards = [random.normal(size=(m, *recipe.row_shape)).astype(np.float16) for m in (5, 1, 7)]
    shard, row = np.array([2, 0, 1, 2, 0, 0]), np.array([6, 0, 0, 0, 4, 0])
    bank = Bank(recipe, shards, shard, row)
    whole = np.stack([shards[s][r] for s, r in zip(shard, row, strict=True)])  # n×(1 + V)×tokens
    assert np.array_equal(bank.evaluation([5, 0, 0]).numpy(), whole[[5, 0, 0], 0].astype(np.float32))
    images = np.array([1, 4, 3])
    pair = bank.read_pair(images, seed=0, step=5)
    matches = (pair.reshape(2, 3, 1, -1) == whole[images, 1:].reshape(1, 3, 3, -1)).all(axis=3)  # 2×B×V
    assert (matches.sum(axis=2) == 1).all(), "each of them is one training view of its image"
    assert not (matches[0] & matches[1]).any()
    assert np.array_equal(bank.read_pair(images, 0, 5, slice(1, 3)), pair[[1, 2, 4, 5]])
