"""The simulated world: the cost of epochs and rescales, and the failures."""

from __future__ import annotations

from typing import Annotated

import msgspec

from statecore.errors import ConfigurationError

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Amount = Annotated[float, msgspec.Meta(ge=0)]
_Seed = Annotated[int, msgspec.Meta(ge=0)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class World(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job and its surroundings.

    An epoch reads the ``n`` rows that wait when it begins, at most ``epoch_limit_rows``. It lasts ``fixed_ms + n ×
    (row_us × max(1 / min(parallelism, source_partitions), hot_key_share) + sink_us_per_row × factor) / 1000`` ms, times
    1 ± ``noise``, and at least 1 ms.

    Attributes:
        parallelism: Parallelism at the start.
        min_parallelism, max_parallelism: Limits of the policy.
        key_groups: The job's max parallelism.
        subtasks_per_worker: Subtasks of one worker.
        fixed_ms: Time of any epoch.
        row_us: Time of a row at parallelism 1.
        hot_key_share: Share of the rows that have one key.
        sink_us_per_row: Time to publish a row; more subtasks do not help.
        epoch_limit_rows: Most rows of an epoch; None for no limit.
        source_partitions: Most subtasks that read at once; None for no limit.
        trigger_ms: Shortest time from the start of an epoch to the start of the next.
        noise: How far the time of an epoch is off, as a fraction.
        rescale_s: Time in which a rescale processes nothing.
        worker_start_s: Time until new workers are ready; the job runs meanwhile.
        slo_s: Largest acceptable age of a waiting row.
        seed: Seed of the noise.
        outages: ``[from_s, to_s]`` on the clock of the trace: the job is down, and arrivals pile up.
        sink_slow: ``[from_s, to_s, factor]``: publishing takes ``factor`` times as long.

    """

    parallelism: _Count = 2
    min_parallelism: _Count = 1
    max_parallelism: _Count = 16
    key_groups: _Count = 128
    subtasks_per_worker: _Count = 1
    fixed_ms: _Amount = 300.0
    row_us: _Amount = 200.0
    hot_key_share: _Share = 0.0
    sink_us_per_row: _Amount = 0.0
    epoch_limit_rows: _Count | None = None
    source_partitions: _Count | None = None
    trigger_ms: _Amount = 1000.0
    noise: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    rescale_s: _Amount = 20.0
    worker_start_s: _Amount = 60.0
    slo_s: _Amount = 60.0
    seed: _Seed = 0
    outages: tuple[tuple[float, float], ...] = ()
    sink_slow: tuple[tuple[float, float, _Amount], ...] = ()

    def workers_for(self, parallelism: int) -> int:
        """Return the workers that a parallelism needs."""
        return -(-parallelism // self.subtasks_per_worker)

    def share(self, parallelism: int) -> float:
        """Return the share of the rows that the busiest subtask handles."""
        return max(1 / min(parallelism, self.source_partitions or parallelism), self.hot_key_share)

    def sink_factor(self, at_s: float) -> float:
        """Return the factor by which publishing is slower at a time."""
        return max((factor for from_s, to_s, factor in self.sink_slow if from_s <= at_s < to_s), default=1.0)

    def since(self, began_s: float) -> World:
        """Return the world by a clock that shows 0 at ``began_s``, without outages that ended before."""
        outages = tuple((from_s - began_s, to_s - began_s) for from_s, to_s in self.outages if to_s > began_s)
        slow = tuple((from_s - began_s, to_s - began_s, factor) for from_s, to_s, factor in self.sink_slow)
        return msgspec.structs.replace(self, outages=outages, sink_slow=slow)

    def outage(self, at_s: float) -> tuple[float, float] | None:
        """Return the outage at a time, or None."""
        return next((each for each in self.outages if each[0] <= at_s < each[1]), None)


def parse_world(text: bytes | str, name: str) -> World:
    """Parse a world from JSON; every field is optional.

    Raises:
        ConfigurationError: The text is no JSON, or a field is unknown or out of bounds.

    """
    try:
        world = msgspec.json.decode(text, type=World)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"{name}: found no valid world: {error}; expected a JSON object with any of "
            f"{', '.join(World.__struct_fields__)}; correct the file"
        ) from error
    highest = min(world.max_parallelism, world.key_groups)
    if world.min_parallelism > highest or world.parallelism > world.key_groups:
        raise ConfigurationError(
            f"{name}: found parallelism {world.parallelism}, min_parallelism {world.min_parallelism}, max_parallelism "
            f"{world.max_parallelism} and key_groups {world.key_groups}; expected the smallest at most the largest, "
            "and none above the key groups; correct the file"
        )
    for from_s, to_s in (*world.outages, *((each[0], each[1]) for each in world.sink_slow)):
        if to_s <= from_s:
            raise ConfigurationError(
                f"{name}: found a stretch from {from_s:g} s to {to_s:g} s; expected its end after its start; "
                "correct outages or sink_slow"
            )
    return world
