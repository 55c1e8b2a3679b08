"""What every source of views has in common, and strong first views."""

import numpy as np
import pytest
import torch

from newfound.images import read_folder
from newfound.images.views import views_of
from newfound.random_streams import MEMORY_VIEWS, STEP_VIEWS
from newfound.screen import Screen
from newfound.sources import default_bank_folder, open_source
from newfound.sources.bank import Bank, Recipe
from newfound.sources.fresh_views import FreshViews
from newfound.sources.vectors import Embeddings, draw_view_pair

V = 3
IMAGES = np.array([3, 0, 7, 3, 11])


@pytest.fixture
def table(folder):
    return read_folder(folder[0])


@pytest.fixture
def opened(table, quick_backbone):
    """A source of the folder's images."""

    def of(views, strong=False, bank_dir=None):
        return open_source(
            table,
            quick_backbone,
            views=views,
            bank_views=V,
            bank_dir=bank_dir,
            precision="float32",
            strong=strong,
            screen=Screen(quiet=True),
        )

    return of


def vectors():
    return Embeddings(np.random.default_rng(0).normal(size=(24, 1 + V, 5)))


def test_the_source_is_what_was_asked_for(opened, tmp_path):
    assert isinstance(opened("fresh"), FreshViews)
    assert isinstance(opened("bank", bank_dir=tmp_path / "here"), Bank)
    assert (tmp_path / "here").exists()
    assert not default_bank_folder().exists()
    opened("bank")
    assert default_bank_folder().exists()


@pytest.mark.parametrize("strong", [False, True])
def test_all_kept_views_of_an_image(opened, strong):
    """The evaluation view first, none of the strong ones."""
    bank, few = opened("bank", strong), np.array([3, 0, 3])
    kept = bank.kept_views(few)
    assert kept.shape == (3, 1 + V, *bank.recipe.token_shape)
    assert torch.equal(torch.from_numpy(kept[:, 0]).float(), bank.evaluation(few))
    weak = bank.read_pair(few, seed=0, step=0)
    assert all((row == kept[i % 3, 1:]).all(axis=1).any() for i, row in enumerate(weak))
    assert opened("fresh").kept_views(few) is None
    source = vectors()
    assert torch.equal(torch.from_numpy(source.kept_views(few)[:, 0]), source.evaluation(few))
    assert source.kept_views(few).shape == (3, 1 + V, 5)


# Random streams and pieces


@pytest.mark.parametrize("kind", ["bank", "strong bank", "fresh", "strong fresh", "vectors"])
@pytest.mark.parametrize("stream", [STEP_VIEWS, MEMORY_VIEWS])
def test_a_set_is_read_in_pieces_as_it_is_read_whole(opened, kind, stream):
    strong = kind.startswith("strong")
    source = vectors() if kind == "vectors" else opened(kind.split()[-1], strong=strong)
    everything = np.arange(len(source))
    whole = source.read_pair(everything, seed=1, step=4, stream=stream, strong=strong)
    first, second = whole[: len(source)], whole[len(source) :]
    for start in range(0, len(source), 7):
        piece = slice(start, start + 7)
        expected = np.concatenate([first[piece], second[piece]])
        assert np.array_equal(source.read_pair(everything, 1, 4, piece, stream, strong), expected)


@pytest.mark.parametrize("kind", ["bank", "fresh", "vectors"])
def test_streams_are_drawn_apart_and_the_usual_one_is_that_of_a_step(opened, kind):
    source = vectors() if kind == "vectors" else opened(kind)
    usual = source.read_pair(IMAGES, 0, 5)
    assert np.array_equal(usual, source.read_pair(IMAGES, 0, 5, stream=STEP_VIEWS))
    assert not np.array_equal(usual, source.read_pair(IMAGES, 0, 5, stream=MEMORY_VIEWS))


