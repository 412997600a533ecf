"""The shapes: what arrives at which job, and what is right for it.

Unless a shape says otherwise, a job begins at parallelism 2, a subtask does 5,000 rows/s, the limits are 1 and 16, and
a row may wait for 60 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.policies.arrivals import HOUR, curve, noise, recorded, steps
from statecore.policy import Ailment
from statecore.simulator import Trace, World

ALWAYS = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Expected:
    """What is right for a shape; without any of it, the comparison with the peers is all.

    Attributes:
        stays: Stretch, in seconds, in which no rescale helps; such a shape is not compared with the peers.
        levels: Times at which a new level begins; each needs at most two rescales.
        rescales: Most rescales in all.
        grows: A scale-out has to come within so many seconds after the last level begins.
        diagnoses: Time at which a trouble begins, and the names that are right for it.

    """

    stays: tuple[float, float] | None = None
    levels: tuple[float, ...] = ()
    rescales: int | None = None
    grows: float | None = None
    diagnoses: tuple[tuple[float, tuple[Ailment, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """A simulated job: its name, what happens in a few words, its arrivals, its world, and what is right.

    Attributes:
        at_least: Windows for somebody who knows when more arrives; the time zone is UTC, and the first day begins at 0.

    """

    name: str
    what: str
    trace: Trace
    world: World
    expected: Expected = Expected()
    at_least: tuple[str, ...] = ()


def _right(at_s: float, *names: Ailment) -> tuple[tuple[float, tuple[Ailment, ...]], ...]:
    return ((at_s, names),)


_TOO_SMALL_AFTER_AN_HOUR = _right(HOUR, Ailment.TOO_SMALL)

_TROUBLES = (
    Shape(
        "hot_key",
        "a key with 60 % of the rows",
        steps(4 * HOUR, (0, 4_000), (1800, 9_000)),
        World(hot_key_share=0.6),
        Expected(stays=ALWAYS, diagnoses=_right(1800, Ailment.HOT_KEY)),
    ),
    Shape(
        "slow_sink",
        "a sink that never keeps up",
        steps(4 * HOUR, (0, 5_000)),
        World(parallelism=4, sink_us_per_row=250),
        Expected(stays=ALWAYS, diagnoses=_right(0, Ailment.SINK_BOUND)),
    ),
    Shape(
        "slow_sink_hour",
        "a sink that is slow for an hour",
        steps(4 * HOUR, (0, 5_000)),
        World(parallelism=4, sink_us_per_row=20, sink_slow=((HOUR, 2 * HOUR, 12),)),
        Expected(stays=(HOUR, 2 * HOUR), diagnoses=_right(HOUR, Ailment.SINK_BOUND)),
    ),
    Shape(
        "source_limit",
        "20,000 rows an epoch, 2 s of each fixed",
        steps(4 * HOUR, (0, 6_000), (HOUR, 12_000)),
        World(parallelism=3, fixed_ms=2_000, epoch_limit_rows=20_000),
        Expected(stays=ALWAYS, diagnoses=_right(HOUR, Ailment.SOURCE_BOUND)),
    ),
    Shape(
        "partitions",
        "more rows than 4 partitions give",
        steps(4 * HOUR, (0, 15_500), (HOUR, 30_000)),
        World(parallelism=4, source_partitions=4),
        Expected(stays=ALWAYS, diagnoses=_right(HOUR, Ailment.SOURCE_BOUND)),
    ),
    Shape(
        "at_limit",
        "more rows than the largest size does",
        steps(4 * HOUR, (0, 15_500), (HOUR, 30_000)),
        World(parallelism=4, max_parallelism=4),
        Expected(stays=ALWAYS, diagnoses=_right(HOUR, Ailment.AT_LIMIT)),
    ),
    Shape(
        "outage",
        "down for an hour",
        steps(5 * HOUR, (0, 5_000)),
        World(outages=((HOUR, 2 * HOUR),)),
        Expected(diagnoses=_right(HOUR, Ailment.FAILING)),
    ),
    Shape(
        "outage_slow_sink",
        "down for an hour, then a slow sink",
        steps(6 * HOUR, (0, 5_000)),
        World(outages=((HOUR, 2 * HOUR),), sink_us_per_row=20, sink_slow=((2 * HOUR, 3 * HOUR, 6),)),
        Expected(diagnoses=_right(HOUR, Ailment.FAILING)),
    ),
    Shape(
        "failing",
        "fails every 3 minutes for 45 minutes",
        steps(4 * HOUR, (0, 5_000)),
        World(outages=tuple((HOUR + again * 180, HOUR + again * 180 + 120) for again in range(15))),
        Expected(diagnoses=_right(HOUR, Ailment.FAILING)),
    ),
)

_STEPS = (
    Shape(
        "step",
        "3,000 → 20,000 rows/s",
        steps(4 * HOUR, (0, 3_000), (HOUR, 20_000)),
        World(),
        Expected(levels=(0, HOUR), grows=120, diagnoses=_TOO_SMALL_AFTER_AN_HOUR),
    ),
    Shape(
        "large_step",
        "3,000 → 60,000 rows/s, slow rows",
        steps(4 * HOUR, (0, 3_000), (HOUR, 60_000)),
        World(parallelism=3, max_parallelism=64, row_us=400),
        Expected(levels=(0, HOUR), diagnoses=_TOO_SMALL_AFTER_AN_HOUR),
    ),
    Shape(
        "slow_start",
        "a step; workers need 10 minutes",
        steps(4 * HOUR, (0, 3_000), (HOUR, 20_000)),
        World(worker_start_s=600),
        Expected(levels=(0, HOUR), diagnoses=_TOO_SMALL_AFTER_AN_HOUR),
    ),
    Shape(
        "step_down",
        "40,000 → 4,000 rows/s",
        steps(4 * HOUR, (0, 40_000), (HOUR, 4_000)),
        World(parallelism=10),
        Expected(levels=(0, HOUR), diagnoses=_right(HOUR, Ailment.TOO_LARGE)),
    ),
    Shape(
        "too_large",
        "3,000 rows/s at parallelism 16",
        steps(6 * HOUR, (0, 3_000)),
        World(parallelism=16),
        Expected(levels=(0,), diagnoses=_right(0, Ailment.TOO_LARGE)),
    ),
)

_BURSTS = (
    Shape(
        "spike",
        "25,000 rows/s for a minute, once",
        curve(4 * HOUR, lambda at_s: 25_000 if HOUR <= at_s < HOUR + 60 else 5_000),
        World(),
        Expected(stays=ALWAYS),
    ),
    Shape(
        "spikes",
        "15,000 rows/s for 90 s of every hour",
        curve(6 * HOUR, lambda at_s: 15_000 if at_s >= HOUR and at_s % HOUR < 90 else 5_000),
        World(),
        Expected(stays=ALWAYS),
    ),
    Shape(
        "pile",
        "900,000 rows every 20 minutes",
        curve(4 * HOUR, lambda at_s: 60_000 if at_s % 1200 < 15 else 500),
        World(),
        Expected(levels=(0,)),
    ),
    Shape(
        "square",
        "20 minutes at 3,000, 20 at 15,000 rows/s",
        curve(4 * HOUR, lambda at_s: 15_000 if at_s // 1200 % 2 else 3_000),
        World(),
        Expected(rescales=4),
    ),
    Shape("noise", "40 % of noise", noise(4 * HOUR, 5_500, 0.4), World(noise=0.2), Expected(stays=ALWAYS)),
)

_TRENDS = (
    Shape(
        "ramp",
        "3,000 → 30,000 rows/s in 4 h",
        curve(4 * HOUR, lambda at_s: 3_000 + 27_000 * at_s / (4 * HOUR)),
        World(),
    ),
    Shape(
        "fast_ramp",
        "3,000 → 30,000 rows/s in 30 minutes",
        curve(4 * HOUR, lambda at_s: 3_000 + 27_000 * min(1, max(0, at_s - 1800) / 1800)),
        World(),
    ),
    Shape(
        "sine",
        "2,000 to 30,000 rows/s and back in 6 h, twice",
        curve(12 * HOUR, lambda at_s: 16_000 - 14_000 * math.cos(2 * math.pi * at_s / (6 * HOUR))),
        World(),
    ),
)

_SHIFTS = (
    Shape(
        "shifts",
        "ten times the load for an hour, every two hours",
        steps(6 * HOUR, *((hour * HOUR, 30_000 if hour % 2 else 3_000) for hour in range(6))),
        World(),
        Expected(levels=tuple(hour * HOUR for hour in range(6))),
        ("55 0,2,4 * * * for 1h5m: 8",),
    ),
)

_RECORDED = (
    Shape("flights", "a day of departures, in 6 h", recorded("flights"), World()),
    Shape("electricity", "three days of demand, in 9 h", recorded("electricity"), World(parallelism=6)),
    Shape("calls", "a day of calls, in 7 h", recorded("calls"), World()),
)

SHAPES = {each.name: each for each in (*_TROUBLES, *_STEPS, *_BURSTS, *_TRENDS, *_SHIFTS, *_RECORDED)}
