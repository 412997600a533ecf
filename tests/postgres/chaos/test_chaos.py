"""A short campaign with a fixed seed, on a catalog that a primary and its standby keep: clocks, locks, savepoints."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.chaos.campaign import carry_out
from tests.chaos.clocks import has_clocks
from tests.chaos.report import Report
from tests.chaos.strikes import strike
from tests.chaos.world import World
from tests.support.postgres import Replicated

SEED = 11


def test_whatever_clocks_locks_and_people_do_each_lineage_is_that_of_an_undisturbed_run(
    tmp_path: Path, s3_endpoint: str
) -> None:
    assert has_clocks(), "found no C compiler"
    strikes = [
        strike("client of the catalog", "frozen in a transaction"),
        strike("clock", "of the driver, -30 s"),
        strike("drop of a savepoint", "in the middle of an epoch"),
        strike("roll-back", "cut off by a kill, with a claim"),
    ]
    report = Report(SEED)
    with closing(Replicated()) as servers, World(tmp_path / "world", s3_endpoint, SEED, servers) as world:
        carry_out(world, "local[2,4]", strikes, report)
    assert (report.differences, report.lost, report.doubled) == ([], 0, 0)
    assert len(report.rounds) == len(strikes)
    assert report.lineages == 2
    assert report.in_flight >= 3
