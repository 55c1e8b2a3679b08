"""The rows of a study as a picture: names that can be read, however many rows there are."""

from itertools import combinations

import pytest

from newfound.research.figures import rows as rows_module
from newfound.research.figures.rows import draw_rows
from newfound.research.studies import STUDIES


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The canvas that is saved."""
    pytest.importorskip("matplotlib")
    saved = []
    monkeypatch.setattr(rows_module, "save", lambda canvas, path: saved.append(canvas))

    def draw(names, axis="", seeds=2):
        draw_rows("Some study", axis, {name: dict.fromkeys(("all", "old", "new"), [50.0] * seeds) for name in names},
                  tmp_path / "rows")  # fmt: skip
        saved[0].canvas.draw()
        return saved[0]

    return draw


def names_on(canvas):
    """What is written beside or below the bars, in their order, with the place of each."""
    axes = canvas.axes[0]
    ticks = max((axes.get_xticklabels(), axes.get_yticklabels()), key=lambda labels: sum(map(_is_name, labels)))
    return [(tick.get_text(), tick.get_window_extent()) for tick in ticks]


def _is_name(label):
    return not label.get_text().replace(".", "").isdigit()


@pytest.mark.parametrize("study", ["methods", "components", "class-count", "strategy"])
def test_no_name_is_written_over_another(drawn, study):
    names = [row.name for row in STUDIES[study].rows]
    found = names_on(drawn(names))
    assert ["".join(name.split()) for name, _ in found] == ["".join(name.split()) for name in names]
    assert not [(a, b) for (a, at), (b, there) in combinations(found, 2) if at.overlaps(there)]


def test_of_many_rows_the_first_is_on_top(drawn):
    found = names_on(drawn([f"row {i}" for i in range(12)]))
    heights = [place.y0 for _, place in found]
    assert heights == sorted(heights, reverse=True)
