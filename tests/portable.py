"""The tests as if on other processors: fewer or other instructions, other numbers of threads.

Libraries choose their code when they load, by what the processor can do; environment variables make them choose as on a
processor that can do less. Each setting is checked to have taken effect before it counts.

`make test-portable` runs the numerical tests, `python tests/portable.py --all` all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
NUMERICAL = [
    "src", "tests/backbones", "tests/methods", "tests/report/test_findings.py", "tests/test_flat_map.py",
    "tests/test_dense_groups.py", "tests/test_density_clusters.py",
    "tests/test_anchors.py", "tests/runs/test_assignments.py", "tests/sources", "tests/test_benchmarks.py",
    "tests/test_class_count.py", "tests/test_discovery.py", "tests/test_estimator.py", "tests/test_evaluate.py",
    "tests/export", "tests/training", "tests/test_hessian.py", "tests/test_losses.py",
    "tests/runs/test_labelling.py", "tests/runs/test_rounds.py", "tests/test_semi_kmeans.py",
    "tests/test_sharpness.py", "tests/runs/test_stability.py", "tests/test_mean_shift.py", "tests/test_neighbours.py",
    "tests/test_ward.py", "tests/runs/test_none_of_these.py", "tests/test_fitting.py", "tests/test_cluster_density.py",
    "tests/test_count_criteria.py", "tests/test_whitening.py", "tests/test_whitening_check.py",
    "tests/test_consensus.py", "tests/test_clusters_of_kmeans.py", "tests/test_sinkhorn.py",
    "tests/test_imitation.py", "tests/runs/test_consensus_answer.py",
    "tests/images/test_views.py", "tests/images/test_strong_views.py", "tests/runs/test_nearest_class.py",
    "tests/report/test_large_classes.py", "tests/report/test_near_duplicates.py", "tests/test_hidden_labels.py",
    "tests/test_named_clusters.py", "tests/test_nearest_rows.py", "tests/tuning",
]  # fmt: skip


@dataclass(frozen=True)
class Setting:
    name: str
    environment: Mapping[str, str]
    expected: Mapping[str, str]  # by library: a regular expression that what it says of itself has to match
    numpy: Callable[[str], bool] = lambda feature: True  # which of NumPy's optional instructions stay on
    everywhere: bool = True  # False: some processors cannot do it

    def variables(self) -> dict[str, str]:
        off = [feature for feature in optional_numpy_features() if not self.numpy(feature)]
        return {**self.environment, **({"NPY_DISABLE_CPU_FEATURES": " ".join(off)} if off else {})}


def no_avx512(feature: str) -> bool:
    return "512" not in feature and feature != "X86_V4"


def none(feature: str) -> bool:
    return False


# MKL obeys MKL_ENABLE_INSTRUCTIONS on Intel's processors only; "compatible" is the code that it has for all of them,
# and what it uses on other makers' goes as far as AVX2
SSE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
SAID_SSE = {"torch": "DEFAULT", "oneDNN": "SSE4.1", "MKL": "CNR:COMPATIBLE"}
NO_AVX512 = r"^(?!.*512)(?!.*X86_V4)"
SAID_AVX2 = {"torch": "AVX2", "oneDNN": r"AVX2\b", "MKL": r"AVX2\b|^Intel\(R\) Architecture "}


def threads(count: int) -> dict[str, str]:
    """Exactly so many: MKL would take no more than there are cores."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(count)) | {
        "MKL_DYNAMIC": "FALSE"
    }


SETTINGS = [
    Setting("an old processor: SSE4 throughout, 1 thread", {**SSE, "OPENBLAS_CORETYPE": "Prescott", **threads(1)},
            {**SAID_SSE, "OpenBLAS": "Katmai|Prescott", "NumPy": "none", "threads": "1"}, none),
    Setting("Intel with AVX2, 2 threads", {**AVX2, "OPENBLAS_CORETYPE": "Haswell", **threads(2)},
            {**SAID_AVX2, "OpenBLAS": "Haswell", "NumPy": NO_AVX512, "threads": "2"}, no_avx512),
    Setting("AMD with AVX2 (Zen), 4 threads",
            {**AVX2, "MKL_CBWR": "COMPATIBLE", "OPENBLAS_CORETYPE": "Zen", **threads(4)},
            {**SAID_AVX2, "MKL": "CNR:COMPATIBLE", "OpenBLAS": "Zen|Haswell", "NumPy": NO_AVX512, "threads": "4"},
            no_avx512),
    # torch asks the processor; OpenBLAS takes the hint anywhere, and ends at the first instruction that is not there
    Setting("AVX-512 where there is, 2 threads", {"OPENBLAS_CORETYPE": "SkylakeX", **threads(2)},
            {"torch": "AVX512", "OpenBLAS": "SkylakeX", "threads": "2"}, everywhere=False),
]  # fmt: skip


