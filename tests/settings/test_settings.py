from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newfound.errors import UserError
from newfound.settings import Settings, from_toml, to_toml


@given(
    st.builds(
        Settings,
        classes=st.integers(2, 1000),
        seed=st.integers(0, 2**31),
        epochs=st.none() | st.integers(1, 500),
        learning_rate=st.floats(1e-6, 10),
        weights=st.none() | st.just(Path("some where/ü.pth")),
        views=st.sampled_from(["bank", "fresh"]),
    )
)
def test_settings_survive_the_file(settings):
    read, sections = from_toml(to_toml(settings, data={"fingerprint": "abc", "labels": None}), Path("config.toml"))
    assert read == settings
    assert sections == {"data": {"fingerprint": "abc"}}


def test_every_setting_is_in_the_file():
    text = to_toml(Settings(5).resolved(2, 999, 100))
    left_open = {"weights", "bank_dir", "stage1"}
    assert all(f"{field.name} = " in text for field in fields(Settings) if field.name not in left_open)


def test_what_is_left_open_is_decided():
    quick = Settings(5, device="cpu").resolved(2, 999, 100)
    assert (quick.epochs, quick.warmup_epochs) == (60, 30)
    assert quick.entropy_weight == 1.0
    assert Settings(100, device="cpu").resolved(2, 999, 100).entropy_weight == 2.0
    assert Settings(100, entropy_weight=4.0, device="cpu").resolved(2, 999, 100).entropy_weight == 4.0
    published = Settings(5, epochs=200, device="cpu").resolved(2, 999, 100)
    assert published.warmup_epochs == 30
    assert Settings(5, epochs=1, device="cpu").resolved(2, 999, 100).warmup_epochs == 1
    assert Settings(5, epochs=1000, device="cpu").resolved(2, 999, 100).warmup_epochs == 30


PAPER = {  # training images, classes, kind of data set: the paper's tables 1 and its "Implementation details"
    "cifar10": (50_000, 10, "generic"),
    "cifar100": (50_000, 100, "generic"),
    "imagenet100": (127_000, 100, "generic"),
    "cub": (5_994, 200, "fine-grained"),
    "cars": (8_144, 196, "fine-grained"),
    "aircraft": (6_667, 100, "fine-grained"),
    "herbarium": (34_200, 683, "fine-grained"),
}


