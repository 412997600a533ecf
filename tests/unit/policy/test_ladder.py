"""Where a job stands between its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from statecore.cli.ladder import drawing
from statecore.policy import PolicySettings, ladder
from tests.unit.policy.test_decision import NO_WAIT, figures


def test_each_size_has_what_it_does_and_one_is_enough() -> None:
    found = ladder(figures(4, arriving=40_000.0), NO_WAIT)
    assert found is not None
    assert {1, 4, 16} < found.rates.keys() and len(found.rates) <= 11
    assert found.rates[4] == pytest.approx(32_000, rel=0.01)
    assert list(found.rates.values()) == sorted(found.rates.values())
    assert (found.arriving, found.enough) == (40_000, 6)
    assert found.needed == pytest.approx(40_000 / 0.85)


@pytest.mark.parametrize(("now", "arriving"), [(2, 100.0), (6, 38_000.0)])
def test_a_present_size_between_those_of_whole_workers_may_be_enough(now: int, arriving: float) -> None:
    wanted = PolicySettings(max_parallelism=6, subtasks_per_worker=4)
    found = ladder(figures(now, workers=-(-now // 4), arriving=arriving), wanted)
    assert found is not None and found.enough == now


def test_no_size_may_be_enough_and_with_too_few_measurements_nothing_is_known() -> None:
    found = ladder(figures(4, arriving=10**6), NO_WAIT)
    assert found is not None and found.enough is None
    assert ladder(replace(figures(4), epochs=()), NO_WAIT) is None
    assert ladder(figures(4, arriving=None), NO_WAIT) is None


def test_the_drawing_marks_the_present_size_what_arrives_and_what_is_needed() -> None:
    found = ladder(figures(4, arriving=40_000.0), PolicySettings(max_parallelism=8))
    assert found is not None
    console = Console(width=100)
    with console.capture() as printed:
        console.print(drawing(found))
    lines = printed.get().splitlines()
    now = next(line for line in lines if line.rstrip().endswith("now"))
    assert now.split()[:3] == ["4", "31,973", "rows/s"]
    most = next(line for line in lines if line.split()[0] == "8")
    # The marks stand in one column on all lines: beyond the bar of a size that does too little, within that of others.
    assert now.index("┊") == most.index("┊") < now.index("│") == most.index("│")
    assert now.rindex("█") < now.index("┊") and most.rindex("█") > most.index("│")
    assert lines[-1].split() == ["┊", "40,000", "rows/s", "arrive", "│", "47,059", "are", "needed"]
