"""A short campaign with a fixed seed, on a catalog that a primary and its standby keep."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.campaign import carry_out
from tests.chaos.clocks import has_clocks
from tests.chaos.processes import CLUSTER
from tests.chaos.report import Report
from tests.chaos.strikes import strike
from tests.chaos.strikes.savepoints import rescale
from tests.chaos.world import World
from tests.support.postgres import Replicated

pytestmark = pytest.mark.nightly

SEED = 11


def test_whatever_processes_and_clocks_do_state_and_outputs_are_those_of_an_undisturbed_run(
    tmp_path: Path, s3_endpoint: str
) -> None:
    assert has_clocks(), "found no C compiler"
    strikes = [
        strike("worker", "at changelog_written"),
        strike("paused driver", "manifest on its way"),
        rescale(CLUSTER, 3),
        strike("live rescale", "in the middle of an epoch"),
        strike("clock", "of the driver, -30 s"),
        strike("client of the catalog", "frozen in a transaction"),
    ]
    report = Report(SEED)
    with closing(Replicated()) as servers, World(tmp_path / "world", s3_endpoint, SEED, servers) as world:
        carry_out(world, "local[2,4]", strikes, report)
    assert (report.differences, report.lost, report.doubled) == ([], 0, 0)
    assert len(report.rounds) == len(strikes)
    assert report.in_flight >= 3
