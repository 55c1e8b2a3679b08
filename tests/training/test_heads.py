import numpy as np
import pytest
import torch

from newfound.training.heads import CosineClassifier, Projector, WideHead, parameter_groups


def head_from(data, dtype):
    """Our projector and classifier carrying the stored weights."""
    layers = int(data["nlayers"])
    feature_dim = data["features"].shape[1]
    out_dim = data["projection_f64"].shape[1]
    hidden = data["w/mlp.0.weight"].shape[0]
    projector = Projector(feature_dim, hidden, out_dim, layers).to(dtype)
    projector.load_state_dict(
        {k[len("w/mlp.") :]: torch.tensor(data[k], dtype=dtype) for k in data.files if k.startswith("w/mlp.")}
    )
    classifier = CosineClassifier(feature_dim, data["logits_f64"].shape[1]).to(dtype)
    classifier.load_state_dict({"weight": torch.tensor(data["w/last_layer.weight_v"], dtype=dtype)})
    return projector, classifier


@pytest.mark.parametrize("name", ["head_00.npz", "head_01.npz"])
@pytest.mark.parametrize(("dtype", "suffix", "atol"), [(torch.float64, "f64", 1e-10), (torch.float32, "f32", 1e-6)])
def test_outputs_match_the_released_head(golden, name, dtype, suffix, atol):
    data = np.load(golden / name, allow_pickle=False)
    projector, classifier = head_from(data, dtype)
    features = torch.tensor(data["features"], dtype=dtype)
    expected = data[f"projection_{suffix}"]
    largest = np.abs(expected).max()  # an output near 0 is a sum of numbers as large as the others', and as rounded
    np.testing.assert_allclose(projector(features).detach(), expected, atol=atol * largest, rtol=0)
    np.testing.assert_allclose(classifier(features).detach(), data[f"logits_{suffix}"], atol=atol, rtol=0)


@pytest.mark.parametrize("name", ["head_00.npz", "head_01.npz"])
def test_gradients_match_the_released_head(golden, name):
    data = np.load(golden / name, allow_pickle=False)
    projector, classifier = head_from(data, torch.float64)
    features = torch.tensor(data["features"], dtype=torch.float64, requires_grad=True)
    objective = (projector(features) * torch.tensor(data["cot_projection"])).sum()
    objective = objective + (classifier(features) * torch.tensor(data["cot_logits"])).sum()
    objective.backward()
    np.testing.assert_allclose(features.grad, data["grad_features"], atol=1e-10)
    np.testing.assert_allclose(classifier.weight.grad, data["grad/last_layer.weight_v"], atol=1e-10)
    for key, parameter in projector.named_parameters():
        np.testing.assert_allclose(parameter.grad, data[f"grad/mlp.{key}"], atol=1e-10)


@pytest.mark.parametrize("name", ["head_00.npz", "head_01.npz"])
def test_groups_match_the_released_ones(golden, name):
    data = np.load(golden / name, allow_pickle=False)
    projector, classifier = head_from(data, torch.float32)
    decayed, plain = parameter_groups(projector, classifier, weight_decay=5e-5)
    assert len(decayed["params"]) == len(data["group_decay"])
    assert decayed["weight_decay"] == 5e-5
    assert len(plain["params"]) == len(data["group_nodecay"])
    assert plain["weight_decay"] == 0.0


def test_frozen_parameters_are_left_out():
    classifier = CosineClassifier(4, 3)
    classifier.weight.requires_grad_(False)
    assert [group["params"] for group in parameter_groups(classifier, weight_decay=0.1)] == [[], []]


def test_initialisation_has_the_released_statistics(golden):
    data = np.load(golden / "head_init_stats.npz", allow_pickle=False)
    expected = dict(zip(data["columns"], data["stats"].mean(axis=0), strict=True))
    torch.manual_seed(0)
    projector, classifier = Projector(768), CosineClassifier(768, int(data["K"]))
    for layer in (0, 2, 4):
        assert projector[layer].weight.std().item() == pytest.approx(expected[f"std_l{layer}"], rel=0.01)
        assert projector[layer].bias.abs().max().item() == expected[f"bias_absmax_l{layer}"]
    assert classifier.weight.norm(dim=1).mean().item() == pytest.approx(expected["mean_row_norm_v"], rel=0.01)
    assert classifier.weight.abs().max().item() == pytest.approx(expected["absmax_v"], rel=0.01)
    trainable = sum(p.numel() for m in (projector, classifier) for p in m.parameters())
    assert trainable == expected["n_trainable"]


def test_logits_are_cosines_whatever_the_norms():
    classifier = CosineClassifier(5, 3)
    features = torch.randn(4, 5)
    logits = classifier(features)
    classifier.weight.data *= torch.tensor([[1.0], [10.0], [0.1]])
    torch.testing.assert_close(classifier(features * 7), logits)
    assert logits.abs().max() <= 1 + 1e-6


def test_wide_head_matches_the_released_one_in_value_and_gradient(golden):
    data = {k: torch.tensor(v) for k, v in np.load(golden / "peers" / "cms_head_00.npz", allow_pickle=False).items()}
    hidden, bottleneck = data["weight_0"].shape[0], data["weight_2"].shape[0]
    head = WideHead(data["features"].shape[1], data["embedding"].shape[1], hidden, bottleneck).double()
    weights = {"directions.weight": data["last_direction"]}
    for i in range(3):
        weights |= {f"projector.{2 * i}.weight": data[f"weight_{i}"], f"projector.{2 * i}.bias": data[f"bias_{i}"]}
    head.load_state_dict(weights)
    features = data["features"].requires_grad_()
    embedding = head(features)
    (embedding * data["upstream"]).sum().backward()
    np.testing.assert_allclose(embedding.detach(), data["embedding"], atol=1e-10, rtol=0)  # double precision throughout
    for ours, theirs in [
        (features.grad, "grad_features"),
        (head.directions.weight.grad, "grad_last_direction"),
        (head.projector[0].weight.grad, "grad_weight_0"),
    ]:
        np.testing.assert_allclose(ours, data[theirs], atol=1e-9, rtol=0)


def test_wide_head_starts_as_the_projector_and_the_classifier_do():
    torch.manual_seed(0)
    head = WideHead(64, 96)
    assert [tuple(p.shape) for p in head.parameters() if p.ndim > 1] == [
        (2048, 64),
        (2048, 2048),
        (256, 2048),
        (96, 256),
    ]
    assert head.projector[2].weight.std().item() == pytest.approx(0.02, rel=0.01)
    assert not any(layer.bias.any() for layer in head.projector if hasattr(layer, "bias"))
    assert head.directions.weight.abs().max().item() == pytest.approx(256**-0.5, rel=0.01)
