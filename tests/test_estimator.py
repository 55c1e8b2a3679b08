"""CategoryDiscovery: scikit-learn's own checks, and what they do not look at."""

import ast
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import newfound
from newfound import estimator, estimator_model, estimator_settings
from newfound.errors import SettingError, for_the_command_line
from newfound.estimator import CategoryDiscovery
from newfound.estimator_labels import with_none_of_these
from newfound.evaluate import cluster_accuracy
from newfound.settings import Settings

KNOWN, CLASSES, EACH, DIM = 2, 4, 20, 8
TRUE = np.repeat(np.arange(CLASSES), EACH)
CENTRES = np.random.default_rng(0).normal(size=(CLASSES, DIM)) * 3
VIEWS = CENTRES[TRUE][:, None] + np.random.default_rng(1).normal(size=(len(TRUE), 4, DIM))
X = VIEWS[:, 0]
Y = np.where((TRUE < KNOWN) & (np.arange(len(TRUE)) % 2 == 0), TRUE, -1)
NAMES = np.array(["heron", "swan"])

DO_NOT_APPLY = {
    "check_classifiers_classes": "one of its problems has -1 as a class; here it means unlabelled",
    "check_supervised_y_no_nan": "NaN in y is not an error; it means unlabelled",
}


def quick(**parameters):
    return CategoryDiscovery(**{"n_classes": CLASSES, "epochs": 2, "random_state": 0, **parameters})


def named(mark, dtype=object):
    return np.array([NAMES[y] if y >= 0 else mark for y in Y], dtype=dtype)


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(X, Y)


@parametrize_with_checks([CategoryDiscovery(epochs=1)], expected_failed_checks=lambda _: DO_NOT_APPLY)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# What is found


def test_known_and_new_groups_are_found(fitted):
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    assert fitted.is_new_.tolist() == [False, False, True, True]
    assert (fitted.labels_[Y >= 0] == Y[Y >= 0]).all()
    assert cluster_accuracy(TRUE, fitted.labels_, TRUE < KNOWN).all > 0.95


def test_attributes(fitted):
    assert fitted.n_iter_ == 4  # two trainings
    assert fitted.n_features_in_ == DIM
    assert fitted.class_count_ is None
    assert len(fitted.anchors_) > 0
    assert (Y[fitted.anchors_] == -1).all()
    assert fitted.is_new_[np.searchsorted(fitted.classes_, fitted.labels_[fitted.anchors_])].all()


@pytest.mark.parametrize("method", ["sdas", "simgcd", "gcd", "kmeans"])
def test_every_method_labels_its_training_images_alike_again(method):
    model = quick(method=method).fit(X, Y)
    assert cluster_accuracy(TRUE, model.labels_, TRUE < KNOWN).all > 0.9
    assert np.array_equal(model.predict(X), model.labels_)
    assert (len(model.anchors_) > 0) == (method == "sdas")
    assert model.n_iter_ == {"sdas": 4, "kmeans": 0}.get(method, 2)


def test_the_number_of_classes_is_estimated():
    model = quick(n_classes=None, method="kmeans").fit(X, Y)
    assert len(model.classes_) == model.class_count_.best >= CLASSES
    assert model.is_new_.sum() == len(model.classes_) - KNOWN


def test_nothing_labelled():
    model = quick().fit(X)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.is_new_.all()
    assert np.array_equal(model.labels_, quick().fit_predict(X, np.full(len(X), -1)))


def test_everything_labelled_leaves_nothing_to_find():
    model = quick(n_classes=None).fit(X, TRUE)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert not model.is_new_.any()
    assert model.score(X, TRUE) > 0.95


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [None, 4])
def test_one_label_on_every_sample_is_what_is_predicted(n_classes):
    """A run refuses such a folder; scikit-learn's check of it fits without a seed, and seldom notices."""
    model = quick(n_classes=n_classes, method="kmeans").fit(X, np.full(len(X), 7))
    assert model.classes_.tolist() == [7]
    assert (model.predict(X) == 7).all()


