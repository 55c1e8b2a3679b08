"""The data sets of the literature, split into known and new, labelled and unlabelled, exactly as published.

Nothing is downloaded: each reader takes the files in the form in which their owner distributes them, and checks
that the split that comes out is the published one.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path

from newfound.errors import UserError
from newfound.research.datasets.aircraft import load_aircraft
from newfound.research.datasets.benchmark import Benchmark
from newfound.research.datasets.cars import load_cars
from newfound.research.datasets.cifar import load_cifar10, load_cifar100
from newfound.research.datasets.cub import load_cub
from newfound.research.datasets.flowers import load_flowers
from newfound.research.datasets.folders import load_folder, load_herbarium, load_imagenet100

__all__ = ["DATASETS", "Benchmark", "load_benchmark"]

_READERS: dict[str, Callable[..., Benchmark]] = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "imagenet100": load_imagenet100,
    "cub": load_cub,
    "cars": load_cars,
    "aircraft": load_aircraft,
    "herbarium": load_herbarium,
    "flowers": load_flowers,
    "folder": load_folder,
}

DATASETS = tuple(_READERS)


def load_benchmark(name: str, root: Path, *, lists: Path | None = None) -> Benchmark:
    """Read one of `DATASETS` from `root` and split it as published; `UserError` if that split does not come out.

    `lists` is the folder of CUB's official lists, where they do not lie beside its images, or the JSON file with
    the known and the new classes of a `folder`.

    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ["cat/1.png", "cat/2.png", "yak/3.png"]:
    ...     (root / name).parent.mkdir(exist_ok=True)
    ...     Image.new("RGB", (8, 8)).save(root / name)
    >>> lists = Path(tempfile.mkdtemp()) / "classes.json"
    >>> _ = lists.write_text('{"known": ["cat"], "new": ["yak"]}')
    >>> benchmark = load_benchmark("folder", root, lists=lists)
    >>> benchmark.files, benchmark.targets().tolist(), benchmark.labels().tolist()
    (('cat/1.png', 'cat/2.png', 'yak/3.png'), [0, 0, 1], [-1, 0, -1])
    """
    if name not in _READERS:
        raise UserError(f"{name!r} is not a data set newfound can read; choose from {', '.join(DATASETS)}")
    root = Path(root)
    if not os.path.exists(root):
        raise UserError(f"{root}: there is no such file or folder; give the place of {name}")
    reader = _READERS[name]
    if "lists" in inspect.signature(reader).parameters:
        return reader(root, lists=None if lists is None else Path(lists))
    if lists is not None:
        raise UserError(f"{name} needs no --lists; leave {lists} out")
    return reader(root)
