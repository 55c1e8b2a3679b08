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
