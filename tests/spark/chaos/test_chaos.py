"""A short campaign with a fixed seed: the most different victims, each once."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.campaign import carry_out
from tests.chaos.processes import CLUSTER
from tests.chaos.report import Report
from tests.chaos.strikes import strike
from tests.chaos.strikes.savepoints import rescale
from tests.chaos.world import World

SEED = 7


def test_whatever_breaks_state_and_outputs_are_those_of_an_undisturbed_run(tmp_path: Path, s3_endpoint: str) -> None:
    strikes = [
        strike("worker", "at changelog_written"),
        strike("paused driver", "manifest on its way"),
        rescale(CLUSTER, 3),
        strike("live rescale", "in the middle of an epoch"),
        strike("executor", "after a while"),
    ]
    report = Report(SEED)
    with World(tmp_path / "world", s3_endpoint, SEED) as world:
        carry_out(world, "local[2,4]", strikes, report)
    assert (report.differences, report.lost, report.doubled) == ([], 0, 0)
    assert report.in_flight >= 3
