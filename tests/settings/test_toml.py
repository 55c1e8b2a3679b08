"""Settings as tables of a TOML file, and back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newfound.errors import UserError
from newfound.settings import Settings
from newfound.settings.toml import as_table, from_table, read_tables, to_toml


def read(text, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(text, "utf-8")
    return read_tables(path)


@given(
    settings=st.builds(
        Settings,
        classes=st.none() | st.integers(2, 1000),
        method=st.sampled_from(["sdas", "kmeans"]),
        seed=st.integers(0, 2**31),
        epochs=st.none() | st.integers(1, 500),
        learning_rate=st.none() | st.floats(1e-6, 10),
        weights=st.none() | st.just(Path("some where/ü.pth")),
        views=st.sampled_from(["bank", "fresh"]),
    )
)
def test_a_dataclass_survives_the_file(settings, tmp_path_factory):
    text = to_toml({"settings": as_table(settings), "data": {"fingerprint": "abc", "labels": None}})
    tables = read(text, tmp_path_factory.getbasetemp())
    assert from_table(Settings, tables["settings"], Path("config.toml")) == settings
    assert tables["data"] == {"fingerprint": "abc"}  # what is None is left out


def test_a_place_that_is_not_utf8_is_written_all_the_same(tmp_path):
    odd = b"caf\xe9".decode(errors="surrogateescape")
    assert read(to_toml({"data": {"folder": Path(odd)}}), tmp_path) == {"data": {"folder": "caf\\xe9"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings = [", "not readable as TOML"),
        ("x = " + "[" * 5000, "not readable as TOML"),
        ("x = " + "9" * 5000, "not readable as TOML"),
        ("classes = 3\n[settings]\n", "has classes outside of a section"),
    ],
)
def test_a_file_without_tables_is_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(text, tmp_path)


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not readable as TOML"):
        read_tables(tmp_path / "config.toml")


@dataclass(frozen=True)
class Kinds:
    number: float | None = None
    whole: int = 1
    flag: bool = False
    place: Path | None = None
    choice: Literal["a", "b"] | None = None
    word: str = ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": "3"}, {"number": True}, {"whole": 1.0}, {"whole": True}, {"whole": [1]}, {"flag": 1},
        {"place": 5}, {"choice": "c"}, {"choice": 1}, {"word": 1}, {"word": {}},
    ],
    ids=str,
)  # fmt: skip
def test_values_of_another_type_are_named(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(UserError) as error:
        from_table(Kinds, wrong, Path("config.toml"))
    assert str(error.value) == f"config.toml has {name} = {value!r}, which is not a value of that setting"


def test_a_whole_number_may_stand_for_a_float_and_a_string_for_a_path():
    found = from_table(Kinds, {"number": 2, "place": "a b", "choice": "b"}, Path("config.toml"))
    assert found == Kinds(number=2, place=Path("a b"), choice="b")


def test_a_setting_of_a_later_version_is_named():
    with pytest.raises(UserError, match="does not know: warp, weft"):
        from_table(Kinds, {"warp": 9, "weft": 1, "whole": 2}, Path("config.toml"))