def test_empty_new_classes_are_left_out_with_a_warning():
    few = np.repeat(CENTRES, EACH, axis=0)
    with pytest.warns(ConvergenceWarning, match="2 new classes ended up empty"):
        model = quick(n_classes=CLASSES + 2, method="kmeans").fit(few, Y)
    assert len(model.classes_) == len(model.is_new_) == model.predict_proba(few).shape[1] == CLASSES


def test_several_views_are_trained_on_and_the_first_is_predicted_from():
    model = quick().fit(VIEWS, Y)
    assert model.n_features_in_ == DIM
    assert np.array_equal(model.predict(VIEWS), model.labels_)
    assert np.array_equal(model.predict(VIEWS[:, 0]), model.labels_)
    assert not np.array_equal(model.transform(X), quick().fit(X, Y).transform(X))


# Labels


@pytest.mark.parametrize(
    "y",
    [named(None), named(np.nan), named(""), named(-1), named("", str), named(-1, str), named(None).tolist(),
     named(np.nan).tolist(), named(-1).tolist()],
)  # fmt: skip
def test_marks_of_unlabelled_strings(y):
    model = quick(method="kmeans").fit(X, y)
    assert model.classes_.tolist() == ["heron", "swan", "new-1", "new-2"]
    assert model.labels_.tolist() == model.classes_[quick(method="kmeans").fit(X, Y).labels_].tolist()


@pytest.mark.parametrize(
    ("known", "new"),
    [([3, 7], [8, 9]), ([-5, -2], [0, 1]), ([False, True], [2, 3]), (["new-1", "z"], ["discovered-1", "discovered-2"])],
)
def test_new_labels_are_unused_ones(known, new):
    y = [known[y] if y >= 0 else None for y in Y]
    assert quick(method="kmeans").fit(X, y).classes_.tolist() == [*known, *new]


@pytest.mark.parametrize("y", [Y.astype(float), np.where(Y < 0, np.nan, Y), Y.tolist(), Y.astype(object)])
def test_numbers_in_other_guises(y):
    assert np.array_equal(quick(method="kmeans").fit(X, y).labels_, quick(method="kmeans").fit(X, Y).labels_)


@pytest.mark.parametrize(
    ("y", "text"),
    [
        (np.where(Y < 0, -1, Y + 0.5), "Unknown label type"),
        (np.where(Y < 0, -1, np.inf), "infinity"),
        (["heron", 3] + [None] * (len(Y) - 2), "all strings or all whole numbers"),
        (Y[:-1], "inconsistent numbers of samples"),
        (np.stack([Y, Y], axis=1), "1d array"),
    ],
)
def test_labels_that_cannot_be_used(y, text):
    with pytest.raises(ValueError, match=text):
        quick().fit(X, y)


# Parameters


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_classes": 1}, "n_classes 1 is too few: 2 classes are known"),
        ({"n_classes": 0}, "n_classes 0 is too few"),
        ({"n_classes": 100}, "n_classes 100 is too many: there are only 80 samples"),
        ({"n_classes": 4.0}, "n_classes must be int or None; found 4.0"),
        ({"method": "magic"}, "there is no method 'magic'; there are: sdas, simgcd, gcd, kmeans"),
        ({"method": None}, "method must be str; found None"),
        ({"epochs": "3"}, "epochs must be int or None; found '3'"),
        ({"epochs": 0}, "epochs must be at least 1; found 0"),
        ({"learning_rate": -0.1}, "learning_rate must be a number above 0; found -0.1"),
        ({"device": "abacus"}, "device abacus cannot be used here"),
        ({"settings": {"beta": 2}}, "beta must be between 0 and 1; found 2"),
        ({"settings": {"image_size": 96, "seed": 1}}, "settings has image_size, seed: not a training setting"),
        ({"settings": {"epochs": 2}}, "settings has epochs: .* a parameter of its own"),
        ({"random_state": "zero"}, "cannot be used to seed"),
        ({"learning_rate": 1e30}, r"^learning_rate 1e\+30 is probably too high: training diverged .* a lower one\.$"),
    ],
)
def test_parameters_that_make_no_sense(parameters, text):
    with pytest.raises(ValueError, match=text) as error:
        quick(**parameters).fit(X, Y)
    assert "--" not in str(error.value)


