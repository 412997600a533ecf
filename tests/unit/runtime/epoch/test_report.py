"""Where the time of an epoch went, by what the driver and the subtasks measured."""

from __future__ import annotations

from statecore.runtime.epoch.report import EpochReport, Timing, epoch_report
from statecore.runtime.epoch.sources_read import SourcesRead
from statecore.runtime.job import Job
from statecore.runtime.messages import SubtaskCommit
from tests.support.handmade import manifest, subtask_commit


def took(load_ms: int, read_ms: int, process_ms: int, write_ms: int) -> SubtaskCommit:
    return subtask_commit(load_ms=load_ms, read_ms=read_ms, process_ms=process_ms, write_ms=write_ms)


def report(run_s: float, **operators: list[SubtaskCommit]) -> EpochReport:
    return epoch_report(manifest(), operators, Timing(0, run_s, 0.02, 0.1, {}), SourcesRead(Job(), {}, (), {}), ())


def test_what_the_longest_subtask_of_each_of_two_chained_operators_leaves_of_the_run_is_reading() -> None:
    # Their longest take 100 and 260 ms; the longest phases of all subtasks together would be 540 ms.
    first = [took(10, 20, 60, 10), took(70, 10, 10, 5)]
    second = [took(0, 30, 200, 30), took(0, 90, 40, 120)]
    phases = report(0.5, first=first, second=second).phases_ms
    assert (phases["run"], phases["read"], phases["transfer"]) == (500, 500 - 100 - 260, 90)
    assert (phases["load"], phases["process"], phases["write"]) == (70, 200, 120)


def test_operators_that_ran_side_by_side_leave_nothing_for_reading() -> None:
    assert report(0.3, one=[took(0, 0, 200, 0)], other=[took(0, 0, 250, 0)]).phases_ms["read"] == 0
