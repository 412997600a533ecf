"""How long a stop waits for the epoch in flight."""

from __future__ import annotations

import pytest

from statecore.runtime.generation import patience


@pytest.mark.parametrize(("epoch_s", "expected_s"), [(0, 30), (15, 30), (20, 40), (50, 100), (600, 100)])
def test_an_epoch_has_twice_the_time_of_the_one_before_it_within_bounds(epoch_s: float, expected_s: float) -> None:
    assert patience.patience_s(epoch_s) == expected_s
