import copy

import pytest
import torch

from newfound.backbones.adapter import FEATURE_NORM, AdapterTail


def test_the_tail_starts_as_the_standardised_input():
    features = torch.rand(200, 32) * 7 + 3  # non-negative and far from the origin, as pooled features are
    tail = AdapterTail(32)
    tail.fit_standardisation(features.split(30))
    out = tail(features)
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(32), atol=1e-4, rtol=0)
    assert out.square().sum(dim=1).mean().sqrt().item() == pytest.approx(FEATURE_NORM, rel=1e-4)
    one, two = features[:1] - features.mean(dim=0), out[:1]
    assert torch.nn.functional.cosine_similarity(one, two).item() == pytest.approx(1, abs=1e-5)  # one scale for all


def test_scale_and_place_of_the_embeddings_do_not_matter():
    features = torch.randn(50, 8)
    outputs = []
    for moved in (features, features * 1000 + 5):
        torch.manual_seed(0)
        tail = AdapterTail(8)
        tail.fit_standardisation([moved])
        outputs.append(tail(moved))
    torch.testing.assert_close(*outputs, atol=1e-3, rtol=1e-3)


def test_identical_embeddings_stay_finite():
    tail = AdapterTail(8)
    tail.fit_standardisation([torch.ones(5, 8)])
    assert tail(torch.ones(5, 8)).isfinite().all()


def test_statistics_are_saved_with_the_tail():
    tail, other = AdapterTail(8), AdapterTail(8)
    tail.fit_standardisation([torch.randn(20, 8)])
    other.load_state_dict(tail.state_dict())
    x = torch.randn(3, 8)
    assert torch.equal(tail(x), other(x))


def test_without_whitening_the_state_is_as_before_there_was_any():
    assert set(AdapterTail(8).state_dict()) == {"mean", "scale", "down.weight", "down.bias", "up.weight", "up.bias"}


def test_whitening_turns_the_standardised_input_and_travels_with_the_state():
    tail, plain, x = AdapterTail(8), AdapterTail(8), torch.randn(20, 8)
    tail.fit_standardisation([x])
    before = tail(x)
    matrix = torch.randn(8, 8)
    tail.load_state_dict({**tail.state_dict(), "whitening": matrix})
    torch.testing.assert_close(tail(x), before @ matrix)
    plain.load_state_dict(tail.state_dict())
    assert torch.equal(tail(x), plain(x))
    torch.testing.assert_close(copy.deepcopy(tail).double()(x.double()).float(), tail(x))


def test_a_state_of_another_kind_is_refused():
    with_one, tail = AdapterTail(8), AdapterTail(8)
    with_one.load_state_dict({**with_one.state_dict(), "whitening": torch.eye(8)})
    with pytest.raises(RuntimeError, match="whitening"):
        with_one.load_state_dict(tail.state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for whitening"):
        tail.load_state_dict({**tail.state_dict(), "whitening": torch.eye(7)})
