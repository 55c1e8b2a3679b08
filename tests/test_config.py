from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newfound.config import Settings, from_toml, to_toml
from newfound.errors import UserError


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
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
    ],
)
def test_a_file_that_is_not_ours_is_named(text, message):
    with pytest.raises(UserError, match=message):
        from_toml(text, Path("config.toml"))