@pytest.mark.parametrize("shape", [(80,), (80, 2, 2, 2), (80, 0, 8), (1, 8)])
def test_shapes_that_cannot_be_used(shape):
    with pytest.raises(ValueError, match=r"shape|2D array|1 sample"):
        quick().fit(np.ones(shape))


def test_numbers_too_large_for_training():
    with pytest.raises(ValueError, match="too large for dtype"), np.errstate(over="ignore", invalid="ignore"):
        quick().fit(X * 1e39, Y)


def test_defaults_are_those_of_a_run():
    defaults = CategoryDiscovery().get_params()
    for name in ("method", "epochs", "batch_size", "learning_rate", "rho", "preset", "whitening", "device"):
        assert defaults[name] == getattr(Settings(), name)


def test_settings_reach_the_training():
    assert len(quick(settings={"strategy": "without-pretrain", "warmup_epochs": 1}).fit(X, Y).anchors_) > 0
    cool = quick(settings={"temperature": 0.01}, method="kmeans").fit(X, Y).predict_proba(X)
    assert cool.max(axis=1).mean() > quick(method="kmeans").fit(X, Y).predict_proba(X).max(axis=1).mean()


def test_labels_are_balanced_as_asked():
    few = np.where((Y == 0) & (np.arange(len(Y)) > 0), -1, Y)  # class 0 has one label
    plain, balanced = (quick(settings={"label_balance": b}).fit(X, few).predict_proba(X) for b in (0, 1))
    assert not np.array_equal(plain, balanced)
    with pytest.raises(ValueError, match=r"^label_balance must be between 0 and 1; found 2$"):
        quick(settings={"label_balance": 2}).fit(X, few)


@pytest.mark.parametrize(
    ("method", "settings", "text"),
    [
        ("orca", {"label_balance": 1}, r"^label_balance 1 has no effect with orca, which draws all images with equal"),
        ("kmeans", {"label_balance": 1}, r"^label_balance 1 has no effect with kmeans, which trains nothing$"),
        ("kmeans", {"projector_width": 64}, r"^projector_width 64 has no effect with kmeans, which trains nothing$"),
        ("hdbscan", {"momentum": 0.8}, r"^momentum 0.8 has no effect with hdbscan, which trains nothing$"),
        ("kmeans", {"bank_views": 4}, r"^settings has bank_views: not a training setting"),
        ("sdas", {"stage1": "run", "oracle_clean_anchors": True}, r"^settings has oracle_clean_anchors, stage1: not"),
    ],
)
def test_settings_without_effect_are_refused_and_parameters_ignored(method, settings, text):
    with pytest.raises(ValueError, match=text):
        quick(method=method, settings=settings).fit(X, Y)
    if method != "sdas":
        quick(method=method, epochs=1, learning_rate=0.1, rho=0.05).fit(X, Y)


def test_features_are_whitened_as_asked():
    plain, half = (quick(method="kmeans", whitening=how).fit(X, Y) for how in ("none", 0.5))
    assert (plain.whitening_, half.whitening_.shrinkage) == (None, 0.5)
    assert not np.allclose(plain.transform(X), half.transform(X), atol=0.01)
    assert np.array_equal(half.predict(X), half.labels_)
    assert np.array_equal(pickle.loads(pickle.dumps(half)).predict_proba(X), half.predict_proba(X))
    assert np.array_equal(quick(whitening=1).fit(X, Y).predict_proba(X), quick().fit(X, Y).predict_proba(X))


def test_whitening_is_decided_by_the_labels_where_the_method_clusters():
    for method, trials in (("kmeans", ()), ("simgcd", None)):  # too few known classes; not asked for
        found = quick(method=method).fit(X, Y).whitening_
        assert (None if found is None else found.accuracy) == trials


