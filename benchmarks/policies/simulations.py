"""Runs policies on shapes, each pair in a process of its own pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import msgspec

from benchmarks.policies.foresight import Foresight
from benchmarks.policies.shapes import Shape
from statecore.simulator import Outcome, Player, player, simulate
from statecore.simulator.players.statecore import Statecore, settings_for

OURS = "statecore"
PEERS = ("flink", "ds2", "aws")
POLICIES = (OURS, *PEERS, "fixed:2", "fixed:6", "fixed:16")
"""The policies that are compared; those of a fixed size are shown for scale."""

Outcomes = dict[str, dict[str, Outcome]]
"""By shape, then by policy."""


def simulated(shapes: Sequence[Shape], policies: Sequence[str], workers: int) -> Iterator[tuple[str, str, Outcome]]:
    """Yield the shape's name, policy and outcome of each pair, as they end."""
    # Spawned, because a fork would copy the thread that draws the progress.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        # By policy, ours first: it takes longest, and the last ones should be short.
        pairs = {pool.submit(_simulated, shape, name): (shape.name, name) for name in policies for shape in shapes}
        try:
            for done in as_completed(pairs):
                yield *pairs[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _simulated(shape: Shape, policy: str) -> Outcome:
    plays = VARIANTS[policy](shape) if policy in VARIANTS else player(policy, shape.world)
    return simulate(shape.trace, shape.world, plays)


def _scheduled(shape: Shape) -> Player:
    return Statecore(msgspec.structs.replace(settings_for(shape.world), at_least=shape.at_least))


VARIANTS: dict[str, Callable[[Shape], Player]] = {
    "foresight": lambda shape: Foresight(settings_for(shape.world)),
    "scheduled": _scheduled,
}
"""Ours, told what will arrive, or with the shape's windows; not compared unless asked for."""
