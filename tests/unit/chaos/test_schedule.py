"""A schedule of strikes follows from its seed and leaves nothing out."""

from __future__ import annotations

from random import Random

import pytest

from statecore.runtime.faults import FaultPoint
from tests.chaos.campaign import schedule
from tests.chaos.strikes import DECK


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_follows_from_its_seed_and_has_every_victim_and_fault_point(seed: int) -> None:
    ground, strikes = schedule(seed, 50)
    again = schedule(seed, 50)
    assert [(s.victim, s.how) for s in again[1]] == [(s.victim, s.how) for s in strikes]
    assert again[0] == ground
    assert len(strikes) == 50
    assert {s.victim for s in strikes} == {"rescale", *(s.victim for s in DECK)}
    assert {s.point for s in strikes} >= set(FaultPoint)


def test_another_seed_is_another_schedule() -> None:
    seeds = Random(1).sample(range(1000), 5)
    assert len({tuple((s.victim, s.how) for s in schedule(seed, 50)[1]) for seed in seeds}) == len(seeds)
