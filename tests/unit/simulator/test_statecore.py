"""The figures that the simulator gives the product's policy: those that the runtime would have recorded."""

from __future__ import annotations

from statecore.policy import Figures
from statecore.simulator import Answer, Trace, World, simulate
from statecore.simulator.job import SimulatedJob
from statecore.simulator.players.statecore import Statecore, settings_for


class _Watched(Statecore):
    """Keeps the figures of each look; rescales once, at 100 s, if at all."""

    def __init__(self, world: World, to: int | None = None) -> None:
        super().__init__(settings_for(world))
        self.seen: dict[float, Figures] = {}
        self._to = to

    def look(self, job: SimulatedJob) -> Answer:
        self.seen[job.now_s] = self.figures(job)
        return Answer(self._to if job.now_s == 100 else None)


def _figures(world: World, to: int | None = None) -> dict[float, Figures]:
    watched = _Watched(world, to)
    simulate(Trace([0, 400], [1_000]), world, watched)
    return watched.seen


def test_drivers_fail_one_after_the_other_until_one_has_committed_an_epoch() -> None:
    seen = _figures(World(noise=0.0, outages=((100, 160),)))
    assert [seen[at_s].crashes for at_s in (95, 100, 105, 110, 140, 160, 170)] == [0, 1, 2, 3, 9, 10, 0]
    # A short outage is one failure, and no row of them.
    assert max(each.crashes for each in _figures(World(outages=((100, 104),))).values()) == 1


def test_a_driver_with_nothing_to_commit_settles_after_a_minute() -> None:
    watched = _Watched(world := World(outages=((100, 160),)))
    simulate(Trace([0, 400], [0]), world, watched)
    assert [watched.seen[at_s].crashes for at_s in (220, 225)] == [10, 0]


def test_the_downtime_of_a_rescale_is_assumed_before_the_first_and_measured_after() -> None:
    seen = _figures(World(rescale_s=45), to=4)
    assert (seen[95].downtime_ms, seen[395].downtime_ms) == (20_000, 45_000)
    assert {each.downtime_ms for each in _figures(World(rescale_s=0), to=4).values()} == {None}