def test_whitening_does_not_change_the_count():
    counts = [quick(n_classes=None, method="kmeans", whitening=how).fit(X, Y).class_count_ for how in ("none", 0.1)]
    assert counts[0] == counts[1]


def test_whitening_that_cannot_be_is_a_value_error():
    with pytest.raises(ValueError, match=r"^whitening must be auto, none, or a number between 0 and 1; found 2$"):
        quick(whitening=2).fit(X, Y)
    with pytest.raises(ValueError, match=r"^whitening must be one of 'auto', 'none' or float or None; found 'some'$"):
        quick(whitening="some").fit(X, Y)
    with pytest.raises(ValueError, match=r"^whitening 0.5 has no effect: no two labelled views of a class differ$"):
        quick(whitening=0.5).fit(X)


# Predictions


def test_probabilities_belong_to_the_classes(fitted):
    probabilities = fitted.predict_proba(X)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], fitted.labels_)


def test_features_are_of_length_one(fitted):
    assert np.allclose(np.linalg.norm(fitted.transform(X), axis=1), 1)
    assert fitted.transform(X.astype(np.float32)).dtype == np.float32
    assert fitted.get_feature_names_out().tolist()[:2] == ["categorydiscovery0", "categorydiscovery1"]


def test_how_many_are_predicted_at_once_does_not_matter(fitted, monkeypatch):
    whole = fitted.predict_proba(X)
    monkeypatch.setattr("newfound.estimator_model.CHUNK", 7)
    assert np.allclose(fitted.predict_proba(X), whole, rtol=1e-12)


def test_a_copy_from_a_file_says_the_same(fitted):
    content = pickle.dumps(fitted)
    assert len(content) < 200_000  # what only training needs is not in it
    assert np.array_equal(pickle.loads(content).predict_proba(X), fitted.predict_proba(X))


def test_unsigned_labels():
    """They have no -1 to count on from."""
    model = quick().fit(X, [np.uint8(k + 1) if k >= 0 else None for k in Y])
    assert model.classes_.tolist() == [1, 2, 3, 4]
    assert model.is_new_.tolist() == [False, False, True, True]


def test_score_counts_labelled_samples_alone(fitted):
    wrong = np.where(np.arange(len(Y)) < 10, 1 - Y, Y)[Y >= 0]
    assert fitted.score(X, Y) == 1
    assert fitted.score(X[Y >= 0], wrong) == 0.75
    with pytest.raises(ValueError, match="nothing to score"):
        fitted.score(X, np.full(len(X), -1))


def test_an_unfitted_one_says_so():
    with pytest.raises(NotFittedError):
        quick().predict(X)


# Manners


def test_the_same_random_state_gives_the_same(fitted):
    assert np.array_equal(quick().fit(X, Y).predict_proba(X), fitted.predict_proba(X))
    assert not np.array_equal(quick(random_state=1).fit(X, Y).predict_proba(X), fitted.predict_proba(X))
    state = np.random.RandomState(0)
    assert np.array_equal(quick(random_state=state).fit(X, Y).predict_proba(X), fitted.predict_proba(X))


def test_no_trace_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before, rows = torch.get_rng_state(), X.copy()
    quick().fit(rows, Y)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(rows, X)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out == ""


def test_verbose_shows_progress(capsys):
    quick(verbose=True).fit(X, Y)
    assert "training 4/4" in capsys.readouterr().out


