"""The same discovery as a scikit-learn estimator, over embeddings of anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from newfound import fitting
from newfound.backbones.adapter import AdapterTail
from newfound.estimator_labels import encoded, new_labels, with_none_of_these
from newfound.estimator_model import FittedModel, warn_of_empty
from newfound.estimator_settings import settings_of, value_errors
from newfound.fitting import Found
from newfound.runs.journal import MemoryJournal
from newfound.screen import Screen
from newfound.settings import DataFacts
from newfound.sources.vectors import Embeddings
from newfound.training.task import Pretrained


class CategoryDiscovery(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sort samples into known classes and newly found ones, given labels for some of them.

    A semi-supervised classifier that may predict a class that no label names. Parameters that have no effect with a
    method (such as ``epochs`` for "kmeans") are ignored.

    Parameters
    ----------
    n_classes : int, default=None
        Total number of classes, known and new. None: estimated. "hdbscan" finds its own number.
    method : str, default="sdas"
        The name of a method: "sdas" trains twice; "kmeans" trains nothing. ``newfound methods`` lists them all.
    epochs : int, default=None
        Passes over the samples, in each training. None: 60 on a CPU, 200 on a GPU.
    batch_size : int, default=None
        Samples per step. None: the method's, usually 128.
    learning_rate : float, default=None
        Highest learning rate, from which it falls as the method says. None: the method's, usually 0.1.
    rho : float, default=None
        Radius of the sharpness penalty. 0 turns it off and halves the time. None: 0.05 for "sdas", 0 for the others.
    preset : {"generic", "fine-grained", ...}, default=None
        Values of the method for a kind of data. None: by the number of samples per class.
    whitening : {"auto", "none"} or float, default=None
        Let directions in which samples of a known class differ count less: "auto" as far as it helps to group samples
        whose labels a check hides, a number as the shrinkage. None: "auto" for "kmeans", "hdbscan", "gcd", else "none".
    settings : dict, default=None
        Any other training setting of `newfound.Settings` or of the method by its name, such as ``{"beta": 0.5}``.
    device : str, default="auto"
        Where to train: "cpu", "cuda", "mps"; "auto" uses a GPU if there is one. Predictions are made on the CPU.
    verbose : bool, default=False
        Print progress and messages.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same result each time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Known classes in sorted order, then new ones: integers after the largest known one, or "new-1", "new-2", ...
        A new class that no unlabelled sample was put into is left out.
    is_new_ : ndarray of bool of shape (n_classes,)
        Which of ``classes_`` are new.
    labels_ : ndarray of shape (n_samples,)
        Class of each training sample, as ``predict`` returns it: a labelled sample may be in another class. With
        "hdbscan", its cluster, or -1 or "none of these" for a sample in no cluster; ``predict`` always returns the
        nearest class.
    anchors_ : ndarray of int of shape (n_anchors,)
        Unlabelled training samples that served as pseudo-labels in the last epoch, such as the anchors of "sdas".
    class_count_ : `newfound.class_count.ClassCount` or None
        How the number of classes was estimated, with a range; None if it was given.
    whitening_ : `newfound.whitening_check.WhiteningCheck` or None
        Whether features are whitened, how much, and why; None if that was not asked for.
    n_iter_ : int
        Epochs trained, in both trainings if there are two.
    model_ : `newfound.training.learner.Predictor`
        What predicts: tail and classifier, in double precision on the CPU.
    n_features_in_ : int
        Length of an embedding.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Where X had them.

    Examples
    --------
    >>> import numpy as np
    >>> from newfound import CategoryDiscovery
    >>> X = np.eye(4).repeat(10, axis=0) + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
    >>> y = ["cat"] * 5 + [None] * 5 + ["dog"] * 5 + [None] * 25
    >>> found = CategoryDiscovery(n_classes=4, epochs=2, random_state=0).fit(X, y)
    >>> found.classes_.tolist(), found.is_new_.tolist()
    (['cat', 'dog', 'new-1', 'new-2'], [False, False, True, True])
    >>> found.predict(np.eye(4)[:2]).tolist()
    ['cat', 'dog']
    """

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        method: str = "sdas",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        rho: float | None = None,
        preset: str | None = None,
        whitening: str | float | None = None,
        settings: dict[str, Any] | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_classes = n_classes
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.rho = rho
        self.preset = preset
        self.whitening = whitening
        self.settings = settings
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> CategoryDiscovery:
        """Learn from labelled and unlabelled samples together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_views, n_features)
            Embeddings. Of several views, the first is the one to predict from and the others are trained on. A single
            one serves for both.
        y : array-like of shape (n_samples,), default=None
            Labels: whole numbers, or strings. -1, None, NaN and an empty string mean unlabelled. Without y nothing is
            labelled.

        Returns
        -------
        self
        """
        rows = self._validated(X, reset=True, ensure_min_samples=2)
        targets, known = encoded(np.full(len(rows), -1) if y is None else y)
        check_consistent_length(rows, targets)
        with np.errstate(over="ignore"):  # what is too large is an error
            source = Embeddings(check_array(rows, dtype=np.float32, allow_nd=True, copy=True, input_name="X"))
        screen, journal = Screen(quiet=not self.verbose), MemoryJournal()
        with value_errors():
            pretrained = Pretrained(source, lambda: AdapterTail(self.n_features_in_), self.n_features_in_)
            labelled = int((targets >= 0).sum())
            facts = DataFacts(len(rows), len(known), labelled, len(known), classes=0, noun="samples")
            settings, facts, self.class_count_ = fitting.with_count(
                settings_of(self.get_params(), self.n_features_in_), facts, lambda: pretrained, targets, screen
            )
            settings = fitting.decided(settings, facts, screen)
            unlabelled = targets < 0  # scikit-learn asks that one label, on every sample, is what is predicted
            found = fitting.fit(settings, facts, pretrained, targets, journal, screen, counted=unlabelled)

        self.n_iter_, self.whitening_ = len(journal.entries), found.whitening
        self.anchors_ = np.flatnonzero(found.is_anchor)
        self._keep(found, rows, known, targets)
        if self.n_classes is not None and found.empty:
            warn_of_empty(found.empty, facts.classes)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> NDArray[Any]:
        """Fit, and return ``labels_``: the class of each training sample."""
        labels: NDArray[Any] = self.fit(X, y).labels_
        return labels

    def predict(self, X: ArrayLike, *, refused: float = 0.0) -> NDArray[Any]:
        """Class of each sample, known or new; of several views, the first counts.

        With ``refused`` above 0, samples of which the ``likeness`` is below it are none of these classes: -1, or
        "none of these" where labels are strings. About that share of samples like the labelled ones is refused, too.
        """
        if not 0 <= refused < 1:
            raise ValueError(f"refused must be at least 0 and below 1; found {refused!r}")
        probabilities = self.predict_proba(X)
        found = np.asarray(self.classes_[probabilities.argmax(axis=1)])
        return with_none_of_these(found, self.likeness(X) < refused) if refused else found

    def likeness(self, X: ArrayLike) -> NDArray[np.float64]:
        """How much each sample is like those that were fitted: the share of labelled samples that were at least as far
        from all others as this one is from the nearest. Near 0: unlike all of them."""
        check_is_fitted(self)
        return self._fitted.likeness(self._validated(X, reset=False))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class, a column for each of ``classes_``."""
        check_is_fitted(self)
        return self._fitted.predicted(self._validated(X, reset=False))[1].numpy()

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Trained features, as long as the embeddings and each of length 1: samples of a class point the same way."""
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        return F.normalize(self._fitted.predicted(rows)[0], dim=1).numpy().astype(rows.dtype)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of the labelled samples that are given their own label; unlabelled ones do not count.

        So cross-validation can compare settings by the known classes. Where all true classes are known, new ones
        included, `newfound.evaluate.cluster_accuracy` first matches them with those that were found.
        """
        targets, known = encoded(y)
        labelled = targets >= 0
        if not labelled.any():
            raise ValueError("y has no labelled sample, so there is nothing to score")
        weights = None if sample_weight is None else np.asarray(sample_weight)[labelled]
        predicted = self.predict(X)
        check_consistent_length(predicted, targets)
        return float(accuracy_score(known[targets[labelled]], predicted[labelled], sample_weight=weights))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.classifier_tags.poor_score = True  # in two dimensions: a class amid others has no direction of its own
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_)

    def _validated(self, X: ArrayLike, *, reset: bool, **checks: Any) -> NDArray[np.floating]:
        """Finite numbers, n×d or n×views×d; what an embedding has to look like is remembered, or compared."""
        rows = check_array(X, dtype=(np.float64, np.float32), allow_nd=True, estimator=self, input_name="X", **checks)
        if rows.ndim > 3 or not rows.size:
            raise ValueError(f"X must be samples×features or samples×views×features; found shape {rows.shape}")
        validate_data(self, X if rows.ndim == 2 else rows[:, 0], reset=reset, skip_check_array=True)
        return np.asarray(rows)

    def _keep(self, found: Found, rows: NDArray[np.floating], known: NDArray[Any], targets: NDArray[np.int64]) -> None:
        """What predicts, what it predicts for the training samples, and what they are like."""
        predictor = found.predictor
        self.model_, self._fitted = predictor, FittedModel.of(predictor, rows, targets)
        new = new_labels(known, predictor.classifier.n_classes - len(known))
        self.classes_ = np.concatenate([known, new]) if len(new) else known
        self.is_new_ = np.arange(len(self.classes_)) >= len(known)
        _, probabilities = self._fitted.predicted(rows)
        self.labels_ = self.classes_[probabilities.argmax(dim=1).numpy()]
        if found.none is not None:  # clusters of the method's own, of which predict has the centres
            self.labels_ = with_none_of_these(self.classes_[found.prediction.classes.numpy()], found.none)
