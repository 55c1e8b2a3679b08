"""How much memory a run needs, asked of the system."""

import pytest

from newfound.research import peak_memory as module
from newfound.research.peak_memory import CLEAR, peak_memory

MUCH = 300_000_000  # bytes


@pytest.mark.skipif(not CLEAR.exists(), reason="the system keeps no peak that can be forgotten")
def test_the_peak_is_that_of_the_work_alone():
    def hold():
        assert len(b"1" * MUCH) == MUCH  # every page is written to

    before, large, after = peak_memory(int), peak_memory(hold), peak_memory(int)
    assert large - before > 0.9 * MUCH / 1e9
    assert large - after > 0.9 * MUCH / 1e9


def test_nothing_is_reported_where_the_system_cannot_forget(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(module, "CLEAR", tmp_path / "nowhere" / "clear_refs")
    assert peak_memory(lambda: done.append(1)) is None
    assert done == [1]
