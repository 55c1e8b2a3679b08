"""config.toml: written, read back, and read as earlier versions wrote it."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from helping.earlier_versions import EARLIER
from newfound.errors import UserError
from newfound.methods import METHODS, decide, draws_half_labelled, gcd, kmeans, load, method_of, sdas, simgcd
from newfound.runs.config import config_text, read_config
from newfound.settings import DataFacts, Settings

FACTS = DataFacts(images=2000, known=5, labelled=500, labelled_classes=5, classes=10)


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "config.toml").write_text(text, "utf-8")
        return read_config(tmp_path / "config.toml")

    return read


def chosen(name):
    return Settings(None if load(name).NEEDS.own_count else 10, name, device="cpu")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("changes", [{}, {"views": "fresh"}, {"backbone": "dino_vits16", "weights": Path("/w/ü.pth")}])
def test_settings_survive_the_file(read, name, changes):
    settings = decide(replace(chosen(name), seed=3, **changes), FACTS)
    config = read(config_text(settings, {"data": {"fingerprint": "abc", "labels": None}}))
    assert config.settings == settings
    assert config.sections == {"data": {"fingerprint": "abc"}}
    assert not config.earlier_version
    assert decide(config.settings, FACTS) == settings  # nothing is left to decide


@pytest.mark.parametrize("name", [name for name in METHODS if draws_half_labelled(chosen(name))])
def test_a_balance_survives_the_file(read, name):
    settings = decide(replace(chosen(name), label_balance=0.25), FACTS)
    assert read(config_text(settings, {})).settings == settings
    assert settings.label_balance == 0.25


@pytest.mark.parametrize("name", METHODS)
def test_a_run_from_before_there_was_a_balance_was_drawn_without(read, name):
    """Whatever the default is now, it is resumed as it was begun."""
    settings = decide(chosen(name), FACTS)
    lines = config_text(settings, {}).splitlines()
    before = read("\n".join(line for line in lines if not line.startswith("label_balance")))
    assert before.settings.label_balance == (None if name in ("kmeans", "hdbscan", "orca") else 0.0)
    assert decide(before.settings, FACTS) == before.settings


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("whitening", ["auto", "none", 0.25, 1])
def test_whitening_survives_the_file(read, name, whitening):
    settings = decide(replace(chosen(name), whitening=whitening), FACTS)
    assert read(config_text(settings, {})).settings == settings
    assert settings.whitening == whitening


@pytest.mark.parametrize("name", METHODS)
def test_a_run_from_before_there_was_whitening_had_none(read, name):
    lines = config_text(decide(chosen(name), FACTS), {}).splitlines()
    before = read("\n".join(line for line in lines if not line.startswith("whitening")))
    assert before.settings.whitening == "none"
    assert decide(before.settings, FACTS) == before.settings


def test_places_are_absolute(read):
    """A run may be resumed from another folder than it was started in."""
    own = sdas.Settings(stage1=Path("first"))
    settings = decide(Settings(10, own, device="cpu", bank_dir=Path("bank")), FACTS)
    found = read(config_text(settings, {})).settings
    assert (found.bank_dir, found.method.stage1) == (Path.cwd() / "bank", Path.cwd() / "first")


@pytest.mark.parametrize("name", METHODS)
def test_the_file_holds_every_setting_that_plays_a_part_and_no_other(name):
    settings = decide(chosen(name), FACTS)
    shared, _, own = config_text(settings, {}).partition("[method]\n")
    written = [line.split(" = ")[0] for line in shared.splitlines()[1:] if line]
    assert written == [f.name for f in fields(settings) if getattr(settings, f.name) is not None]
    assert ("epochs" in written) == load(name).NEEDS.training
    written = [line.split(" = ")[0] for line in own.splitlines()]
    assert written == [f.name for f in fields(settings.method) if f.name != "stage1"]  # it was not taken from elsewhere
    assert f'method = "{name}"\n' in shared


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings = [", "not readable as TOML"),
        ("", "not from a newfound run"),
        ("classes = 3\n[settings]\n", "has classes outside of a section"),
        ("[settings]\nclasses = 3\nwarp = 9\n", "does not know: warp"),
        ("[settings]\nclasses = 3\n[method]\nwarp = 9\n", "does not know: warp"),
        ("[settings]\nclasses = 3\nbeta = 0.5\n[method]\n", "does not know: beta"),
        ('[settings]\nclasses = 3\nmethod = "simgcd"\n[method]\nbeta = 0.5\n', "does not know: beta"),
        ('[settings]\nclasses = 3\nmethod = "magic"\n', "has the method 'magic', which this version does not know"),
        ("[settings]\nclasses = 3\nmethod = 5\n", "has the method 5, which"),
        ('[settings]\nclasses = "3"\n', "has classes = '3'"),
        ("[settings]\nclasses = 3\nstage1 = 5\n", "has stage1 = 5"),
        ("[settings]\nclasses = 3\nrho = true\n", "has rho = True"),
        ('[settings]\nclasses = 3\nstart = "somewhere"\n', "has start = 'somewhere'"),
        ('[settings]\nclasses = 3\n[method]\nstart = "somewhere"\n', "has start = 'somewhere'"),
    ],
)
def test_a_file_that_is_not_ours_is_named(read, text, message):
    with pytest.raises(UserError, match=message):
        read(text)


# Before methods had settings of their own, [settings] held those of all methods, whatever the method was

OF_SIMGCD = {"start": "clusters", "entropy_weight": 1.0, "student_temperature": 0.2, "warmup_epochs": 2}
EARLIER_RUNS = {
    "sdas": (
        EARLIER["sdas"],
        sdas.Settings(**OF_SIMGCD, alpha=1, beta=0.8, anchors_per_class=100.0),
    ),
    "simgcd": (EARLIER["simgcd"], simgcd.Settings(**OF_SIMGCD)),
    "gcd": (EARLIER["gcd"], gcd.Settings(temperature=0.2)),
    "kmeans": (EARLIER["kmeans"], kmeans.Settings(temperature=0.2)),
}


@pytest.mark.parametrize("name", EARLIER_RUNS)
def test_a_file_of_an_earlier_version_is_read(read, name):
    text, own = EARLIER_RUNS[name]
    config = read(text)
    assert config.earlier_version
    assert config.settings.method == own
    assert name == method_of(config.settings).NAME
    assert (config.settings.classes, config.settings.seed, config.settings.image_size) == (10, 3, 128)
    assert config.settings.rho == {"sdas": 0.05, "kmeans": None}.get(name, 0.0)
    assert config.settings.epochs == {"kmeans": None}.get(name, 5)  # it trained nothing
    assert config.settings.grad_from_block is None  # an EfficientNet has no blocks
    facts = DataFacts(images=2000, known=5, labelled=500, labelled_classes=5, classes=10)
    decided = replace(decide(config.settings, facts), projector_width=None)
    assert decided == replace(config.settings, method=decided.method)  # nothing else was open
    open_then = {"kmeans_start"}  # settings that were added since
    assert {k: v for k, v in vars(decided.method).items() if k not in open_then}.items() <= vars(own).items()
    assert config.sections["data"]["folder"] == "demo/wardrobe"
    assert list(config.sections) == ["data", "backbone", "versions"]


def test_a_file_without_a_method_is_the_default_methods(read):
    text = EARLIER_RUNS["sdas"][0].replace('method = "sdas"\n', "")
    assert read(text).settings.method == EARLIER_RUNS["sdas"][1]


@pytest.mark.parametrize("name", EARLIER_RUNS)
def test_a_setting_nobody_ever_had_is_named_there_too(read, name):
    text = EARLIER_RUNS[name][0].replace("[settings]\n", "[settings]\nwarp = 9\n")
    with pytest.raises(UserError, match="does not know: warp"):
        read(text)
