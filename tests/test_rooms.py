"""The rooms of the house: imports only go up the list, and files stay short enough to be read."""

import ast
from collections.abc import Iterator
from pathlib import Path

import newfound

SOURCE = Path(newfound.__file__).parent
ROOMS = """
    errors text random_streams screen notebook_progress atomic distributed threads thread_waiting
    losses evaluate neighbours cluster_density anchors sharpness hessian semi_kmeans kmeans ward mean_shift sinkhorn
    count_criteria count_clusterings class_count hidden_labels
    nearest_rows flat_map dense_groups hdbscan whitening whitening_check consensus imitation
    settings
    images
    backbones
    sources
    training
    methods
    fitting
    runs
    report
    review
    finished
    discovery
    tuning
    estimator estimator_labels estimator_model estimator_settings export
    research
    app
    __init__ __main__
""".strip().splitlines()
ROOM_OF = {name: number for number, names in enumerate(ROOMS) for name in names.split()}
LONG = {  # one algorithm each, which would not read better in pieces
    "backbones/vit.py": "a vision transformer",
    "hessian.py": "eigenvalues, trace and density of a Hessian",
    "semi_kmeans.py": "semi-supervised k-means",
}


def files() -> dict[str, Path]:
    """All modules, by their place below the package."""
    return {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(place: str, path: Path) -> Iterator[tuple[int, str]]:
    """Line and name below newfound of each import of our own, also inside functions and for type checkers.

    The package's own __init__ imports on demand; there only what it imports at once counts.
    """
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body if place == "__init__.py" else ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "newfound" and len(parts) > 1:
                yield node.lineno, parts[1]


def test_every_module_is_in_a_room():
    assert {place.split("/")[0].removesuffix(".py") for place in files()} == ROOM_OF.keys()


def test_contributing_lists_every_room():
    listed = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8").split("```")[3]
    rooms = {name.rstrip("/") for line in listed.splitlines() for name in line.partition("  ")[0].split()}
    assert rooms - {""} == ROOM_OF.keys() - {"__init__", "__main__"}


def test_imports_go_up():
    wrong = [
        f"{place}:{line} imports newfound.{name}"
        for place, path in files().items()
        for line, name in imported(place, path)
        if ROOM_OF.get(name, ROOM_OF["__init__"]) > ROOM_OF[place.split("/")[0].removesuffix(".py")]
    ]
    assert wrong == []


def test_imports_are_seen():
    """Otherwise the test above could not fail."""
    found = {(place, name) for place, path in files().items() for _, name in imported(place, path)}
    assert ("discovery.py", "fitting") in found
    assert ("app/commands/discover.py", "discovery") in found  # inside a function
    assert ("methods/__init__.py", "training") in found  # for type checkers


def test_files_are_short():
    lengths = {place: len(path.read_text("utf-8").splitlines()) for place, path in files().items()}
    assert {place for place, length in lengths.items() if length > 300} == LONG.keys()
    assert lengths["discovery.py"] <= 150
    assert lengths["estimator.py"] <= 250
