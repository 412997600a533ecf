"""Random shapes: the kinds are those of ``shapes.py``, all their figures are drawn.

They show whether the policy does well on jobs that nobody had in mind when making it. So tune on the shapes of one
seed, and judge on those of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from benchmarks.policies.arrivals import HOUR, curve, noise, steps
from benchmarks.policies.shapes import ALWAYS, Expected, Shape
from statecore.policy import Ailment
from statecore.simulator import Trace, World

# A job has found its size after half an hour.
_SETTLED_S = 1800.0
SPIKES_S = (30, 60, 90)
"""How long a spike lasts, for which no rescale is right."""
_MOST_USED = 0.75  # largest share of what the largest size does that arrives


def random_shapes(count: int, seed: int) -> dict[str, Shape]:
    """Return shapes by name, the kinds in turn; the same arguments always give the same shapes."""
    shapes = (_shape(index, seed) for index in range(count))
    return {each.name: each for each in shapes}


def _shape(index: int, seed: int) -> Shape:
    draw = Random(f"{seed} {index}")  # noqa: S311 - repeatable, not secret
    shape = _KINDS[index % len(_KINDS)](draw, _world(draw))
    return replace(shape, name=f"{shape.name}_{index}")


def _world(draw: Random) -> World:
    return World(
        parallelism=draw.randint(1, 5),
        max_parallelism=draw.choice((12, 16, 24, 32)),
        row_us=draw.choice((100, 200, 300, 400)),
        fixed_ms=draw.choice((150, 300, 600, 1000)),
        trigger_ms=draw.choice((500, 1000, 2000, 5000)),
        noise=draw.choice((0.02, 0.05, 0.1, 0.15)),
        rescale_s=draw.choice((5, 10, 20, 30)),
        worker_start_s=draw.choice((0, 30, 60, 120)),
        seed=draw.randint(0, 99),
    )


def _in(world: World, **fields: Any) -> World:
    return msgspec.structs.replace(world, **fields)


def _can(world: World, parallelism: int) -> float:
    """Return the rows a second that a size does, but for the fixed cost."""
    return parallelism * 1e6 / world.row_us


def _usual(draw: Random, world: World) -> float:
    """Return a rate that the size at the start does easily."""
    return _can(world, world.parallelism) * draw.uniform(0.35, 0.7)


def _times(world: World, rate: float, factor: float) -> float:
    """Return a multiple of a rate, at most what the largest size does easily."""
    return min(rate * factor, _MOST_USED * _can(world, world.max_parallelism))


def _hot_key(draw: Random, world: World) -> Shape:
    share = draw.uniform(0.4, 0.8)
    world = _in(world, hot_key_share=share, parallelism=max(2, world.parallelism))
    limit = _can(world, 1) / share
    trace = steps(4 * HOUR, (0, 0.5 * limit), (_SETTLED_S, limit * draw.uniform(1.05, 1.6)))
    expected = Expected(stays=(_SETTLED_S, math.inf), diagnoses=((_SETTLED_S, (Ailment.HOT_KEY,)),))
    return Shape("hot_key", "a hot key", trace, world, expected)


def _slow_sink(draw: Random, world: World) -> Shape:
    rate = _usual(draw, world)
    world = _in(world, sink_us_per_row=1e6 / rate * draw.uniform(1.1, 1.5))
    expected = Expected(stays=ALWAYS, diagnoses=((0, (Ailment.SINK_BOUND,)),))
    return Shape("slow_sink", "a sink that never keeps up", steps(4 * HOUR, (0, rate)), world, expected)


def _slow_sink_hour(draw: Random, world: World) -> Shape:
    rate = _usual(draw, world)
    world = _in(world, sink_us_per_row=0.1e6 / rate, sink_slow=((HOUR, 2 * HOUR, draw.uniform(8, 15)),))
    expected = Expected(stays=(HOUR, 2 * HOUR), diagnoses=((HOUR, (Ailment.SINK_BOUND,)),))
    return Shape("slow_sink_hour", "a sink that is slow for an hour", steps(4 * HOUR, (0, rate)), world, expected)


def _source_limit(draw: Random, world: World) -> Shape:
    rate = _usual(draw, world)
    world = _in(world, fixed_ms=draw.choice((1500, 2000, 3000)), epoch_limit_rows=int(2.5 * rate))
    trace = steps(4 * HOUR, (0, 0.5 * rate), (HOUR, 1100 * int(2.5 * rate) / world.fixed_ms))
    expected = Expected(stays=(HOUR, math.inf), diagnoses=((HOUR, (Ailment.SOURCE_BOUND,)),))
    return Shape("source_limit", "more rows than the limit of an epoch lets through", trace, world, expected)


def _partitions(draw: Random, world: World) -> Shape:
    count = draw.choice((2, 3, 4, 6))
    world = _in(world, parallelism=count, source_partitions=count)
    trace = steps(4 * HOUR, (0, 0.75 * _can(world, count)), (HOUR, _can(world, count) * draw.uniform(1.1, 1.8)))
    expected = Expected(stays=(HOUR, math.inf), diagnoses=((HOUR, (Ailment.SOURCE_BOUND,)),))
    return Shape("partitions", "more rows than the partitions give", trace, world, expected)


def _outage(draw: Random, world: World) -> Shape:
    trace = steps(5 * HOUR, (0, _usual(draw, world)))
    world = _in(world, outages=((HOUR, HOUR * draw.choice((1.25, 1.5, 2))),))
    return Shape("outage", "down for a while", trace, world, Expected(diagnoses=((HOUR, (Ailment.FAILING,)),)))


def _outage_slow_sink(draw: Random, world: World) -> Shape:
    rate = _usual(draw, world)
    slow = (1.5 * HOUR, 2.2 * HOUR, draw.uniform(3, 7))
    world = _in(world, outages=((HOUR, 1.5 * HOUR),), sink_us_per_row=0.1e6 / rate, sink_slow=(slow,))
    expected = Expected(diagnoses=((HOUR, (Ailment.FAILING,)),))
    return Shape("outage_slow_sink", "down, then a slow sink", steps(5 * HOUR, (0, rate)), world, expected)


def _failing(draw: Random, world: World) -> Shape:
    trace = steps(4 * HOUR, (0, _usual(draw, world)))
    every_s, times = draw.choice((150, 180, 240)), draw.choice((8, 15))
    begins = [HOUR + again * every_s for again in range(times)]
    world = _in(world, outages=tuple((at_s, at_s + 0.6 * every_s) for at_s in begins))
    expected = Expected(diagnoses=((HOUR, (Ailment.FAILING,)),))
    return Shape("failing", "fails again and again", trace, world, expected)


def _step(draw: Random, world: World) -> Shape:
    low = _usual(draw, world)
    high = _times(world, low, draw.uniform(2, 8))
    short = high > 1.2 * _can(world, world.parallelism)
    diagnoses = ((HOUR, (Ailment.TOO_SMALL,)),) if short else ()
    expected = Expected(levels=(0, HOUR), grows=120 if short else None, diagnoses=diagnoses)
    return Shape("step", "a step", steps(4 * HOUR, (0, low), (HOUR, high)), world, expected)


def _two_steps(draw: Random, world: World) -> Shape:
    low = _usual(draw, world)
    levels = ((0, low), (HOUR, _times(world, low, 2.2)), (2.5 * HOUR, _times(world, low, 5)), (4 * HOUR, low))
    expected = Expected(levels=tuple(at_s for at_s, _ in levels))
    return Shape("two_steps", "two steps up, and down again", steps(6 * HOUR, *levels), world, expected)


def _slow_start(draw: Random, world: World) -> Shape:
    low = _usual(draw, world)
    trace = steps(4 * HOUR, (0, low), (HOUR, _times(world, low, draw.uniform(2, 8))))
    world = _in(world, worker_start_s=draw.choice((300, 600, 900)))
    return Shape("slow_start", "a step; workers start slowly", trace, world, Expected(levels=(0, HOUR)))


def _step_down(draw: Random, world: World) -> Shape:
    world = _in(world, parallelism=draw.randint(6, 12))
    high = 0.75 * _can(world, world.parallelism)
    trace = steps(4 * HOUR, (0, high), (HOUR, high / draw.uniform(3, 12)))
    expected = Expected(levels=(0, HOUR), diagnoses=((HOUR, (Ailment.TOO_LARGE,)),))
    return Shape("step_down", "a step down", trace, world, expected)


def _spike(draw: Random, world: World) -> Shape:
    rate = _usual(draw, world)
    lasts_s, high, every_s = draw.choice(SPIKES_S), rate * draw.uniform(3, 6), draw.choice((5 * HOUR, HOUR, 5400))
    trace = curve(5 * HOUR, lambda at_s: high if at_s >= HOUR and (at_s - HOUR) % every_s < lasts_s else rate)
    return Shape("spike", "a spike, now and then or once", trace, world, Expected(stays=(_SETTLED_S, math.inf)))


def _pile(draw: Random, world: World) -> Shape:
    every_s, rows = draw.choice((900, 1200, 1800, 2400)), _can(world, world.parallelism) * draw.uniform(60, 150)
    low = 0.1 * _usual(draw, world)
    trace = curve(4 * HOUR, lambda at_s: rows / 15 if at_s % every_s < 15 else low)
    return Shape("pile", "piles", trace, world, Expected(levels=(0,)))


def _square(draw: Random, world: World) -> Shape:
    low, every_s = _usual(draw, world), draw.choice((600, 900, 1200, 1500))
    high = _times(world, low, draw.uniform(2.5, 5))
    trace = curve(5 * HOUR, lambda at_s: high if at_s // every_s % 2 else low)
    return Shape("square", "high and low in turn", trace, world, Expected(rescales=4))


def _noise(draw: Random, world: World) -> Shape:
    rate = _can(world, world.parallelism) * draw.uniform(0.5, 0.6)
    trace = noise(4 * HOUR, rate, draw.uniform(0.2, 0.4))
    return Shape("noise", "noise", trace, world, Expected(stays=(_SETTLED_S, math.inf)))


def _ramp(draw: Random, world: World) -> Shape:
    low, takes_s = _usual(draw, world), HOUR * draw.choice((0.5, 1, 2, 4))
    rises = _MOST_USED * _can(world, world.max_parallelism) - low
    trace = curve(5 * HOUR, lambda at_s: low + rises * min(1.0, at_s / takes_s))
    return Shape("ramp", "a ramp", trace, world)


def _noisy_ramp(draw: Random, world: World) -> Shape:
    low, high = _usual(draw, world), _MOST_USED * _can(world, world.max_parallelism)
    around = noise(5 * HOUR, 1, 0.25, 30)
    rates = [
        off * (low + (high - low) * at_s / around.end_s)
        for off, at_s in zip(around.rates, around.times_s, strict=False)
    ]
    return Shape("noisy_ramp", "a noisy ramp", Trace(around.times_s, rates), world)


def _sine(draw: Random, world: World) -> Shape:
    high = _can(world, world.max_parallelism) * draw.uniform(0.4, 0.75)
    low, takes_s = high / draw.uniform(3, 15), HOUR * draw.choice((3, 4, 6, 8))
    middle, swing = (high + low) / 2, (high - low) / 2
    trace = curve(12 * HOUR, lambda at_s: middle - swing * math.cos(2 * math.pi * at_s / takes_s))
    return Shape("sine", "a sine", trace, world)


def _day(draw: Random, world: World) -> Shape:
    """Return a day in eight hours, with a peak in the morning and one in the evening."""
    high = _can(world, world.max_parallelism) * draw.uniform(0.4, 0.75)
    low = high / draw.uniform(3, 8)
    peaks = (0.6 * high, 0.9 * high, high, 0.8 * high, 0.95 * high, 0.7 * high, 0.4 * high)
    points = (low, 0.8 * low, low, *peaks, 1.3 * low, low, low)
    around = noise(8 * HOUR, 1, 0.08)

    def rate(at_s: float) -> float:
        hour, part = divmod(at_s / around.end_s * (len(points) - 1), 1)
        here, after = points[int(hour)], points[min(int(hour) + 1, len(points) - 1)]
        return (here + (after - here) * part) * around.rates[min(int(at_s // 60), len(around.rates) - 1)]

    return Shape("day", "a day in eight hours", curve(8 * HOUR, rate, 30), world)


_KINDS: tuple[Callable[[Random, World], Shape], ...] = (
    _hot_key,
    _slow_sink,
    _slow_sink_hour,
    _source_limit,
    _partitions,
    _outage,
    _outage_slow_sink,
    _failing,
    _step,
    _two_steps,
    _slow_start,
    _step_down,
    _spike,
    _pile,
    _square,
    _noise,
    _ramp,
    _noisy_ramp,
    _sine,
    _day,
)