@pytest.mark.parametrize(("name", "data"), PAPER.items())
def test_presets_are_the_papers(name, data):
    images, classes, kind = data
    settings = Settings(classes, preset=name, epochs=200, device="cpu").resolved(classes // 2, images, 20)
    assert (settings.alpha, settings.beta) == {"generic": (1, 0.8), "fine-grained": (10, 0.5)}[kind]
    assert settings.entropy_weight == {"cifar100": 4.0, "cub": 2.0}.get(name, 1.0)
    assert (settings.rho, settings.k, settings.start, settings.warmup_epochs) == (0.05, 0.5, "random", 30)
    unnamed = Settings(classes, epochs=200, device="cpu").resolved(classes // 2, images, 20)
    assert unnamed.preset == kind  # what is chosen where nothing is said agrees with the paper
    assert (unnamed.alpha, unnamed.beta, unnamed.start) == (settings.alpha, settings.beta, "clusters")


def test_what_is_given_beats_the_preset():
    settings = Settings(200, preset="cub", alpha=7, beta=0.9, start="clusters", entropy_weight=3.0, device="cpu")
    resolved = settings.resolved(100, 5_994, 14.98)
    assert (resolved.alpha, resolved.beta, resolved.start, resolved.entropy_weight) == (7, 0.9, "clusters", 3.0)


def test_the_quick_recipe_shortens_in_proportion():
    quick = Settings(200, preset="cub", device="cpu").resolved(100, 5_994, 14.98)
    assert (quick.epochs, quick.stages, quick.alpha) == (60, 2, 3)
    assert quick.anchors_per_class == pytest.approx(14.98)
    assert Settings(10, device="cpu").resolved(5, 2000, 0).anchors_per_class == 100.0  # nothing labelled
    assert Settings(10, preset="generic", epochs=3, device="cpu").resolved(5, 2000, 0).alpha == 1


def test_the_sharpness_penalty_belongs_to_the_method():
    assert Settings(10, device="cpu").resolved(5, 999, 99).rho == 0.05
    assert Settings(10, method="simgcd", device="cpu").resolved(5, 999, 99).rho == 0.0
    assert Settings(10, method="simgcd", rho=0.1, device="cpu").resolved(5, 999, 99).rho == 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 0}, "--alpha must be at least 1"),
        ({"beta": 1.5}, "--beta must be between 0 and 1"),
        ({"k": -0.1}, "--k must be between 0 and 1"),
        ({"anchors_per_class": 0.2}, "--anchors-per-class must be at least 1"),
        ({"rho": -1.0}, "--rho must be 0 or more"),
        ({"precision": "float16"}, "--precision float16 is for a GPU"),
        ({"compile": True}, "--compile is for a GPU"),
        ({"oracle_clean_anchors": True, "method": "simgcd"}, "nothing to --method simgcd: it has no anchors"),
        ({"alpha": 3, "method": "simgcd"}, "--alpha means nothing to --method simgcd"),
        ({"selection": "max-prob", "method": "simgcd"}, "--selection means nothing to --method simgcd"),
        ({"stage1": Path("run"), "method": "simgcd"}, "--stage1 means nothing to --method simgcd"),
        ({"start": "random", "method": "gcd"}, "--start means nothing to --method gcd: it trains no classifier"),
        ({"epochs": 5, "method": "kmeans"}, "--epochs means nothing to --method kmeans: it trains nothing"),
        ({"stage1": Path("run"), "strategy": "without-pretrain"}, "--stage1 needs a --strategy"),
        ({"strategy": "without-pretrain", "warmup_epochs": 60}, "only 60 epochs"),
        ({"classes": 3}, "4 classes are known"),
        ({"classes": 1000}, "there are only 999 images"),
        ({"epochs": -1}, "--epochs must be at least 1"),
        ({"bank_views": 1}, "--bank-views must be at least 2"),
        ({"learning_rate": 0.0}, "--learning-rate must be a number above 0"),
        ({"supervised_weight": 1.5}, "between 0 and 1"),
        ({"learning_rate": float("inf")}, "--learning-rate must be a number above 0"),
        ({"seed": -1}, "--seed must be between 0 and"),
        ({"seed": 5_000_000_000}, "--seed must be between 0 and"),
        ({"momentum": 1.0}, "--momentum must be at least 0 and below 1"),
        ({"weight_decay": -1.0}, "--weight-decay must be 0 or more"),
        ({"device": "cuda:99"}, "--device cuda:99 cannot be used here"),
        ({"device": "toaster"}, "--device toaster cannot be used here"),
    ],
)
def test_settings_without_sense_are_named(changes, message):
    with pytest.raises(UserError, match=message):
        Settings(**{"classes": 10, "device": "cpu", **changes}).resolved(4, 999, 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings = [", "not readable as TOML"),
        ("", "not from a newfound run"),
        ("[settings]\nclasses = 3\nwarp = 9\n", "does not know: warp"),
        ('[settings]\nclasses = "3"\n', "has classes = '3'"),
        ("[settings]\nclasses = 3\nstage1 = 5\n", "has stage1 = 5"),
        ("[settings]\nclasses = 3\nrho = true\n", "has rho = True"),
        ('[settings]\nclasses = 3\nstart = "somewhere"\n', "has start = 'somewhere'"),
    ],
)
def test_a_file_that_is_not_ours_is_named(text, message):
    with pytest.raises(UserError, match=message):
        from_toml(text, Path("config.toml"))


def test_settings_that_mean_nothing_to_the_method_can_be_dropped():
    everything = Settings(10, beta=0.3, start="random", epochs=5, rho=0.1, seed=3)
    for method, kept in (
        ("sdas", {"beta": 0.3, "start": "random", "epochs": 5, "rho": 0.1}),
        ("simgcd", {"beta": None, "start": "random", "epochs": 5, "rho": 0.1}),
        ("gcd", {"beta": None, "start": None, "epochs": 5, "rho": 0.1}),
        ("kmeans", {"beta": None, "start": None, "epochs": None, "rho": None}),
    ):
        chosen = replace(everything, method=method).stripped()
        assert chosen == replace(everything, method=method, **kept)
        chosen.resolved(5, 999, 10.0)  # and it is accepted
