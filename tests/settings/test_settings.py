"""What settings become when a run begins, and which of them are refused."""

import pickle
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from newfound.errors import SettingError, UserError
from newfound.methods import decide, draws_half_labelled, kmeans, sdas, with_own
from newfound.settings import METHODS, DataFacts, Settings
from newfound.settings.presets import KINDS, PRESETS


def decided(classes=5, *, known=2, images=999, per_class=100.0, **changes):
    """Decided on a CPU, for data of which ``per_class`` images of each known class are labelled."""
    method = changes.pop("method", "sdas")
    facts = DataFacts(images, known, round(per_class * known), known, classes)
    return decide(with_own(Settings(classes, method, device="cpu"), changes), facts)


def test_what_is_left_open_is_decided():
    quick = decided(5)
    assert (quick.epochs, quick.method.warmup_epochs) == (60, 30)
    assert quick.method.entropy_weight == 1.0
    assert decided(100).method.entropy_weight == 2.0
    assert decided(100, entropy_weight=4.0).method.entropy_weight == 4.0
    assert decided(5, epochs=200).method.warmup_epochs == 30
    assert decided(5, epochs=1).method.warmup_epochs == 1
    assert decided(5, epochs=1000).method.warmup_epochs == 30


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
    published = {"epochs": 200, "known": classes // 2, "images": images, "per_class": 20}
    settings = decided(classes, preset=name, **published)
    own = settings.method
    assert (own.alpha, own.beta) == {"generic": (1, 0.8), "fine-grained": (10, 0.5)}[kind]
    assert own.entropy_weight == {"cifar100": 4.0, "cub": 2.0}.get(name, 1.0)
    assert (settings.rho, own.k, own.start, own.warmup_epochs) == (0.05, 0.5, "random", 30)
    unnamed = decided(classes, **published)
    assert unnamed.preset == kind  # what is chosen where nothing is said agrees with the paper
    assert (unnamed.method.alpha, unnamed.method.beta, unnamed.method.start) == (own.alpha, own.beta, "clusters")


def test_labels_are_balanced_on_ones_own_images_and_not_where_values_are_published():
    for name in set(METHODS) - {"hdbscan"}:
        of_kind = {preset: decided(10, method=name, preset=preset).label_balance for preset in PRESETS}
        has_one = draws_half_labelled(Settings(method=name))
        assert of_kind == {p: (0.5 if p in KINDS else 0.0) if has_one else None for p in PRESETS}
    assert decided(10).label_balance == 0.5
    assert decided(10, label_balance=0).label_balance == 0
    assert decided(10, preset="cub", label_balance=1).label_balance == 1


def test_features_are_whitened_on_ones_own_images_by_methods_that_cluster_them():
    for name in set(METHODS) - {"hdbscan"}:
        own = "auto" if name in ("kmeans", "gcd") else "none"
        of_kind = {preset: decided(10, method=name, preset=preset).whitening for preset in PRESETS}
        assert of_kind == {preset: own if preset in KINDS else "none" for preset in PRESETS}
    of_hdbscan = decide(Settings(method="hdbscan", device="cpu"), DataFacts(99, 2, 20, 2, 2))
    assert of_hdbscan.whitening == "auto"
    assert decided(10, whitening="auto").whitening == "auto"
    assert decided(10, method="kmeans", whitening=0.25).whitening == 0.25
    assert decided(10, method="kmeans", whitening="none").whitening == "none"
    assert decided(10, method="kmeans", preset="cub", whitening="auto").whitening == "auto"


@pytest.mark.parametrize("whitening", [None, "auto", "none"])
def test_a_vision_transformer_is_not_whitened(whitening):
    """Its tail standardises nothing."""
    assert decided(10, method="kmeans", backbone="dino_vits16", whitening=whitening).whitening == "none"


def test_clusters_are_sought_in_all_views_on_ones_own_images_and_in_one_where_values_are_published():
    for name in set(METHODS) - {"hdbscan"}:
        of_kind = {preset: decided(10, method=name, preset=preset).frozen_views for preset in PRESETS}
        assert of_kind == {preset: "all" if preset in KINDS else "one" for preset in PRESETS}
    assert decided(10, frozen_views="one").frozen_views == "one"
    assert decided(10, preset="cub", frozen_views="all").frozen_views == "all"
    assert decided(10, views="fresh").frozen_views == "one"  # there are no others to be had
    with pytest.raises(SettingError, match="frozen_views='all' cannot be had with fresh views, which keep no bank"):
        decided(10, views="fresh", frozen_views="all")


CUB = {"preset": "cub", "known": 100, "images": 5_994, "per_class": 14.98}


def test_what_is_given_beats_the_preset():
    own = decided(200, **CUB, alpha=7, beta=0.9, start="clusters", entropy_weight=3.0).method
    assert (own.alpha, own.beta, own.start, own.entropy_weight) == (7, 0.9, "clusters", 3.0)


def test_the_quick_recipe_shortens_in_proportion():
    quick = decided(200, **CUB)
    assert (quick.epochs, quick.method.alpha) == (60, 3)
    assert quick.method.anchors_per_class == pytest.approx(14.98)
    nothing_labelled = {"known": 5, "images": 2000, "per_class": 0}
    assert decided(10, **nothing_labelled).method.anchors_per_class == 100.0
    assert decided(10, **nothing_labelled, preset="generic", epochs=3).method.alpha == 1


def test_the_sharpness_penalty_belongs_to_the_method():
    assert decided(10).rho == 0.05
    assert decided(10, method="simgcd").rho == 0.0
    assert decided(10, method="simgcd", rho=0.1).rho == 0.1


def test_nothing_is_decided_that_plays_no_part():
    frozen = decided(10, method="kmeans")
    assert {frozen.epochs, frozen.learning_rate, frozen.rho, frozen.projector_width} == {None}
    assert decided(10).grad_from_block is None  # an EfficientNet has no blocks
    assert decided(10, backbone="dino_vits16").grad_from_block == 11
    assert decided(10).bank_views == 8
    assert decided(10, views="fresh").bank_views is None
    assert frozen.label_balance is None
    assert decided(10, method="orca").label_balance is None  # it draws all images with equal chances
    assert decided(10, method="orca", label_balance=0).label_balance is None  # which is what 0 says
    assert decided(10, method="orca", batches="half-labelled", label_balance=0.5).label_balance == 0.5


REFUSED = [
    ({"alpha": 0}, "alpha must be at least 1"),
    ({"beta": 1.5}, "beta must be between 0 and 1"),
    ({"k": -0.1}, "k must be between 0 and 1"),
    ({"anchors_per_class": 0.2}, "anchors_per_class must be at least 1"),
    ({"rho": -1.0}, "rho must be 0 or more"),
    ({"precision": "float16"}, "precision='float16' is for a GPU"),
    ({"compile": True}, "compile=True is for a GPU"),
    ({"method": "simgcd", "oracle_clean_anchors": True}, "oracle_clean_anchors=True is not a setting of simgcd"),
    ({"method": "simgcd", "alpha": 3}, "alpha=3 is not a setting of simgcd"),
    ({"method": "simgcd", "selection": "max-prob"}, "selection='max-prob' is not a setting of simgcd"),
    ({"method": "simgcd", "stage1": Path("run")}, "stage1='run' is not a setting of simgcd"),
    ({"method": "gcd", "start": "random"}, "start='random' is not a setting of gcd"),
    ({"method": "kmeans", "epochs": 5}, "epochs=5 has no effect with kmeans, which trains nothing"),
    ({"stage1": Path("run"), "strategy": "without-pretrain"}, "stage1='run' needs a strategy of two trainings"),
    ({"strategy": "without-pretrain", "warmup_epochs": 60}, "only 60 epochs"),
    ({"classes": 3}, "4 classes are known"),
    ({"classes": 1000}, "there are only 999 images"),
    ({"classes": 0}, "classes=0 is too few"),
    ({"epochs": -1}, "epochs must be at least 1"),
    ({"bank_views": 1}, "bank_views must be at least 2"),
    ({"bank_views": 8, "views": "fresh"}, "bank_views=8 has no effect with fresh views"),
    ({"grad_from_block": 11}, "grad_from_block=11 has no effect with efficientnet_lite0"),
    ({"grad_from_block": 12, "backbone": "dino_vits16"}, "grad_from_block must be 0 to 11; found grad_from_block=12"),
    ({"label_balance": -0.1}, "label_balance must be between 0 and 1; found label_balance=-0.1"),
    ({"label_balance": 1.5}, "label_balance must be between 0 and 1"),
    ({"label_balance": float("nan")}, "label_balance must be between 0 and 1"),
    ({"whitening": 1.5}, "whitening must be auto, none, or a number between 0 and 1; found whitening=1.5"),
    ({"whitening": -0.1}, "whitening must be auto, none, or a number between 0 and 1"),
    ({"whitening": float("nan")}, "whitening must be auto, none, or a number between 0 and 1"),
    ({"whitening": "some"}, "whitening must be one of 'auto', 'none' or float or None; found whitening='some'"),
    (
        {"whitening": 0.5, "backbone": "dino_vits16"},
        "whitening=0.5 has no effect with dino_vits16: it is for an",
    ),
    ({"method": "kmeans", "label_balance": 0.5}, "label_balance=0.5 has no effect with kmeans, which trains nothing"),
    ({"method": "orca", "label_balance": 0.5}, "no effect with orca, .* unless batches='half-labelled'"),
    ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
    ({"supervised_weight": 1.5}, "between 0 and 1"),
    ({"learning_rate": float("inf")}, "learning_rate must be a number above 0"),
    ({"seed": -1}, "seed must be between 0 and"),
    ({"seed": 5_000_000_000}, "seed must be between 0 and"),
    ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
    ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
    ({"device": "cuda:99"}, "device='cuda:99' cannot be used here"),
    ({"device": "toaster"}, "device='toaster' cannot be used here"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=lambda part: part if isinstance(part, str) else "")
def test_settings_without_sense_are_named(changes, message):
    with pytest.raises(SettingError, match=message):
        decided(**{"classes": 10, "known": 4, "per_class": 100, **changes})


def test_a_method_that_does_not_exist_is_named():
    with pytest.raises(UserError, match=r"method='magic' is not a method.*; there are sdas, simgcd"):
        decided(10, method="magic")


def test_settings_by_name_are_shared_or_the_methods_own():
    settings = with_own(Settings(10), {"beta": 0.5, "epochs": 3, "method": "sdas"})
    assert settings == Settings(10, sdas.Settings(beta=0.5), epochs=3)
    assert with_own(settings, {"method": "kmeans", "temperature": 1.0}).method == kmeans.Settings(1.0)


WRONG_TYPES = [
    ({"method": "umap"}, "method='umap' is not a method; there are sdas, simgcd, gcd, "),
    ({"method": "simgdc"}, r"method='simgdc' is not a method \(did you mean simgcd\?\)"),
    ({"method": 5}, "method must be the name of a method, or the Settings of one such as .*; found method=5"),
    ({"method": sdas}, "method must be the name of a method"),
    ({"method": sdas.Settings}, "method must be the name of a method"),
    ({"method": Settings()}, "method must be the name of a method"),
    ({"method": sdas.Settings(beta="much")}, "beta must be float or None; found beta='much'"),
    ({"classes": "many"}, "classes must be int or None; found classes='many'"),
    ({"classes": 2.5}, r"classes must be int or None; found classes=2\.5"),
    ({"classes": True}, "classes must be int or None; found classes=True"),
    ({"epochs": "ten"}, "epochs must be int or None; found epochs='ten'"),
    ({"learning_rate": "fast"}, "learning_rate must be float or None"),
    ({"seed": None}, "seed must be int; found seed=None"),
    ({"views": "stale"}, "views must be one of 'bank', 'fresh'; found views='stale'"),
    ({"views": np.zeros(2)}, "views must be one of 'bank', 'fresh'"),
    ({"preset": "birds"}, "preset must be one of 'generic', .* or None; found preset='birds'"),
    ({"weights": 3}, "weights must be Path or None; found weights=3"),
    ({"compile": "yes"}, "compile must be bool; found compile='yes'"),
    ({"device": 0}, "device must be str; found device=0"),
]


@pytest.mark.parametrize(("values", "message"), WRONG_TYPES, ids=lambda part: part if isinstance(part, str) else "")
def test_values_of_another_type_are_refused_in_the_words_of_python(values, message):
    with pytest.raises(SettingError, match=f"^{message}"):
        Settings(**values)


def test_values_as_people_write_them():
    assert Settings("auto").classes is None
    assert Settings(weights="w.pth", bank_dir="banks").bank_dir == Path("banks")
    assert Settings(method=sdas.Settings(stage1="run")).method.stage1 == Path("run")
    counted = Settings(np.int64(12), learning_rate=np.float32(0.5), epochs=np.array(3))
    assert (counted.classes, type(counted.classes), counted.learning_rate, counted.epochs) == (12, int, 0.5, 3)
    assert Settings(learning_rate=1).learning_rate == 1  # a whole number is a number


def test_a_name_that_is_nearly_a_setting():
    with pytest.raises(SettingError, match=r"^epoch=3 is not a setting of sdas \(did you mean epochs\?\)$"):
        with_own(Settings(), {"epoch": 3})
    with pytest.raises(SettingError, match=r"^beta must be float or None; found beta='much'$"):
        with_own(Settings(), {"beta": "much"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Settings(epoch=5), "epoch=5 is not a setting of newfound.Settings (did you mean epochs?)"),
        (lambda: Settings(beta=0.5), "beta=0.5 is not a setting of newfound.Settings; a method's own settings belong"),
        (lambda: sdas.Settings(beat=1), "beat=1 is not a setting of newfound.methods.sdas.Settings (did you mean beta"),
        (lambda: kmeans.Settings(x=1), "x=1 is not a setting of newfound.methods.kmeans.Settings"),
    ],
)
def test_a_name_that_is_no_setting_is_a_user_error(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value).startswith(message)


def test_checking_names_leaves_signature_and_pickling_alone():
    assert list(signature(Settings).parameters)[:3] == ["classes", "method", "preset"]
    assert pickle.loads(pickle.dumps(Settings(12, epochs=3))) == Settings(12, epochs=3)
