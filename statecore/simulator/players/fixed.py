"""A fixed size, for comparison."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.simulator.job import SimulatedJob
from statecore.simulator.simulation import Answer
from statecore.simulator.world import World


@dataclass(frozen=True, slots=True)
class Fixed:
    """A job that is never rescaled."""

    parallelism: int

    def starts_with(self, world: World) -> int:
        """Return the fixed size."""
        del world
        return self.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        """Change nothing."""
        del job
        return Answer()