def test_the_views_of_a_step_are_drawn_as_ever(opened, table):
    """Pinned: another draw would be another run."""
    first, second = draw_view_pair(8, 6, seed=2, step=3)
    assert first.tolist() == [4, 7, 5, 3, 6, 7]
    assert second.tolist() == [0, 3, 2, 2, 0, 0]
    pair = opened("fresh").read_pair(IMAGES, seed=2, step=3)
    for k, image in enumerate(IMAGES):
        number = 2 * (3 * len(IMAGES) + k)
        _, one, two = views_of(table.open(image), 32, 2, table.digests[image], [number, number + 1])
        assert np.array_equal(pair[k], one)
        assert np.array_equal(pair[k + len(IMAGES)], two)


# Strong views


def test_a_weak_bank_keeps_its_name():
    """Banks built so far stay valid."""
    recipe = Recipe("vitb16_dino", "0123abcd", (198, 768), 224, 8)
    assert recipe.folder_name == "vitb16_dino-aa8c5e29672face6"
    assert recipe.row_shape == (9, 198, 768)


def test_a_strong_bank_is_another_bank_beside_the_weak_one(opened, table, quick_backbone, tmp_path):
    banks = tmp_path / "banks"
    opened("bank", bank_dir=banks)
    weak = {path: path.read_bytes() for path in banks.glob("*/*")}
    opened("bank", strong=True, bank_dir=banks)
    assert quick_backbone.trunk.calls == 2 * len(table)
    assert {path: path.read_bytes() for path in weak} == weak
    names = {Recipe.of(quick_backbone, V, strong).folder_name for strong in (False, True)}
    assert {path.name for path in banks.glob("*/")} == names
    opened("bank", bank_dir=banks)
    opened("bank", strong=True, bank_dir=banks)
    assert quick_backbone.trunk.calls == 2 * len(table), "both are complete"


def test_a_strong_bank_takes_first_views_from_strong_rows(opened, table, quick_backbone):
    pair = opened("bank", strong=True).read_pair(IMAGES, seed=0, step=1, strong=True)
    drawn = draw_view_pair(V, len(IMAGES), seed=0, step=1)
    for k, image in enumerate(IMAGES):
        pixels = views_of(table.open(image), 32, 0, table.digests[image], [1, 2, 3], strong=[4, 5, 6])
        normalised = (torch.from_numpy(pixels).permute(0, 3, 1, 2) - 127.0) / 128.0
        tokens = quick_backbone.trunk(normalised).numpy()  # 7×24
        close = {"rtol": 2e-3, "atol": 2e-3}  # float16
        np.testing.assert_allclose(pair[k], tokens[1 + V + drawn[0][k]], **close)
        np.testing.assert_allclose(pair[k + len(IMAGES)], tokens[1 + drawn[1][k]], **close)


def test_the_other_views_of_a_strong_bank_are_those_of_a_weak_one(opened):
    weak, strong = opened("bank"), opened("bank", strong=True)
    close = {"rtol": 2e-3, "atol": 2e-3}  # more views go through the trunk together
    np.testing.assert_allclose(strong.evaluation(IMAGES), weak.evaluation(IMAGES), **close)
    n = len(IMAGES)
    one, other = weak.read_pair(IMAGES, 0, 1), strong.read_pair(IMAGES, 0, 1, strong=True)
    np.testing.assert_allclose(other[n:], one[n:], **close)
    assert np.abs(other[:n].astype(float) - one[:n]).max() > 0.1


def test_fresh_first_views_are_strong_and_second_ones_as_before(opened, table):
    weak, strong = (
        opened("fresh").read_pair(IMAGES, 0, 1),
        opened("fresh", strong=True).read_pair(IMAGES, 0, 1, strong=True),
    )
    n = len(IMAGES)
    assert np.array_equal(strong[n:], weak[n:])
    for k, image in enumerate(IMAGES):
        number = 2 * (n + k)
        assert np.array_equal(
            strong[k], views_of(table.open(image), 32, 0, table.digests[image], [], strong=[number])[1]
        )
