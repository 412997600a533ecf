"""The product's policy, told what will arrive: no forecast of daily patterns could bring more."""

from __future__ import annotations

from dataclasses import replace

from statecore.policy.figures import Figures
from statecore.simulator.job import SimulatedJob
from statecore.simulator.players.statecore import Statecore

# A rescale that begins now serves the arrivals of so long: its hold time, its duration, the cooldown after it.
_AHEAD_S = 600
_SPAN_S = 120


class Foresight(Statecore):
    """``decide``, on the largest rate over two minutes within the next ten."""

    def figures(self, job: SimulatedJob) -> Figures:
        """Return the figures with what will arrive."""
        figures = super().figures(job)
        if figures.arriving is None:
            return figures
        last_s = job.trace.end_s - _SPAN_S
        times_s = [min(job.now_s + ahead_s, last_s) for ahead_s in range(0, _AHEAD_S, _SPAN_S)]
        rates = ((job.trace.arrived(at_s + _SPAN_S) - job.trace.arrived(at_s)) / _SPAN_S for at_s in times_s)
        return replace(figures, arriving=max(figures.arriving, *rates), rising=0.0)
