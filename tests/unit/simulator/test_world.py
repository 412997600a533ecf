"""Worlds: their defaults, and files that do not fit."""

from __future__ import annotations

import pytest

from statecore.errors import ConfigurationError
from statecore.simulator import World, parse_world


def test_every_field_is_optional() -> None:
    assert parse_world("{}", "w.json") == World()
    world = parse_world('{"parallelism": 3, "outages": [[1, 2]], "sink_slow": [[5, 9, 2.5]], "noise": 0}', "w.json")
    assert (world.parallelism, world.outage(1), world.outage(2)) == (3, (1, 2), None)
    assert [world.sink_factor(at_s) for at_s in (4, 5, 9)] == [1, 2.5, 1]
    both = World(sink_slow=((0, 9, 2), (5, 9, 3)))
    assert [both.sink_factor(at_s) for at_s in (4, 5)] == [2, 3]


def test_a_world_by_a_later_clock_has_what_is_not_over_yet() -> None:
    world = World(outages=((10, 20), (30, 40)), sink_slow=((15, 50, 3),), parallelism=3).since(25)
    assert (world.outages, world.parallelism) == (((5, 15),), 3)
    assert [world.sink_factor(at_s) for at_s in (0, 24, 25)] == [3, 3, 1]


def test_epochs_may_run_back_to_back_and_outages_begin_before_0() -> None:
    world = parse_world('{"trigger_ms": 0, "outages": [[-5, 3]]}', "w.json")
    assert (world.trigger_ms, world.outage(0)) == (0, (-5, 3))


def test_the_busiest_subtask_has_an_even_share_unless_a_key_or_a_partition_has_more() -> None:
    assert World().share(4) == 0.25
    assert World(hot_key_share=0.6).share(4) == 0.6
    assert World(source_partitions=3).share(4) == pytest.approx(1 / 3)
    assert [World(subtasks_per_worker=4).workers_for(size) for size in (1, 4, 5)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "Expected `object`"),
        ("{", "no valid world"),
        ('{"speed": 1}', "speed"),
        ('{"noise": 1}', "noise"),
        ('{"trigger_ms": -1}', "trigger_ms"),
        ('{"parallelism": 0}', "parallelism"),
        ('{"min_parallelism": 9, "max_parallelism": 8}', "min_parallelism 9, max_parallelism 8"),
        ('{"parallelism": 9, "key_groups": 8}', "key_groups 8"),
        ('{"outages": [[5, 5]]}', "from 5 s to 5 s"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_world(text, "w.json")
    assert "w.json: " in str(refused.value) and said in str(refused.value)