def test_clone_pipeline_and_search(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    assert is_classifier(fitted)
    pipeline = make_pipeline(StandardScaler(), quick(method="kmeans", n_classes=None))
    grid = {"categorydiscovery__n_classes": np.arange(3, 5), "categorydiscovery__method": ["kmeans", "simgcd"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, Y)
    assert search.best_score_ > 0.9
    assert np.array_equal(search.predict(X), search.best_estimator_[-1].labels_)


def test_it_is_there_to_import():
    assert newfound.CategoryDiscovery is CategoryDiscovery


def test_errors_speak_of_parameters_and_no_message_is_rewritten():
    """The same mistake, as the command line and as the estimator say it."""
    error = SettingError("learning_rate", 0.0, "a number above 0", "{name} must be {what}; found {value}")
    with for_the_command_line():
        assert str(error) == "--learning-rate must be a number above 0; found 0.0"
    with pytest.raises(ValueError, match=r"^learning_rate must be a number above 0; found 0\.0$"):
        quick(learning_rate=0.0).fit(X, Y)
    imported = {alias.name for module in (estimator, estimator_model, estimator_settings)
                for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
                if isinstance(node, ast.Import) for alias in node.names}  # fmt: skip
    assert "warnings" in imported
    assert "re" not in imported


def test_none_of_these(fitted):
    """Samples unlike all that were fitted, far from every group, are refused; others keep their class."""
    unlike = -X[:20].mean(axis=0) * np.ones((3, 1))
    assert (fitted.likeness(unlike) < 0.01).all()
    assert fitted.predict(unlike, refused=0.01).tolist() == [-1] * 3
    assert (fitted.predict(unlike) >= 0).all()  # unless it is asked for
    usual = fitted.predict(X, refused=0.01)
    assert (usual == -1).mean() < 0.05
    assert np.array_equal(usual[usual != -1], fitted.labels_[usual != -1])


def test_none_of_these_among_strings():
    model = quick().fit(X, named(None))
    answers = model.predict(np.concatenate([X[:5], -X.mean(axis=0, keepdims=True) * 50]), refused=0.01)
    assert answers.dtype.kind == "U"
    assert set(answers[answers != "none of these"]) <= set(model.classes_)


@pytest.mark.parametrize("refused", [-0.1, 1, float("nan")])
def test_a_share_that_cannot_be_refused(fitted, refused):
    with pytest.raises(ValueError, match="refused must be at least 0 and below 1"):
        fitted.predict(X, refused=refused)


def test_labels_without_a_minus_one():
    none = np.array([True, False])
    assert with_none_of_these(np.array([3, 7], dtype=np.uint8), none).tolist() == [-1, 7]
    assert with_none_of_these(np.array([3, 2**64 - 1], dtype=np.uint64), none).tolist() == [-1, 2**64 - 1]
    assert with_none_of_these(np.array([False, True]), none).tolist() == [-1, 1]
    assert with_none_of_these(np.array([3.0, 7.0]), none).tolist() == [-1.0, 7.0]


# The page


def blocks_of(section):
    """The Python in one section of docs/estimator.md."""
    page = (Path(__file__).parent.parent / "docs" / "estimator.md").read_text("utf-8")
    return re.findall(r"^```python\n(.+?)^```$", page.split(f"\n## {section}\n")[1].split("\n## ")[0], re.M | re.S)


def test_the_page_on_none_of_these(fitted, monkeypatch, capsys):
    """Its last block has an example of its own, here of one epoch."""
    used, example = blocks_of("None of these")
    exec(used, {"model": fitted, "X_new": X})
    monkeypatch.setattr(
        newfound, "CategoryDiscovery", lambda *args, **rest: quick(**{**rest, "n_classes": 8, "epochs": 1})
    )
    exec(example, {})
    mistaken, unseen, shuffled = map(float, capsys.readouterr().out.split())
    assert mistaken < unseen <= shuffled


def test_the_page_on_scoring(fitted):
    names = {"model": quick(method="kmeans"), "X": X, "y": Y}
    for block in blocks_of("Scoring, and what -1 does to it"):
        exec(block, names)
    scores = {
        scoring: cross_val_score(names["model"], X, Y, cv=3, scoring=scoring).mean()
        for scoring in (None, names["balanced_on_labelled"], "accuracy")
    }
    own, balanced, misled = scores.values()
    assert own > 0.9
    assert balanced > 0.9
    assert misled < 0.5  # as the page says: each unlabelled sample is a mistake
