"""A short campaign with a fixed seed: the most different victims, each once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from statecore.runtime.faults import FaultPoint
from tests.chaos.campaign import carry_out, schedule
from tests.chaos.strikes import DECK, Strike, rescale
from tests.chaos.world import CLUSTER, World
from tests.s3 import s3_endpoint

__all__ = ["s3_endpoint"]

SEED = 7


def strike(victim: str, how: str) -> Strike:
    return next(strike for strike in DECK if (strike.victim, strike.how) == (victim, how))


@pytest.mark.spark
def test_whatever_breaks_state_and_outputs_are_those_of_an_undisturbed_run(tmp_path: Path, s3_endpoint: str) -> None:
    strikes = [
        strike("worker", "at changelog_written"),
        strike("paused driver", "manifest on its way"),
        rescale(CLUSTER, 3),
        strike("live rescale", "in the middle of an epoch"),
        strike("executor", "after a while"),
        strike("driver", "at manifest_written"),
    ]
    with World(tmp_path / "world", s3_endpoint, SEED) as world:
        report = carry_out(world, "local[2,4]", strikes, SEED)
    assert report.differences == []
    assert report.in_flight >= 3


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
