"""The tables of the paper, each as a list of settings, with the paper's numbers beside them.

A row names what differs from the paper's method on the data set at hand; everything else is the data set's preset and
what the user sets. Numbers of the paper are All, Old, New in per cent: DINO ViT-B/16, 224 pixels, 200 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from newfound.research import published
from newfound.research.published import Numbers

KMEANS = {"method": "kmeans"}
GCD = {"method": "gcd", "rho": 0.0}
SIMGCD = {"method": "simgcd", "rho": 0.0}
LSP = {"method": "simgcd", "rho": 0.05}
DAS = {"method": "sdas", "rho": 0.0}
OURS = {"method": "sdas", "rho": 0.05}
LEGOGCD = {"method": "legogcd", "rho": 0.0}
CMS = {"method": "cms", "rho": 0.0}
MUGCD = {"method": "mugcd", "rho": 0.0}
RSS = {"method": "rss", "rho": 0.0}
ORCA = {"method": "orca", "rho": 0.0}
RANKSTATS = {"method": "rankstats", "rho": 0.0}
UNO = {"method": "uno", "rho": 0.0}
HDBSCAN = {"method": "hdbscan"}


@dataclass(frozen=True)
class Row:
    name: str  # as in the paper's table
    settings: Mapping[str, object]
    paper: Mapping[str, Numbers] = field(default_factory=dict)  # by data set
    paper_anchors: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # clean, overall
    relative: Mapping[str, float] = field(default_factory=dict)  # settings as multiples of their default on the data
    of_200_epochs: Mapping[str, float] = field(default_factory=dict)  # epochs of 200, shortened as the run is
    estimated_classes: bool = False  # the number of classes is estimated, not given


@dataclass(frozen=True)
class Study:
    title: str
    rows: tuple[Row, ...]
    axis: str = ""  # what the rows are values of; names of rows are numbers then
    anchors: bool = False  # show how many anchors are clean


def _sweep(name: str, paper: Mapping[float, Mapping[str, Numbers]]) -> tuple[Row, ...]:
    return tuple(Row(f"{value:g}", {**OURS, name: value}, numbers) for value, numbers in paper.items())


def _both_starts(
    name: str, settings: Mapping[str, object], paper: Mapping[str, Numbers], setting: str = "start"
) -> tuple[Row, Row]:
    """From random directions, as published, and from clusters, as on somebody's own folder."""
    return (
        Row(name, {**settings, setting: "random"}, paper),
        Row(f"{name}, from clusters", {**settings, setting: "clusters"}),
    )


