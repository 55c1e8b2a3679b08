"""What newfound is made of: every package pinned, none from anywhere but an index, no code run out of data."""

import ast
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted((ROOT / "src" / "newfound").rglob("*.py"))
OF_A_GPU = re.compile(r"nvidia-|cuda-|triton")  # what builds of torch for GPUs bring along


def pins() -> dict[str, str]:
    """Name to version of constraints.txt, of which every line must be name==version and nothing else."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)", line)
        assert match, f"constraints.txt: {line!r} is not name==version"
        name = canonicalize_name(match[1])
        assert name not in found, f"constraints.txt: {name} twice"
        found[name] = match[2]
    return found


def declared() -> list[Requirement]:
    """Of pyproject.toml, all extras included, and of the build."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    extras = [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in (*PROJECT["dependencies"], *extras, *build)]


def installed() -> tuple[dict[str, str], list[tuple[str, Requirement]]]:
    """What is needed here, from newfound on down: versions by name, and each requirement with who has it."""
    own = [*PROJECT["dependencies"], *(text for texts in PROJECT["optional-dependencies"].values() for text in texts)]
    waiting = [("newfound", Requirement(text), "") for text in own]
    versions, asked, seen = {}, [], set()
    while waiting:
        who, requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (
            name == "newfound"
            or OF_A_GPU.match(name)
            or (requirement.marker and not requirement.marker.evaluate({"extra": extra}))
        ):
            continue
        asked.append((who, requirement))
        for wanted in {"", *requirement.extras}:
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            try:
                found = distribution(name)
            except PackageNotFoundError:
                pytest.skip(f"{name}, which {who} needs, is not installed: install newfound[dev]")
            versions[name] = found.version
            waiting += [(name, Requirement(text), wanted) for text in found.requires or ()]
    return versions, asked


def test_every_package_is_pinned():
    versions, _ = installed()
    assert len(versions) > 60
    assert sorted(versions.keys() - pins().keys()) == []


def test_nothing_is_pinned_that_nothing_needs():
    """Such a line would be a package that nobody looks at."""
    versions, _ = installed()
    elsewhere = {"colorama"}  # of other Pythons and systems
    assert sorted(pins().keys() - versions.keys() - elsewhere) == []


def test_what_is_installed_is_what_is_pinned():
    versions, _ = installed()
    pinned = pins()
    other = {name: (version, pinned[name]) for name, version in versions.items() if public(version) != pinned[name]}
    if len(other) > len(versions) // 4:
        pytest.skip(f"not installed with -c constraints.txt: {len(other)} of {len(versions)} packages differ")
    assert other == {}


def public(version: str) -> str:
    """Without the build: 2.13.0+cpu is 2.13.0."""
    return version.split("+", maxsplit=1)[0]


def test_no_package_comes_from_an_address():
    """Only from an index: no git, no URL, of ours or of what we need."""
    for requirement in declared():
        assert requirement.url is None, requirement
    for who, requirement in installed()[1]:
        assert requirement.url is None, f"{who}: {requirement}"
    for text in ("constraints.txt", "Makefile", "pyproject.toml"):
        assert not re.search(r"git\+|--(extra-)?index-url|--trusted-host|--find-links", (ROOT / text).read_text()), text


FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "pickle.Unpickler", "cPickle.load",
    "marshal.load", "marshal.loads", "shelve.open", "dill.load", "dill.loads", "cloudpickle.load", "cloudpickle.loads",
    "joblib.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen", "torch.hub.load",
    "torch.jit.load", "tempfile.mktemp", "zipfile.main",
}  # fmt: skip
ONLY_WITH = {"torch.load": ("weights_only", True)}
NEVER_WITH = {"shell": True, "allow_pickle": True, "weights_only": False, "trust_remote_code": True}


def complaints(source: str) -> list[str]:
    """Calls that would run what is in a file, or what a shell makes of a name."""
    tree = ast.parse(source)
    full: dict[str, str] = {}  # what a name was imported as
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = []
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        start, _, rest = ast.unparse(node.func).partition(".")
        name = f"{full.get(start, start)}.{rest}" if rest else full.get(start, start)
        given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        computed = {word.arg for word in node.keywords} - given.keys()
        bad = [word for word, value in NEVER_WITH.items() if given.get(word) == value or word in computed]
        if name in FORBIDDEN or bad:
            found.append(f"line {node.lineno}: {name}({', '.join(bad)})")
        if name in ONLY_WITH and given.get(ONLY_WITH[name][0]) is not ONLY_WITH[name][1]:
            found.append(f"line {node.lineno}: {name} without {ONLY_WITH[name][0]}={ONLY_WITH[name][1]}")
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import pickle as p\np.load(f)", 1), ("from pickle import loads\nloads(b)", 1),
        ("import torch\ntorch.load(f)", 1), ("import os\nos.system(c)", 1),
        ("import torch\ntorch.load(f, weights_only=False)", 2), ("import torch\ntorch.load(f, weights_only=True)", 0),
        ("from torch import load as l\nl(f)", 1), ("eval('1')", 1), ("model.eval()", 0), ("re.compile('x')", 0),
        ("import numpy as np\nnp.load(f, allow_pickle=True)", 1), ("import numpy as np\nnp.load(f)", 0),
        ("import subprocess\nsubprocess.run(c, shell=True)", 1), ("import subprocess\nsubprocess.run(c, shell=x)", 1),
        ("import yaml\nyaml.load(f)", 1), ("import yaml\nyaml.safe_load(f)", 0), ("import torch\ntorch.compile(m)", 0),
    ],
)  # fmt: skip
def test_the_search_finds_what_it_is_for(source, count):
    assert len(complaints(source)) == count


def test_no_code_is_run_out_of_data():
    assert len(SOURCES) > 60
    found = {str(path.relative_to(ROOT)): complaints(path.read_text("utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}
