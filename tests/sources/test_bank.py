import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
import torch

import newfound.sources.bank as bank_module
from helping.pictures import picture
from newfound.backbones import load_backbone
from newfound.errors import UserError
from newfound.images import read_folder
from newfound.images.views import resized_side, views_of
from newfound.screen import Screen
from newfound.sources.bank import Recipe, default_bank_folder, open_bank, run_trunk

QUIET = Screen(quiet=True)
VIEWS = 4


@pytest.fixture
def table(folder):
    return read_folder(folder[0])


@pytest.fixture
def opened(table, quick_backbone, tmp_path):
    return open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)


def store(tmp_path):
    (only,) = (tmp_path / "banks").glob("*/")
    return only


def training_pair(source, images, seed, step):
    """Two views of each image, as tokens."""
    return source.tokens_of(source.read_pair(images, seed, step), torch.device("cpu"))


def row_of(bank, image):
    """All views of an image."""
    return torch.from_numpy(bank._shards[bank._shard[image]][bank._row[image]])  # (1 + V)×tokens


def test_rows_are_what_the_trunk_gives(opened, table, quick_backbone):
    for i in (0, 7, len(table) - 1):
        pixels = views_of(table.open(i), 32, 0, table.digests[i], [1, 2, 3, 4])
        expected = run_trunk(quick_backbone, pixels).half()
        assert torch.equal(opened.evaluation([i])[0], expected[0].float())
        assert torch.equal(row_of(opened, i), expected)


def test_a_pair_is_two_different_training_views_of_each_image(opened, table):
    images = np.array([0, 3, 3, 5])
    pair = training_pair(opened, images, seed=0, step=9)
    assert pair.shape == (8, 24)
    assert pair.dtype == torch.float32
    for k, image in enumerate(images):
        views = [next(v for v in range(1, 1 + VIEWS) if torch.equal(row_of(opened, image)[v].float(), pair[row]))
                 for row in (k, k + 4)]  # fmt: skip
        assert views[0] != views[1]
    assert torch.equal(pair, training_pair(opened, images, seed=0, step=9))
    assert not torch.equal(pair, training_pair(opened, images, seed=0, step=10))
    assert not torch.equal(pair, training_pair(opened, images, seed=1, step=9))


def test_every_ordered_pair_of_views_is_drawn(opened):
    images = np.zeros(3000, dtype=np.int64)
    pair = training_pair(opened, images, seed=0, step=0)
    marks = {tuple(row_of(opened, 0)[v].float().tolist()): v for v in range(1 + VIEWS)}
    drawn = {
        (marks[tuple(a.tolist())], marks[tuple(b.tolist())]) for a, b in zip(pair[:3000], pair[3000:], strict=True)
    }
    assert drawn == {(a, b) for a in range(1, 5) for b in range(1, 5) if a != b}


def test_a_second_run_computes_nothing(opened, table, quick_backbone, tmp_path):
    calls = quick_backbone.trunk.calls
    again = open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)
    assert quick_backbone.trunk.calls == calls
    everything = range(len(table))
    assert torch.equal(again.evaluation(everything), opened.evaluation(everything))


def test_only_new_images_are_computed_and_their_neighbours_do_not_matter(opened, folder, quick_backbone, tmp_path):
    picture("red", 99).save(folder[0] / "red" / "0-first.png")
    larger = read_folder(folder[0])
    calls = quick_backbone.trunk.calls
    grown = open_bank(larger, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)
    assert quick_backbone.trunk.calls == calls + 1
    from_nothing = open_bank(larger, quick_backbone, views=VIEWS, folder=tmp_path / "others", screen=QUIET)
    everything = range(len(larger))
    assert torch.equal(grown.evaluation(everything), from_nothing.evaluation(everything))


def test_the_number_of_threads_does_not_matter(folder, tmp_path):
    """A bank filled by a laptop is the bank a server would have filled, to the bit."""
    table, network = read_folder(folder[0]), load_backbone("efficientnet_lite0", image_size=64)
    before, found = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        bank = open_bank(table, network, views=2, folder=tmp_path / str(threads), screen=QUIET)
        assert torch.get_num_threads() == threads
        found.append(training_pair(bank, np.arange(len(table)), 0, 0))
    torch.set_num_threads(before)
    assert torch.equal(*found)


def test_copies_of_one_image_share_a_row(folder, quick_backbone, tmp_path):
    first = next((folder[0] / "unlabelled").iterdir())
    shutil.copy(first, folder[0] / "unlabelled" / "copy.png")
    table = read_folder(folder[0])
    found = open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)
    assert quick_backbone.trunk.calls == len(table) - 1
    a, b = table.files.index("unlabelled/copy.png"), table.files.index(f"unlabelled/{first.name}")
    assert torch.equal(found.evaluation([a]), found.evaluation([b]))


