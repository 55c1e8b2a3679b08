"""Facts about a consensus of several seeds, kept in consensus.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from newfound.screen import Screen
from newfound.text import counted

FILE = "consensus.json"
GOOD = 0.97  # agreement of the model with the consensus; below, a warning says so


@dataclass(frozen=True)
class ConsensusFacts:
    seeds: list[int]
    unanimous: float  # share of images that all seeds put into the same class, or into none
    model_seed: int  # whose tail the model has
    agreement: float  # share of images that the model puts into the class that the consensus has for them

    def tell(self, screen: Screen) -> None:
        """In plain words."""
        screen.say(f"consensus of {counted(len(self.seeds), 'seed')}: {_percent(self.unanimous)} of images unanimous")
        agrees = f"the model agrees with the consensus on {_percent(self.agreement)} of the images"
        if self.agreement < GOOD:
            screen.warn(f"{agrees} only: rely on assignments.csv for these images, not on predictions")
        else:
            screen.say(agrees)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> ConsensusFacts:
        """What ``as_json`` gave; raises KeyError, TypeError or ValueError otherwise."""
        found = cls(
            [int(seed) for seed in content["seeds"]],
            float(content["unanimous"]),
            int(content["model_seed"]),
            float(content["agreement"]),
        )
        if not (0 <= found.unanimous <= 1 and 0 <= found.agreement <= 1 and found.model_seed in found.seeds):
            raise ValueError("impossible shares, or a model of no seed")
        return found

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
