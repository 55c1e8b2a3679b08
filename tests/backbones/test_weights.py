import argparse
import os
import pickle
import subprocess
import sys

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from newfound.backbones.weights import (
    fetch_from_hub,
    fingerprint,
    load_weights,
    read_state_dict,
    vit_state_from_file,
)
from newfound.errors import UserError

STATE = {"cls_token": torch.ones(1, 1, 4), "blocks.0.norm1.weight": torch.arange(4.0)}
HEAD = {"head.mlp.0.weight": torch.zeros(2, 4)}


def prefixed(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


def assert_same(state, expected=STATE):
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


class RunsCode:
    """Unpickling it would create the file `path`."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("suffix", [".pth", ".bin", ".pt"])
def test_reads_pytorch_files(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    torch.save(STATE, path)
    assert_same(read_state_dict(path))


def test_reads_safetensors_and_lets_the_file_go(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(STATE, path)
    state = read_state_dict(path)
    path.write_bytes(b"")  # a mapped file would take its tensors with it
    assert_same(state)


@pytest.mark.parametrize(
    "wrapped",
    [
        {"teacher": STATE, "student": {"other": torch.zeros(1)}},
        {"epoch": 3, "student": STATE, "model": {"other": torch.zeros(1)}},
        {"state_dict": STATE, "optimizer": {"state": {0: torch.zeros(1)}}},
        {"model": {"state_dict": STATE}},
        {"teacher": prefixed("backbone.", STATE) | HEAD, "args": argparse.Namespace(arch="vit_base")},
        {"student": prefixed("module.", prefixed("backbone.", STATE) | HEAD)},
        {"teacher": prefixed("backbone.", STATE) | prefixed("dino_", HEAD) | prefixed("ibot_", HEAD)},
        prefixed("module.", STATE),
        prefixed("encoder.", STATE),
        {**STATE, "epoch": 3, 7: torch.zeros(1)},
    ],
)
def test_checkpoints_are_unwrapped(tmp_path, wrapped):
    torch.save(wrapped, tmp_path / "checkpoint.pth")
    assert_same(read_state_dict(tmp_path / "checkpoint.pth"))


def test_a_head_or_prefix_that_belongs_to_the_network_is_kept(tmp_path):
    state = {**STATE, **HEAD, "encoder.weight": torch.zeros(1)}
    torch.save(state, tmp_path / "model.pth")
    assert_same(read_state_dict(tmp_path / "model.pth"), state)


def test_a_missing_file_is_named(tmp_path):
    for path in (tmp_path / "none.pth", tmp_path):
        with pytest.raises(UserError, match=f"no weights file at {path}"):
            read_state_dict(path)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>404 not found</html>" * 50, b"version https://git-lfs.github.com"])
def test_a_file_of_something_else_is_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is (empty|damaged or not a weights file).*Download it again"):
        read_state_dict(path)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_half_a_download_is_called_damaged(tmp_path, name):
    path = tmp_path / name
    (save_file if name.endswith("safetensors") else torch.save)({"w": torch.ones(5000)}, path)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(UserError, match=f"{name} is damaged"):
        read_state_dict(path)


@pytest.mark.parametrize("content", [torch.ones(3), [torch.ones(3)], {"epoch": 3}, {}])
def test_a_file_without_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"w\.pth holds no named tensors"):
        read_state_dict(tmp_path / "w.pth")


@pytest.mark.parametrize("protocol", [None, 2, 4])
def test_code_in_a_file_is_refused_and_not_run(tmp_path, protocol):
    path, made = tmp_path / "w.pth", tmp_path / "made"
    content = {"model": STATE, "extra": RunsCode(made)}
    if protocol is None:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, protocol))
    with pytest.raises(UserError, match=r"w\.pth was refused, because it contains code rather than only tensors"):
        read_state_dict(path)
    assert not made.exists()


def test_code_in_a_text_pickle_is_not_run_either(tmp_path):
    path, made = tmp_path / "w.pth", tmp_path / "made"
    path.write_bytes(pickle.dumps({"extra": RunsCode(made)}, 0))
    with pytest.raises(UserError, match=r"w\.pth is damaged or not a weights file"):
        read_state_dict(path)
    assert not made.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused(tmp_path):
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)).save(tmp_path / "w.pt")
    with pytest.raises(UserError, match="contains code"):
        read_state_dict(tmp_path / "w.pt")


def test_whole_modules_are_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "w.pth")
    with pytest.raises(UserError, match="save its state_dict alone"):
        read_state_dict(tmp_path / "w.pth")


def test_the_error_does_not_advise_to_switch_the_protection_off(tmp_path):
    for content in (b"<html>", pickle.dumps(RunsCode(tmp_path / "made"), 2)):
        (tmp_path / "w.pth").write_bytes(content)
        with pytest.raises(UserError) as caught:
            read_state_dict(tmp_path / "w.pth")
        assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_load_weights_copies_into_a_module_and_keeps_its_precision(dtype):
    module, state = nn.Linear(2, 3), nn.Linear(2, 3).to(dtype).state_dict()
    load_weights(module, state, source="here")
    assert module.weight.dtype == torch.float32
    torch.testing.assert_close(module.weight.detach(), state["weight"].float(), atol=0, rtol=0)
    state["weight"].zero_()
    assert module.weight.abs().sum() > 0


def test_load_weights_fills_a_module_on_the_meta_device():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    expected = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict()
    load_weights(module, expected, source="here")
    assert_same(module.state_dict(), expected)
    assert not any(p.requires_grad for p in module.parameters())


def test_a_mismatch_lists_what_is_wrong():
    state = {"weight": torch.zeros(5, 2), "extra": torch.zeros(1), "head.bias": torch.zeros(1)}
    with pytest.raises(UserError) as caught:
        load_weights(nn.Linear(2, 3), state, source="some.pth", ignore=("head.",), hint="Try another.")
    assert str(caught.value).splitlines() == [
        "The weights in some.pth do not fit this Linear.",
        "  missing: bias",
        "  unexpected: extra",
        "  of another shape: weight expected (3, 2) found (5, 2)",
        "Try another.",
    ]


def test_long_lists_are_cut():
    state = {f"w{i}": torch.zeros(1) for i in range(9)}
    with pytest.raises(UserError, match=r"unexpected: w0, w1, w2, w3, w4, w5 and 3 more"):
        load_weights(nn.Identity(), state, source="some.pth")


def test_registers_as_timm_stores_them_become_official(tmp_path):
    patches = torch.randn(1, 9, 4)
    state = {"reg_token": torch.ones(1, 2, 4), "cls_token": torch.ones(1, 1, 4), "pos_embed": patches}
    save_file(state, tmp_path / "timm.safetensors")
    official = vit_state_from_file(tmp_path / "timm.safetensors")
    assert official.keys() == {"register_tokens", "cls_token", "pos_embed"}
    assert torch.equal(official["pos_embed"][:, :1], torch.zeros(1, 1, 4))
    assert torch.equal(official["pos_embed"][:, 1:], patches)
    assert torch.equal(official["register_tokens"], torch.ones(1, 2, 4))


def test_official_weights_are_left_as_they_are(tmp_path):
    torch.save(STATE, tmp_path / "dino.pth")
    assert_same(vit_state_from_file(tmp_path / "dino.pth"))


def check_hub_error(caught):
    text = str(caught.value)
    assert "someone/model" in text
    assert "https://huggingface.co/someone/model/resolve/main/model.safetensors" in text
    assert "another machine" in text
    assert "weights='PATH'" in text


def test_offline_says_what_to_download(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError) as caught:
        fetch_from_hub("someone/model", "model.safetensors")
    check_hub_error(caught)


@pytest.mark.parametrize("error", [ConnectionError("no route\nto host"), TimeoutError(), RuntimeError("503")])
def test_any_failure_of_the_hub_says_what_to_download(monkeypatch, error):
    def fail(repo_id, filename):
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(UserError) as caught:
        fetch_from_hub("someone/model", "model.safetensors")
    check_hub_error(caught)
    assert "\n" not in str(caught.value)


def test_fetch_gives_the_path_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo_id, filename: str(tmp_path / filename))
    assert fetch_from_hub("someone/model", "model.safetensors") == tmp_path / "model.safetensors"


def test_fingerprint_sees_names_shapes_types_and_values():
    base = {"a": torch.arange(6.0), "b": torch.zeros(2)}
    variants = [
        base,
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"].view(2, 3), "b": base["b"]},
        {"a": base["a"].view(torch.int32), "b": base["b"]},
        {"a": base["a"] + 1e-6, "b": base["b"]},
        {"a": base["a"].bfloat16(), "b": base["b"]},
        {"a": base["a"], "b": torch.tensor(0)},
        {"a": base["a"], "b": torch.zeros(0)},
        {"a": base["a"]},
    ]
    assert len({fingerprint(state) for state in variants}) == len(variants)


def test_fingerprint_ignores_order_and_memory_layout():
    matrix = torch.arange(6.0).view(2, 3)
    one = {"a": matrix, "b": torch.ones(1)}
    other = {"b": torch.ones(1), "a": matrix.t().contiguous().t()}
    assert fingerprint(one) == fingerprint(other)


def test_fingerprint_of_a_module_includes_its_buffers():
    module = nn.BatchNorm1d(2)
    before = fingerprint(module)
    assert before == fingerprint(module.state_dict())
    module.running_mean += 1
    assert fingerprint(module) != before


def test_fingerprint_is_the_same_in_another_process():
    program = (
        "import torch; from newfound.backbones.weights import fingerprint;"
        "print(fingerprint({'b': torch.arange(4.0), 'a': torch.ones(2, dtype=torch.bfloat16)}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == fingerprint({"a": torch.ones(2, dtype=torch.bfloat16), "b": torch.arange(4.0)})
