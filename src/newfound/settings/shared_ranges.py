"""In which ranges the shared settings lie."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from newfound.errors import SettingError, require
from newfound.text import sentence

if TYPE_CHECKING:
    from newfound.settings import DataFacts, Settings

LARGEST_IMAGE, MOST_VIEWS = 4096, 1000  # beyond that, the views of one image fill the memory
MOST_EPOCHS = 1_000_000
VIT_BLOCKS = 12  # of each ViT there is
COUNT_ALL = "count the known classes and those you expect to discover, at least 2 in total"


def check_ranges(s: Settings, facts: DataFacts) -> None:
    """Raise if a shared setting has a value that makes no sense."""
    check_classes(facts)
    for name in ("epochs", "batch_size", "projector_width"):
        _require_number(s, name, 1, math.inf, "at least 1")
    _require_number(s, "epochs", 1, MOST_EPOCHS + 1, f"at most {MOST_EPOCHS:,}")
    value = s.learning_rate
    require("learning_rate", value, value is None or 0 < value < math.inf, "a number above 0")
    balance = s.label_balance
    require("label_balance", balance, balance is None or 0 <= balance <= 1, "between 0 and 1")
    shrinkage = s.whitening if isinstance(s.whitening, int | float) else 0
    require("whitening", s.whitening, 0 <= shrinkage <= 1, "auto, none, or a number between 0 and 1")
    for name in ("weight_decay", "rho"):
        _require_number(s, name, 0, math.inf, "0 or more")
    _require_number(s, "momentum", 0, 1, "at least 0 and below 1")
    require("seed", s.seed, 0 <= s.seed < 2**32, "between 0 and 4294967295")
    check_image_size(s.image_size)
    _require_number(s, "bank_views", 2, math.inf, "at least 2: a step compares two of them")
    _require_number(s, "bank_views", 2, MOST_VIEWS + 1, f"at most {MOST_VIEWS}")
    _require_number(s, "grad_from_block", 0, VIT_BLOCKS, f"0 to {VIT_BLOCKS - 1}")
    for name, default in (("precision", "float32"), ("compile", False)):
        if getattr(s, name) != default and not s.device.startswith("cuda"):
            raise SettingError(name, getattr(s, name), f"is for a GPU; this run computes on {s.device}")


def _require_number(s: Settings, name: str, low: float, high: float, what: str) -> None:
    """Where it plays a part: at least ``low`` and below ``high``."""
    value = getattr(s, name)
    require(name, value, value is None or low <= value < high, what)


def check_classes(facts: DataFacts) -> None:
    """Raise if there cannot be so many classes."""
    if facts.classes > facts.images:
        there = f"is only 1 {facts.noun[:-1]}" if facts.images == 1 else f"are only {facts.images:,} {facts.noun}"
        raise SettingError("classes", facts.classes, f"is too many: there {there}")
    if facts.classes < facts.known:
        why = f"is too few: {facts.known} classes are known already. {sentence(COUNT_ALL)}"
        raise SettingError("classes", facts.classes, why)
    if facts.classes < 2:
        raise SettingError("classes", facts.classes, f"is too few: {COUNT_ALL}")


def check_image_size(size: int) -> None:
    """Raise if images of this side cannot be worked with."""
    require("image_size", size, 1 <= size <= LARGEST_IMAGE, f"between 1 and {LARGEST_IMAGE} pixels")
