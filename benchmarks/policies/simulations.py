"""Runs policies on shapes, each pair in a process of its own pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from benchmarks.policies.shapes import SHAPES
from statecore.policy.simulator import Outcome, player, simulate

OURS = "statecore"
PEERS = ("flink", "ds2", "aws")
POLICIES = (OURS, *PEERS, "fixed:2", "fixed:6", "fixed:16")
"""All policies; those of a fixed size are shown for scale."""

Outcomes = dict[str, dict[str, Outcome]]
"""By shape, then by policy."""


def simulated(shapes: Sequence[str], policies: Sequence[str], workers: int) -> Iterator[tuple[str, str, Outcome]]:
    """Yield shape, policy and outcome of each pair, as they end."""
    # Spawned, because a fork would copy the thread that draws the progress.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        # By policy, ours first: it takes longest, and the last ones should be short.
        pairs = {pool.submit(_simulated, shape, policy): (shape, policy) for policy in policies for shape in shapes}
        try:
            for done in as_completed(pairs):
                yield *pairs[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _simulated(shape: str, policy: str) -> Outcome:
    found = SHAPES[shape]
    return simulate(found.trace, found.world, player(policy, found.world))
