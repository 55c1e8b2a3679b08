import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.training.classifiers import (
    CLASSIFIERS,
    BatchNorm,
    LinearClassifier,
    PrototypeHead,
    SplitClassifier,
    at_least_single,
)
from newfound.training.heads import CosineClassifier, only
from newfound.training.nearest_centre import NearestCentre


def made(kind, n_classes=5, dim=4):
    """A classifier of this kind, of which the first two classes are known."""
    torch.manual_seed(0)
    classifier = {
        "cosine": lambda: CosineClassifier(dim, n_classes),
        "nearest centre": lambda: NearestCentre(torch.randn(n_classes, dim)),
        "linear": lambda: LinearClassifier(dim, n_classes),
        "split": lambda: SplitClassifier(CosineClassifier(dim, 2), PrototypeHead(dim, n_classes - 2, 8, 3)),
    }[kind]()
    for name, buffer in classifier.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return classifier


every_kind = pytest.mark.parametrize("kind", CLASSIFIERS)
features = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


@every_kind
def test_some_classes_alone_have_the_logits_they_had(kind):
    classifier, kept = made(kind), torch.tensor([0, 1, 3, 4])
    fewer = only(classifier, kept)
    assert type(fewer) is type(classifier)
    assert (classifier.n_classes, fewer.n_classes) == (5, 4)
    torch.testing.assert_close(fewer(features), classifier(features)[:, kept])
    if kind == "split":
        assert (fewer.known.n_classes, fewer.new.prototypes.n_classes) == (2, 2)
    before = fewer(features)
    for tensor in classifier.state_dict().values():
        tensor.zero_()
    assert torch.equal(fewer(features), before)  # a copy


@every_kind
def test_all_that_one_is_lies_in_its_tensors(kind):
    classifier, state = made(kind), torch.random.get_rng_state()
    again = CLASSIFIERS[kind].holding(classifier.state_dict())
    assert again.kind == kind
    assert torch.equal(again(features), classifier(features))
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing is drawn


@every_kind
def test_tensors_that_do_not_fit_each_other_are_refused(kind):
    tensors = made(kind).state_dict()
    with pytest.raises(KeyError):
        CLASSIFIERS[kind].holding({})
    with pytest.raises(RuntimeError, match="nobody"):
        CLASSIFIERS[kind].holding({**tensors, "nobody": torch.zeros(1)})


def test_a_linear_classifier_is_linear_and_starts_as_torch_does():
    classifier = made("linear")
    torch.manual_seed(0)
    layer = nn.Linear(4, 5)
    assert torch.equal(classifier.weight, layer.weight)
    assert torch.equal(classifier(features), layer(features))


def test_a_split_classifier_normalises_its_rows_and_ignores_the_mode():
    classifier = made("split")
    logits = classifier(features)
    assert logits.abs().max() <= 1 + 1e-6
    with torch.no_grad():
        classifier.known.weight.mul_(3.0)
        classifier.new.prototypes.weight.mul_(0.2)
    torch.testing.assert_close(classifier.train()(features), logits)
    torch.testing.assert_close(classifier.eval()(features), logits)
    torch.testing.assert_close(classifier(features[:1]), logits[:1])  # not normalised by batch


def mean_of_views(rows):
    return rows.view(2, len(rows) // 2, -1).mean(dim=1)


def test_batch_normalisation_is_torchs_one_view_at_a_time():
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(14, 5, generator=random, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(14, 5, generator=random, dtype=torch.float64)
    ours, theirs = BatchNorm(5).double(), nn.BatchNorm1d(5).double()
    for norm in (ours, theirs):
        gain, shift = norm.parameters()
        nn.init.uniform_(gain, 0.5, 2.0, generator=torch.Generator().manual_seed(1))
        nn.init.uniform_(shift, -1.0, 1.0, generator=torch.Generator().manual_seed(2))
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    normalised, moments = ours.of_views(rows, mean_of_views)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    assert not moments.requires_grad
    expected = torch.cat([theirs(view) for view in rows.chunk(2)])
    torch.testing.assert_close(normalised, expected)
    for a, b in zip(
        torch.autograd.grad((normalised * upstream).sum(), [rows, *ours.parameters()]),
        torch.autograd.grad((expected * upstream).sum(), [rows, *theirs.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    ours.follow(moments, images=7)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_variance, theirs.running_var)
    torch.testing.assert_close(ours(rows), theirs.eval()(rows))


def test_a_batch_of_one_image_gives_finite_statistics():
    norm = BatchNorm(3)
    normalised, moments = norm.of_views(torch.randn(2, 3), mean_of_views)
    norm.follow(moments, images=1)
    assert not normalised.any()  # each row is its own mean
    assert norm.running_variance.isfinite().all()


def test_half_precision_becomes_single_and_double_stays():
    for given, expected in ((torch.float16, torch.float32), (torch.bfloat16, torch.float32),
                            (torch.float32, torch.float32), (torch.float64, torch.float64)):  # fmt: skip
        assert at_least_single(torch.zeros(1, dtype=given)).dtype == expected


def test_a_head_is_an_mlp_and_cosines():
    head = made("split").new
    by_hand = F.relu(head.norm(head.hidden(features)))
    by_hand = F.normalize(head.out(by_hand), dim=1) @ F.normalize(head.prototypes.weight, dim=1).T
    torch.testing.assert_close(head(features), by_hand)
    assert [tuple(p.shape) for p in PrototypeHead(10, 3).parameters() if p.ndim > 1] == [
        (2048, 10),
        (256, 2048),
        (3, 256),
    ]
