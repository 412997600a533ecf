"""A schedule of strikes follows from its seed and leaves nothing out."""

from __future__ import annotations

from random import Random

import pytest

from statecore.runtime.faults import FaultPoint
from tests.chaos.campaign import schedule
from tests.chaos.kafka.strikes import DECK as KAFKA_DECK
from tests.chaos.processes import ChaosError
from tests.chaos.strikes import DECK
from tests.chaos.strikes.base import Need


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_follows_from_its_seed_and_has_every_strike_and_fault_point(seed: int) -> None:
    ground, strikes = schedule(seed, 80)
    again = schedule(seed, 80)
    assert [(s.victim, s.how) for s in again[1]] == [(s.victim, s.how) for s in strikes]
    assert again[0] == ground
    assert len(strikes) == 80
    assert {(s.victim, s.how) for s in strikes} >= {(s.victim, s.how) for s in DECK}
    assert {s.point for s in strikes} >= set(FaultPoint)


def test_another_seed_is_another_schedule() -> None:
    seeds = Random(1).sample(range(1000), 5)
    assert len({tuple((s.victim, s.how) for s in schedule(seed, 80)[1]) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("offered", [[], [Need.CLOCKS], [Need.POSTGRES]])
def test_strikes_that_need_what_a_campaign_has_not_are_left_out(offered: list[Need]) -> None:
    _, strikes = schedule(3, 120, offered=offered)
    assert {s.need for s in strikes} == {None, *offered}
    assert {s.victim for s in strikes} == {"rescale", *(s.victim for s in DECK if s.need in (None, *offered))}


def test_a_campaign_may_strike_at_some_victims_alone() -> None:
    _, strikes = schedule(3, 30, victims=["roll-back", "claim"])
    assert {s.victim for s in strikes} == {"rescale", "roll-back", "claim"}


def test_a_victim_that_nobody_strikes_at_is_refused() -> None:
    with pytest.raises(ChaosError, match=r"strikes at 'storm'; expected .* 'claim', .*'worker'"):
        schedule(3, 30, victims=["claim", "storm"])
    with pytest.raises(ChaosError, match="strikes at 'PostgreSQL'"):
        schedule(3, 30, offered=[], victims=["PostgreSQL"])


@pytest.mark.parametrize("seed", range(5))
def test_a_campaign_with_kafka_has_every_strike_too(seed: int) -> None:
    _, strikes = schedule(seed, 200, deck=KAFKA_DECK)
    assert len(strikes) == 200
    assert {(s.victim, s.how) for s in strikes} >= {(s.victim, s.how) for s in KAFKA_DECK}
    assert {s.victim for s in strikes} == {"rescale", *(s.victim for s in KAFKA_DECK)}