STUDIES: dict[str, Study] = {
    "methods": Study(
        "Results of the methods that newfound has",
        (
            Row("k-means", KMEANS, published.KMEANS),
            Row("HDBSCAN (its own number of classes)", HDBSCAN),
            *_both_starts("RS+", RANKSTATS, published.RANKSTATS),
            *_both_starts("UNO+", UNO, published.UNO),
            *_both_starts("ORCA", ORCA, published.ORCA),
            *_both_starts("GCD", GCD, published.GCD, setting="kmeans_start"),
            *_both_starts("SimGCD", SIMGCD, published.SIMGCD),
            *_both_starts("LegoGCD", LEGOGCD, published.LEGOGCD),
            Row("CMS", CMS, published.CMS),
            *_both_starts("μGCD (a reading)", MUGCD, published.MUGCD),
            *_both_starts("RSS (a reading)", RSS, published.RSS),
            *_both_starts("ours", OURS, published.OURS),
        ),
    ),
    "components": Study(
        "Ablation study of different components",
        (
            Row("SimGCD", SIMGCD, published.SIMGCD),
            Row("+ LSP", LSP, published.LSP),
            Row("+ DAS", DAS, published.DAS),
            Row("+ LSP + DAS (ours)", OURS, published.OURS),
        ),
    ),
    "strategy": Study(
        "Ablation study of different training strategies",
        (
            Row(
                "w/o pre-train",
                {**OURS, "strategy": "without-pretrain"},
                {"imagenet100": (86.1, 94.1, 82.0), "cub": (64.0, 69.5, 61.2)},
            ),
            Row(
                "Fixed",
                {**OURS, "strategy": "fixed"},
                {"imagenet100": (85.5, 93.9, 81.3), "cub": (67.7, 70.3, 66.4)},
            ),
            Row("DAS", OURS, published.OURS),
        ),
    ),
    "selection": Study(
        "Ablation study of different anchor selection strategies",
        (
            Row(
                "Max Prob.",
                {**OURS, "selection": "max-prob"},
                {"imagenet100": (86.5, 94.0, 82.7), "cub": (66.1, 68.4, 64.9)},
            ),
            Row(
                "Max Density",
                {**OURS, "selection": "max-density"},
                {"imagenet100": (86.6, 94.0, 82.8), "cub": (67.6, 71.3, 65.7)},
            ),
            Row("DAS", OURS, published.OURS),
        ),
        anchors=True,
    ),
    "beta": Study(
        "Sensitivity analysis of β",
        _sweep(
            "beta",
            {
                0.3: {"cifar100": (82.8, 84.3, 79.9), "cub": (67.9, 68.3, 67.6)},
                0.5: {"cifar100": (83.0, 84.0, 80.9), "cub": (69.0, 69.1, 68.9)},
                0.6: {"cifar100": (83.4, 84.2, 81.7), "cub": (68.3, 70.5, 67.2)},
                0.8: {"cifar100": (83.7, 84.6, 82.0), "cub": (67.6, 69.2, 66.8)},
                1.0: {"cifar100": (83.3, 84.1, 81.7), "cub": (67.3, 69.1, 66.4)},
            },
        ),
        axis="β",
        anchors=True,
    ),
    "eta": Study(
        "Sensitivity analysis of η, as a multiple of N/|Y_l|",
        tuple(
            Row(f"{share:g}", OURS, numbers, relative={"anchors_per_class": share})
            for share, numbers in {
                0.25: {"cifar100": (82.9, 84.6, 79.6), "cub": (67.8, 69.1, 67.2)},
                0.5: {"cifar100": (83.0, 84.3, 80.3), "cub": (68.1, 69.0, 67.7)},
                1.0: {"cifar100": (83.7, 84.6, 82.0), "cub": (69.0, 69.1, 68.9)},
                1.5: {"cifar100": (83.6, 84.1, 82.5), "cub": (66.4, 66.0, 66.7)},
            }.items()
        ),
        axis="η, in N/|Y_l|",
        anchors=True,
    ),
    "alpha": Study(
        "Sensitivity analysis of α",
        tuple(
            Row(f"{epochs:g}", OURS, numbers, of_200_epochs={"alpha": epochs})
            for epochs, numbers in {
                1: {"cifar100": (83.7, 84.6, 82.0), "cub": (66.4, 67.2, 66.0)},
                5: {"cifar100": (83.6, 84.0, 82.8), "cub": (68.4, 67.8, 68.7)},
                10: {"cifar100": (83.7, 84.1, 83.1), "cub": (69.0, 69.1, 68.9)},
                20: {"cifar100": (83.6, 84.1, 82.6), "cub": (68.5, 69.6, 67.9)},
                30: {"cifar100": (83.8, 84.3, 82.8), "cub": (67.9, 69.1, 67.3)},
            }.items()
        ),
        axis="α, in epochs of 200",
    ),
    "k": Study(
        "Sensitivity analysis of k, as a share of the cluster",
        _sweep(
            "k",
            {
                0.1: {"cifar100": (83.3, 84.2, 81.6), "cub": (68.2, 69.2, 67.7)},
                0.3: {"cifar100": (83.5, 84.5, 81.5), "cub": (68.5, 70.7, 67.5)},
                0.5: {"cifar100": (83.7, 84.6, 82.0), "cub": (69.0, 69.1, 68.9)},
                0.8: {"cifar100": (83.5, 84.3, 81.8), "cub": (68.5, 70.9, 67.3)},
                1.0: {"cifar100": (83.5, 84.1, 82.2), "cub": (68.4, 71.3, 66.9)},
            },
        ),
        axis="k, in |C_j|",
    ),
    "rho": Study(
        "Sensitivity analysis of ρ",
        _sweep(
            "rho",
            {
                0.02: {"cars": (63.3, 80.2, 55.1), "cub": (67.3, 68.1, 67.0)},
                0.05: {"cars": (65.5, 79.7, 58.8), "cub": (69.0, 69.1, 68.9)},
                0.1: {"cars": (64.6, 77.4, 58.5), "cub": (69.1, 70.4, 68.4)},
                0.15: {"cars": (62.8, 77.5, 55.8), "cub": (68.7, 70.4, 67.8)},
                0.25: {"cars": (62.4, 77.1, 55.3), "cub": (67.4, 70.9, 65.7)},
                0.5: {"cars": (60.6, 76.8, 52.9), "cub": (67.0, 70.2, 65.3)},
            },
        ),
        axis="ρ",
    ),
    "class-count": Study(
        "Results with the estimated number of classes",
        (
            Row("GCD, true number", GCD, published.GCD),
            Row("SimGCD, true number", SIMGCD, published.SIMGCD),
            Row("ours, true number", OURS, published.OURS),
            Row(
                "GCD, estimated number",
                GCD,
                {"cub": (47.1, 55.1, 44.8), "cars": (35.0, 56.0, 24.8)},
                estimated_classes=True,
            ),
            Row(
                "SimGCD, estimated number",
                SIMGCD,
                {"cub": (61.5, 66.4, 59.1), "cars": (49.1, 65.1, 41.3)},
                estimated_classes=True,
            ),
            Row(
                "ours, estimated number",
                OURS,
                {"cub": (66.6, 67.0, 66.4), "cars": (64.4, 77.8, 57.9)},
                estimated_classes=True,
            ),
        ),
    ),
    "blocks": Study(
        "Analysis of different fine-tuning strategies: number of frozen ViT blocks",
        tuple(
            Row(f"{name} ({blocks})", {**settings, "grad_from_block": blocks}, numbers)
            for blocks, name, settings, numbers in (
                (8, "SimGCD", SIMGCD, {"cifar100": (75.5, 79.4, 67.7), "cub": (53.0, 53.7, 52.7)}),
                (8, "ours", OURS, {"cifar100": (78.0, 80.7, 72.5), "cub": (58.6, 59.6, 58.1)}),
                (9, "SimGCD", SIMGCD, {"cifar100": (76.6, 80.2, 69.3), "cub": (57.8, 60.3, 56.5)}),
                (9, "ours", OURS, {"cifar100": (79.1, 82.4, 72.6), "cub": (62.2, 61.9, 62.4)}),
                (10, "SimGCD", SIMGCD, {"cifar100": (77.8, 79.7, 73.9), "cub": (58.7, 59.3, 58.3)}),
                (10, "ours", OURS, {"cifar100": (81.2, 83.5, 76.7), "cub": (64.3, 62.2, 65.4)}),
                (11, "SimGCD", SIMGCD, published.SIMGCD),
                (11, "ours", OURS, published.OURS),
            )
        ),
    ),
    "backbone": Study(
        "The results with DINOv2 backbone",
        (
            Row(
                "SimGCD",
                {**SIMGCD, "backbone": "dinov2_vitb14"},
                {"imagenet100": (88.5, 96.2, 84.6), "cub": (74.9, 78.5, 73.1)},
            ),
            Row(
                "ours",
                {**OURS, "backbone": "dinov2_vitb14"},
                {"imagenet100": (92.0, 96.8, 89.5), "cub": (79.8, 81.7, 78.8)},
            ),
        ),
    ),
    "anchors": Study(
        "Anchor selection analysis",
        (
            Row("SimGCD + DAS", DAS, published.DAS, {"cifar100": (4560, 4920), "cub": (1116, 1468)}),
            Row("SimGCD + DAS + LSP (ours)", OURS, published.OURS, {"cifar100": (5003, 5200), "cub": (1140, 1443)}),
        ),
        anchors=True,
    ),
    "hard-labels": Study(
        "Hard pseudo-labeling strategy analysis",
        (
            Row("SimGCD + LSP", LSP, published.LSP),
            Row(
                "SimGCD + LSP + Fixed Anchor",
                {**OURS, "strategy": "fixed"},
                {"imagenet100": (85.5, 93.9, 81.3), "cub": (67.7, 70.3, 66.4)},
                {"imagenet100": (26759, 29550), "cub": (1000, 1313)},
            ),
            Row(
                "SimGCD + LSP + DAS (ours)",
                OURS,
                published.OURS,
                {"imagenet100": (39123, 42661), "cub": (1140, 1443)},
            ),
            Row(
                "SimGCD + LSP + All Clean Anchor (oracle)",
                {**OURS, "oracle_clean_anchors": True},
                {"imagenet100": (88.4, 94.0, 85.6), "cub": (72.0, 70.4, 72.8)},
                {"imagenet100": (39123, 39123), "cub": (1140, 1140)},
            ),
        ),
        anchors=True,
    ),
}