def optional_numpy_features() -> list[str]:
    """Those that this processor has and NumPy has code for."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # type: ignore[attr-defined]

    return [feature for feature in __cpu_dispatch__ if __cpu_features__.get(feature)]


def say_what_is_used() -> None:
    """Printed by a process of its own; oneDNN and MKL speak for themselves, when they are asked to."""
    import numpy as np
    import scipy.linalg
    import torch
    from threadpoolctl import threadpool_info

    square = torch.randn(64, 64)
    torch.mm(square, square)
    torch.nn.Conv2d(3, 8, 3)(torch.randn(2, 3, 16, 16))
    scipy.linalg.svd(np.eye(3))
    kernels = {pool["architecture"] for pool in threadpool_info() if pool["internal_api"] == "openblas"}
    found = {
        "torch": torch.backends.cpu.get_cpu_capability(),
        "OpenBLAS": ", ".join(sorted(kernels)),
        "NumPy": ", ".join(optional_numpy_features()) or "none",
        "threads": str(torch.get_num_threads()),
    }
    print("used", json.dumps(found), flush=True)


def used(variables: Mapping[str, str]) -> dict[str, str]:
    """What the libraries say of themselves under these variables."""
    verbose = {"ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
    said = subprocess.run(
        [sys.executable, __file__, "--say"], env={**os.environ, **variables, **verbose}, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    found: dict[str, str] = json.loads(re.findall(r"^used (.*)$", said, re.MULTILINE)[0])
    found["oneDNN"] = "".join(re.findall(r"cpu,isa:(.*)$", said, re.MULTILINE)[:1])
    mkl = re.findall(r"^MKL_VERBOSE oneMKL.*?architecture (.*?)(?: enabled)? processors", said, re.MULTILINE)[:1]
    return {**found, "MKL": "".join(mkl + re.findall(r" CNR:\w+", said)[:1])}


@dataclass(frozen=True)
class Outcome:
    setting: str
    result: str
    good: bool
    seconds: float


def outcome(setting: Setting, tests: list[str]) -> Outcome:
    """Of the tests under one setting, or why they did not run."""
    variables = setting.variables()
    found = used(variables)
    for library, expected in setting.expected.items():
        if not re.search(expected, found[library]):
            why = f"not run: {library} uses {found[library]} here"
            return Outcome(setting.name, why, good=not setting.everywhere, seconds=0)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", *tests]
    started = time.monotonic()
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    for line in re.findall(r"^(?:FAILED|ERROR) .*$", ended.stdout, re.MULTILINE):
        print(f"  {line}", flush=True)
    last = re.findall(r"^(\d+ (?:passed|failed).*) in ", ended.stdout, re.MULTILINE)
    result = (
        re.sub(r", \d+ (warnings?|skipped|xfailed)", "", last[-1])
        if last
        else ended.stdout[-300:] + ended.stderr[-300:]
    )
    return Outcome(setting.name, result, good=ended.returncode == 0, seconds=time.monotonic() - started)


def table(outcomes: list[Outcome], command: str) -> str:
    lines = ["| as if on | result |", "|---|---|"]
    lines += [f"| {found.setting} | {found.result} |" for found in outcomes]
    return "\n".join([*lines, "", f"`{command}`, {date.today()}, {processor()}.", ""])


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def write_into(page: Path, text: str) -> None:
    """Between two comments."""
    opening, closing = "<!-- make test-portable -->", "<!-- end -->"
    before, rest = page.read_text("utf-8").split(opening)
    page.write_text(f"{before}{opening}\n{text}{closing}{rest.split(closing, 1)[1]}", "utf-8")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--all", action="store_true", help="all tests, instead of the numerical ones")
    arguments.add_argument("--only", default="", help="settings whose name has this in it")
    arguments.add_argument("--write", type=Path, help="a page with a place for the table")
    arguments.add_argument("--say", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.say:
        say_what_is_used()
        return 0
    outcomes = []
    for setting in SETTINGS:
        if options.only in setting.name:
            print(f"{setting.name} ...", flush=True)
            outcomes.append(outcome(setting, [] if options.all else NUMERICAL))
            print(f"  {outcomes[-1].result}, {outcomes[-1].seconds:.0f} s", flush=True)
    command = "python tests/portable.py --all" if options.all else "make test-portable"
    text = table(outcomes, command)
    print(text)
    if options.write:
        write_into(options.write, text)
    return int(not outcomes or not all(found.good for found in outcomes))


if __name__ == "__main__":
    sys.exit(main())
