"""A finished run in Python: what was found, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from newfound.errors import UserError, as_path
from newfound.finished.classes import FoundClass, columns_of, found_classes
from newfound.finished.display import as_html, as_text
from newfound.report import NAME as REPORT
from newfound.report import write_report_again
from newfound.runs.decisions import reviewed_of
from newfound.runs.labelling import Labelled, predict
from newfound.runs.none_of_these import REFUSED
from newfound.runs.pictures import Picture
from newfound.runs.places import default_out
from newfound.runs.results import Results, read_json, read_results
from newfound.screen import Screen, screen_for

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Discovery", "FoundClass"]


@dataclass(frozen=True, repr=False)
class Discovery:
    """A finished run. A notebook displays it as a table of its classes, with pictures."""

    run: Path
    metrics: dict[str, Any] | None = None  # where a truth was given

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", as_path("run", self.run))

    @classmethod
    def load(cls, run: Path | str) -> Discovery:
        """A run made earlier; to `predict`, its model.json and model.safetensors are enough."""
        path = as_path("run", run)
        if not path.is_dir():
            raise UserError(f"{path}: there is no such run folder")
        if not (path / "model.json").is_file():
            _check_results(path)
        return cls(path, read_json(path / "metrics.json"))

    @cached_property
    def results(self) -> Results:
        """The model's predictions, by image."""
        return read_results(self.run)

    @property
    def classes(self) -> tuple[FoundClass, ...]:
        """Known classes, then new ones, with the decisions of a review."""
        return found_classes(reviewed_of(self.results))

    def to_pandas(self) -> DataFrame:
        """A row per image: `file`, `class`, `is_new`, `confidence` and so on. After a review, `class` is the final one,
        `decided_by` tells who decided it, and `model_class` is the model's own."""
        try:
            import pandas
        except ImportError as error:
            raise UserError(
                f"to_pandas() needs the package pandas ({error}). Install it: pip install pandas"
            ) from error
        return pandas.DataFrame(columns_of(self.results))

    def predict(
        self,
        images: Path | str | Picture | Sequence[Path | str] | Sequence[Picture],
        *,
        refused: float = REFUSED,
        weights: Path | str | None = None,
        device: str = "auto",
        screen: Screen | bool | None = None,
    ) -> Labelled:
        """Label other images: files, folders, patterns such as ``"new/*.jpg"``; PIL images; arrays H×W×3 of uint8.

        ``refused`` is the share of images like the labelled ones that may be called "none of these"; 0 gives every
        image a class.
        """
        shown_on = screen_for(screen)
        return predict(self.run, images, refused=refused, weights=weights, device=device, screen=shown_on)

    def report(self, *, again: bool = False, screen: Screen | bool | None = None) -> Path:
        """The path of report.html, which is written if there is none; ``again`` updates it after a review."""
        path = self.run / REPORT
        if again or not path.is_file():
            write_report_again(self.results, screen_for(screen))
        return path

    def review(self, *, port: int = 0, browser: bool = True, screen: Screen | bool = True) -> None:
        """Review the run in the browser. Ctrl-C, or interrupting the notebook's kernel, ends it."""
        import webbrowser

        from newfound.review import review

        opened_by = webbrowser.open if browser else None
        review(self.run, port=port, open_browser=opened_by, screen=screen_for(screen))

    def __repr__(self) -> str:
        return as_text(self.run, self._results_if_any(), self.metrics)

    def _repr_html_(self) -> str:
        return as_html(self.run, self._results_if_any(), self.metrics)

    def _results_if_any(self) -> Results | None:
        """None of a model alone, or if something in the run folder is damaged: to look at a run never raises."""
        try:
            reviewed_of(self.results)
        except (UserError, OSError):
            return None
        return self.results


def _check_results(path: Path) -> None:
    """Raise unless there is a finished run."""
    if (path / "config.toml").is_file():
        read_results(path)
        return
    likely = default_out(path)
    hint = f"Did you mean {likely}?" if likely.is_dir() else "Give the folder that the run was written to."
    raise UserError(f"{path} is not a newfound run: it has neither config.toml nor model.json. {hint}")
