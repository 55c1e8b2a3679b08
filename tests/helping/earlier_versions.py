"""Runs as earlier versions wrote them: [settings] of config.toml held the settings of all methods."""

import json
import re
from pathlib import Path

TEXT = """\
[settings]
classes = 10
method = "{method}"
preset = "generic"
seed = 3
epochs = {epochs}
start = "clusters"
backbone = "efficientnet_lite0"
grad_from_block = 11
image_size = 128
views = "bank"
bank_views = 8
batch_size = 128
learning_rate = 0.1
momentum = 0.9
weight_decay = 5e-05
rho = {rho}
strategy = "dynamic"
selection = "das"
alpha = 1
beta = 0.8
k = 0.5
anchors_per_class = 100.0
oracle_clean_anchors = false
entropy_weight = 1.0
supervised_weight = 0.35
student_temperature = 0.2
teacher_temperature_start = 0.07
teacher_temperature = 0.04
warmup_epochs = {warmup_epochs}
info_nce_temperature = 1.0
sup_con_temperature = 0.07
device = "cpu"
precision = "float32"
compile = false

[data]
fingerprint = "b3eda0545515a9859be159e54de0baa3326d4c1407bf17fde7a631f70c08ea65"
folder = "demo/wardrobe"
images = 2000
labelled = 500
known_classes = 5

[backbone]
fingerprint = "91516307c8a76177ccd83612c47fb3f7031e6ebdedbf5c4ecea38ade2764e861"

[versions]
python = "3.11.7"
newfound = "0.1.0"
torch = "2.13.0+cpu"
"""
EARLIER = {
    "sdas": TEXT.format(method="sdas", epochs=5, rho=0.05, warmup_epochs=2),
    "simgcd": TEXT.format(method="simgcd", epochs=5, rho=0.0, warmup_epochs=2),
    "gcd": TEXT.format(method="gcd", epochs=5, rho=0.0, warmup_epochs=2),
    "kmeans": TEXT.format(method="kmeans", epochs=60, rho=0.0, warmup_epochs=30),
}


def make_earlier(run: Path, method: str) -> None:
    """Turn a run into what an earlier version would have left; its data stay as they are."""
    config = run / "config.toml"
    sections = re.split(r"(?m)^(?=\[data\])", config.read_text("utf-8"))[1]
    settings = re.split(r"(?m)^(?=\[data\])", EARLIER[method])[0]
    for name, value in (("classes", 4), ("image_size", 32), ("bank_views", 2), ("epochs", 1), ("warmup_epochs", 1)):
        settings = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", settings)
    config.write_text(settings + sections, "utf-8")
    model = run / "model.json"
    model.write_text(json.dumps({k: v for k, v in json.loads(model.read_text()).items() if k != "head"}))
    (run / "checkpoint" / "kept-kmeans.safetensors").unlink(missing_ok=True)