@pytest.mark.parametrize("change", [{"image_size": 48}, {"fingerprint": "other"}, {"views": 5}])
def test_another_recipe_is_another_bank(opened, table, quick_backbone, tmp_path, change):
    views = change.pop("views", VIEWS)
    other = dataclasses.replace(quick_backbone, **change)
    calls = quick_backbone.trunk.calls
    open_bank(table, other, views=views, folder=tmp_path / "banks", screen=QUIET)
    assert quick_backbone.trunk.calls == calls + len(table)


@pytest.mark.parametrize("damage", ["truncate", "remove", "empty index", "strange index"])
def test_a_damaged_shard_is_built_again(opened, table, quick_backbone, tmp_path, damage):
    expected = opened.evaluation(range(len(table))).clone()
    (data,) = store(tmp_path).glob("*.f16")
    content = data.read_bytes()
    if damage.endswith("index"):
        data.with_suffix(".json").write_text("" if damage.startswith("empty") else '["surprise"]')
    else:
        data.unlink()  # not in place: the open bank maps it
    if damage == "truncate":
        data.write_bytes(content[:-2])
    again = open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)
    assert torch.equal(again.evaluation(range(len(table))), expected)


KILLED = """
import os, sys
sys.path.insert(0, {tests!r})
import newfound.sources.bank as bank
from helping.doubles import mean_colour_backbone
from newfound.images import read_folder
from newfound.screen import Screen
from pathlib import Path
bank.SHARD_IMAGES = 5
real, calls = bank.run_trunk, 0
def dying(*args):
    global calls
    calls += 1
    if calls == {when}:
        os.kill(os.getpid(), 9)
    return real(*args)
bank.run_trunk = dying
if {when} < 0:  # between the two files of the second shard
    def half(store, shard, digests, write=bank.write_shard):
        write(store, shard, digests)
        half.count = getattr(half, "count", 0) + 1
        if half.count == 2:
            last = max(store.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
            last.unlink()
            os.kill(os.getpid(), 9)
    bank.write_shard = half
table, banks = read_folder(Path({root!r})), Path({banks!r})
bank.open_bank(table, mean_colour_backbone(), views=4, folder=banks, screen=Screen(quiet=True))
"""


@pytest.mark.parametrize("when", [1, 6, 20, -1])
def test_a_killed_build_is_taken_up_again(table, quick_backbone, tmp_path, monkeypatch, when):
    script = KILLED.format(
        tests=os.path.dirname(os.path.dirname(__file__)), root=str(table.root), banks=str(tmp_path / "banks"), when=when
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == -9, result.stderr
    whole_shards = len(list(store(tmp_path).glob("shard-*.json")))  # the trunk runs a little ahead of the writing
    assert whole_shards <= max(when - 1, 5) // 5
    monkeypatch.setattr(bank_module, "SHARD_IMAGES", 5)
    resumed = open_bank(table, quick_backbone, views=4, folder=tmp_path / "banks", screen=QUIET)
    assert quick_backbone.trunk.calls == len(table) - 5 * whole_shards
    fresh = open_bank(table, quick_backbone, views=4, folder=tmp_path / "others", screen=QUIET)
    assert torch.equal(resumed.evaluation(range(len(table))), fresh.evaluation(range(len(table))))
    assert not list(store(tmp_path).glob("*.tmp"))


def test_a_full_disk_is_an_error_before_the_work(table, quick_backbone, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(UserError, match="only 0 MB are free"):
        open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)
    assert quick_backbone.trunk.calls == 0


def test_an_image_changed_after_it_was_listed_is_refused(table, quick_backbone, tmp_path):
    picture("blue", 1234).save(table.path(3))
    with pytest.raises(UserError, match="has changed since"):
        open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)


def test_values_float16_cannot_hold_are_refused(table, quick_backbone, tmp_path):
    quick_backbone.trunk.weight.mul_(1e9)
    with pytest.raises(UserError, match="not finite in float16"):
        open_bank(table, quick_backbone, views=VIEWS, folder=tmp_path / "banks", screen=QUIET)


def test_the_recipe_is_written_beside_the_rows(opened, tmp_path, quick_backbone):
    content = json.loads((store(tmp_path) / "recipe.json").read_text())
    assert content["weights"] == quick_backbone.fingerprint
    assert content["views"] == VIEWS
    assert store(tmp_path).name == Recipe.of(quick_backbone, VIEWS).folder_name
    assert resized_side(content["image_size"]) == 37


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems keep caches elsewhere")
def test_banks_are_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_bank_folder() == tmp_path / "cache" / "newfound" / "banks"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""), lambda: monkeypatch.delenv("XDG_CACHE_HOME")):
        unset()
        assert default_bank_folder() == tmp_path / ".cache" / "newfound" / "banks"
