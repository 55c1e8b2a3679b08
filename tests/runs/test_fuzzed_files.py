"""Any bytes in a file we read give a result or a UserError, and nothing else."""

from __future__ import annotations

import string
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helping.small_runs import write_run
from newfound.errors import UserError
from newfound.images.labels import read_labels
from newfound.methods import METHODS, decide, load
from newfound.runs.config import Config, config_text, read_config
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_json, read_results
from newfound.settings import DataFacts, Settings
from newfound.settings.toml import fits

pytestmark = pytest.mark.long

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
texts = st.text(string.printable + "\0\x7fé😀\ufeff", max_size=40)
# Bytes that mean something to one of the formats come more often than others.
marks = st.sampled_from(
    [b"\0", b"\xff", b'"', b"'", b",", b"\n", b"\r", b"[", b"]", b"{", b"}", b"=", b"-", b"9", b"nan"]
)
changes = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), marks | st.binary(max_size=4)), min_size=1, max_size=4)


def mutated(content: bytes, changed: list[tuple[float, int, bytes]]) -> bytes:
    """At some places, a few bytes replaced by others."""
    for where, gone, new in changed:
        start = round(where * len(content))
        content = content[:start] + new + content[start + gone :]
    return content


LABELS = {
    "labels.csv": b'file,label\na.png,cat\n"b,1.png","two\nlines"\nc.png,\n',
    "labels.jsonl": b'{"file": "a.png", "label": "cat"}\n{"file": "b.png", "label": 3}\n{"file": "c.png"}\n',
}


def error_of(work: Callable[[], object]) -> str:
    """What a UserError says, nothing where there is none; any other exception is a failure."""
    try:
        work()
    except UserError as error:
        return str(error)
    return ""


@quick
@given(st.sampled_from(sorted(LABELS)), changes)
def test_labels(name, changed):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(mutated(LABELS[name], changed))
        error = error_of(lambda: read_labels(path))
        if error:
            assert str(path) in error
        else:
            rows = read_labels(path).rows
            assert len({row.file for row in rows}) == len(rows)


DECIDED = decide(Settings(5, device="cpu"), DataFacts(99, 2, 20, 2, 5))
CONFIG = config_text(DECIDED, {"data": {"folder": "/photos", "images": 99}})


def read_text(text: str | bytes) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return read_config(path)


def check_toml(text: str) -> None:
    if error := error_of(lambda: read_text(text)):
        assert "config.toml" in error
        return
    config = read_text(text)
    for found, without in ((config.settings, "method"), (config.settings.method, "")):
        hints = get_type_hints(type(found))
        values = {name: value for name, value in vars(found).items() if name != without}
        assert all(fits(str(v) if isinstance(v, Path) else v, hints[name]) for name, v in values.items())
    assert all(isinstance(section, dict) for section in config.sections.values())


@quick
@given(
    st.one_of(
        st.text(), st.text(alphabet="[]{}=.\"'\n#abc019-:T", max_size=60).map("[settings]\nclasses = 3\n".__add__)
    )
)
def test_any_text_as_config(text):
    check_toml(text)


@quick
@given(changes)
def test_a_config_with_bytes_changed(changed):
    error = error_of(lambda: read_text(mutated(CONFIG.encode(), changed)))
    assert not error or "config.toml" in error


toml_values = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts | st.datetimes() | st.dates(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@quick
@given(
    st.dictionaries(st.sampled_from([field.name for field in fields(Settings)]), toml_values, max_size=4),
    st.sampled_from(METHODS).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.dictionaries(st.sampled_from([f.name for f in fields(load(name).Settings)]), toml_values, max_size=4),
        )
    ),
    st.dictionaries(st.sampled_from(["data", "versions", "method", "x"]), toml_values, max_size=2),
    toml_values,
)
def test_any_values_in_a_config(values, method, sections, classes):
    name, own = method
    check_toml(tomli_w.dumps({"settings": {"classes": 3, "method": name}, "method": own}))
    check_toml(tomli_w.dumps({"settings": {"classes": 3, "method": name, **own}}))  # as earlier versions had it
    check_toml(tomli_w.dumps({**sections, "settings": {"classes": 3, **values}}))
    check_toml(tomli_w.dumps({"settings": {"classes": classes}}))
    check_toml(tomli_w.dumps({"settings": classes}))


def values_of(hint: object) -> st.SearchStrategy[object]:
    """What a setting of this type may be."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_args(hint):
        return st.one_of([values_of(part) for part in get_args(hint)])
    by_type = {
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: texts,
        Path: st.text(string.ascii_letters + " ü\"'\\\n/.", min_size=1, max_size=9).map(_place),
        type(None): st.none(),
    }
    return by_type[hint]  # type: ignore[index]


def _place(text: str) -> Path:
    """config.toml has absolute paths."""
    return Path("/", text)


def any_of(cls: type, **given: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    hints = {name: hint for name, hint in get_type_hints(cls).items() if name not in given}
    return st.builds(cls, **given, **{name: values_of(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("method", METHODS)
@quick
@given(data=st.data())
def test_every_setting_survives_the_file(method, data):
    """A file without `label_balance`, `whitening` or `frozen_views` is of an earlier version, see test_config.py; they
    are always written now."""
    given = {
        "classes": st.integers(2, 99),
        "label_balance": st.floats(allow_nan=False),
        "whitening": st.sampled_from(["auto", "none"]) | st.floats(allow_nan=False),
        "frozen_views": st.sampled_from(["one", "all"]),
    }
    chosen = data.draw(any_of(Settings, method=any_of(load(method).Settings), **given))
    assert read_text(config_text(chosen, {})).settings == chosen


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small finished run with a decision on it, and what is in its files."""
    names = ("cat", "dog", "new-1")
    written = write_run(tmp_path_factory.mktemp("fuzz"), list("abcdef"), [0, 1, 2] * 2, names, 2, given=[0] + [-1] * 5)
    path = written.run.path
    DecisionLog(written).decide({"action": "rename", "class": 2, "name": "heron"}, 0)
    (path / "metrics.json").write_text('{"all": 0.5, "per_class": {"cat": 1.0}}')
    (path / "anchors.jsonl").write_text(
        '{"stage": 2, "epoch": 1, "omega": 0.5}\n{"stage": 2, "epoch": 2, "omega": 0.5}\n'
    )
    return path, {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}


SPOILT = ("assignments.csv", "classes.csv", "embeddings.npy", "decisions.json", "config.toml", "metrics.json",
          "anchors.jsonl")  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
@quick
@given(changed=changes)
def test_a_run_with_bytes_changed(run, name, changed):
    path, contents = run

    def read() -> None:
        results = read_results(path)
        assert results.embeddings.shape == (len(results), 64)
        assert len(DecisionLog(results).reviewed.class_of) == len(results)
        assert isinstance(results.root, Path)
        assert isinstance(results.settings, Settings)
        assert all("stage" in entry for entry in results.run.journal.pseudo_labels())
        read_json(path / "metrics.json", "all")

    (path / name).write_bytes(mutated(contents[name], changed))
    error = error_of(read)
    (path / name).write_bytes(contents[name])
    assert not error or str(path) in error
