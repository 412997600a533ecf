"""Each diagnosis: its name, the figures behind it, in evidence and words, and what is to be done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from statecore.policy import Ailment, Figures, HeavyKey, HeavyKeyGroup, PolicySettings, SlowSink, decide, diagnose
from statecore.policy.capacity import throughput
from statecore.policy.needs import Needs
from tests.unit.policy.test_cost import SIZES, epochs
from tests.unit.policy.test_decision import NO_WAIT, NOTHING, figures
from tests.unit.policy.test_effects import costs, job

NO_HELP = "a larger cluster would not help"


def phased(*, fixed_ms: float = 1.0, row_ms: float, read: float = 0.0, publish: float = 0.0, **others: Any) -> Figures:
    """A job at parallelism 4 whose rows cost so much, with these shares of it in phases."""
    measured = [
        replace(
            each,
            read_ms=read * row_ms * each.rows,
            work_ms=(1 - read - publish) * row_ms * each.rows,
            publish_ms=publish * row_ms * each.rows,
        )
        for each in epochs(SIZES, fixed_ms=fixed_ms, row_ms=row_ms, parallelism=4)
    ]
    return replace(figures(4, **others), epochs=tuple(measured))


@dataclass
class Case:
    """A job and its diagnosis; ``evidence`` leaves out what is as in a job without phases, keys and backlog."""

    name: Ailment
    job: Figures
    evidence: dict[str, float]
    said: tuple[str, ...]
    todo: str = ""
    settings: PolicySettings = field(default=NO_WAIT)


CASES = {
    "healthy": Case(
        Ailment.HEALTHY,
        figures(2),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 16_000, "row_ms": 0.0625},
        ("10,000 rows/s arrive, 0 rows wait, epochs run 100% of the time", "15,991 rows/s at parallelism 2"),
    ),
    # It reads the more rows.
    "healthy, with a trigger that epochs wait for": Case(
        Ailment.HEALTHY,
        figures(2, trigger_ms=60_000),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 16_000, "row_ms": 0.0625},
        ("15,991 rows/s at parallelism 2",),
    ),
    "too small": Case(
        Ailment.TOO_SMALL,
        figures(4, arriving=40_000.0, lag_ms=7_000),
        {"arriving": 40_000, "needed": 47_059, "rows_per_second": 32_000, "row_ms": 0.03125},
        ("40,000 rows/s arrive", "lag 7 s", "31,973 rows/s at parallelism 4, 47,940 at 6 (scaling assumed linear)"),
    ),
    "too large": Case(
        Ailment.TOO_LARGE,
        figures(4),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 32_000, "row_ms": 0.03125},
        ("10,000 rows/s arrive", "31,973 rows/s at parallelism 4, 15,993 at 2"),
    ),
    "at its limit": Case(
        Ailment.AT_LIMIT,
        figures(16, arriving=200_000.0),
        {"arriving": 200_000, "needed": 235_294, "rows_per_second": 128_000, "row_ms": 0.0078},
        ("200,000 rows/s arrive", "127,846 rows/s at parallelism 16, the largest allowed"),
        "allow more than 16, with `statecore policy set flights --max-parallelism …`",
    ),
    "failing": Case(
        Ailment.FAILING,
        figures(4, crashes=3, crash="out of disk"),
        {"crashes": 3},
        ("the last 3 drivers failed, the newest with: out of disk",),
        f"remove the cause; {NO_HELP}",
    ),
    "full, and no cluster to grow": Case(
        Ailment.MEMORY_BOUND,
        figures(2, memory_share=0.85),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 16_000, "row_ms": 0.0625, "memory_share": 0.85},
        ("a worker used 85% of its memory",),
        "give the workers more memory or the job more of them, or let state expire",
    ),
    # The policy itself has something to do.
    "full, with a cluster": Case(
        Ailment.MEMORY_BOUND,
        figures(2, memory_share=0.85, workers=2),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 16_000, "row_ms": 0.0625, "memory_share": 0.85},
        ("a worker used 85% of its memory",),
    ),
    "a hot key": Case(
        Ailment.HOT_KEY,
        figures(4, arriving=40_000.0, heavy_keys=(HeavyKey("EWR", 0.6),), busiest_share=0.7),
        {"arriving": 40_000, "needed": 47_059, "rows_per_second": 32_000, "row_ms": 0.03125}
        | {"busiest_share": 0.7, "heaviest_key": 0.6, "part": 0.856},
        ("40,000 rows/s arrive", "the key EWR has 60% of the work"),
        f"split the key in the job, with a random part that a second operator merges, or filter it; {NO_HELP}",
    ),
    # A subtask cannot have less than one key group.
    "a heavy key group": Case(
        Ailment.SKEW,
        replace(figures(8, arriving=90_000.0, busiest_share=0.3), max_parallelism=8),
        {"arriving": 90_000, "needed": 105_882, "rows_per_second": 64_000, "row_ms": 0.0156}
        | {"busiest_share": 0.3, "part": 0.997},
        ("90,000 rows/s arrive", "the busiest subtask has 30% of the rows, not 12%"),
        "look at the rows of subtasks and key groups on the job's page, and choose a key that spreads them; " + NO_HELP,
        structs.replace(NO_WAIT, align=True),
    ),
    "a slow sink": Case(
        Ailment.SINK_BOUND,
        phased(row_ms=0.2, publish=0.9, slowest_sink=SlowSink("audit", 0.75)),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 5_000, "row_ms": 0.2}
        | {"work": 0.1, "publish": 0.9, "part": 0.9},
        ("10,000 rows/s arrive", "publishing takes 90% of an epoch, and the sink audit takes 75% of that"),
        f"look at the sink: its load, its locks, its indexes; {NO_HELP}",
    ),
    "a source that limits epochs": Case(
        Ailment.SOURCE_BOUND,
        phased(fixed_ms=2_000, row_ms=0.05, arriving=9_000.0, waiting=400_000, epoch_limit=20_000),
        {"arriving": 9_000, "waiting": 400_000, "needed": 10_588, "rows_per_second": 6_667, "row_ms": 0.05}
        | {"fixed_ms": 2_000, "limit_rows": 45_000},
        ("400,000 rows wait", "the source limits an epoch to 20,000 rows, and 2.0 s of each are fixed"),
        "raise the limit to 45,000 rows an epoch, with maxOffsetsPerTrigger, maxFilesPerTrigger or the like; "
        + NO_HELP,
    ),
    "a source that limits epochs, and a trigger that keeps them apart": Case(
        Ailment.SOURCE_BOUND,
        phased(fixed_ms=500, row_ms=0.05, arriving=9_000.0, waiting=400_000, epoch_limit=20_000, trigger_ms=4_000),
        {"arriving": 9_000, "waiting": 400_000, "needed": 10_588, "rows_per_second": 5_000, "row_ms": 0.05}
        | {"fixed_ms": 500, "limit_rows": 43_000},
        ("the source limits an epoch to 20,000 rows, and the next one begins 4.0 s after it",),
        "raise the limit to 43,000 rows an epoch, with maxOffsetsPerTrigger, maxFilesPerTrigger or the like, or "
        "trigger epochs more often; " + NO_HELP,
    ),
    "a source with few partitions": Case(
        Ailment.SOURCE_BOUND,
        phased(row_ms=0.2, read=0.9, source_partitions=3),
        {"arriving": 10_000, "needed": 11_765, "rows_per_second": 5_000, "row_ms": 0.2}
        | {"read": 0.9, "work": 0.1, "part": 0.9},
        ("reading takes 90% of an epoch, and the source has 3 partitions",),
        f"give the source more partitions; {NO_HELP}",
    ),
    "epochs that pause": Case(
        Ailment.SOURCE_BOUND,
        figures(4, arriving=40_000.0, waiting=1_000_000, busy=0.2),
        {"arriving": 40_000, "waiting": 1_000_000, "needed": 47_059, "rows_per_second": 32_000, "row_ms": 0.03125},
        ("1,000,000 rows wait, epochs run 20% of the time", "but epochs pause while rows wait"),
        f"look at what triggers epochs and at what the source delivers; {NO_HELP}",
    ),
    # More arrives than any size could do, as publishing and the fixed cost are not divided.
    "epochs that cost much": Case(
        Ailment.FIXED_COST,
        phased(fixed_ms=2_000, row_ms=0.2, publish=0.09, arriving=200_000.0),
        {"arriving": 200_000, "needed": 235_294, "rows_per_second": 4_500, "row_ms": 0.2}
        | {"fixed_ms": 2_000, "work": 0.91, "publish": 0.09, "part": 0.1},
        ("4,500 rows/s at parallelism 4", "10% of an epoch, 2.0 s, is the same for any number of rows"),
        "look at the phases of epochs on the job's page, and trigger epochs less often, with "
        f"statecore.trigger.interval; {NO_HELP}",
    ),
    "epochs too long for the limit of lag": Case(
        Ailment.FIXED_COST,
        phased(fixed_ms=40_000, row_ms=0.06, waiting=300_000, lag_ms=70_000),
        {"arriving": 10_000, "waiting": 300_000, "needed": 11_765, "rows_per_second": 15_000, "row_ms": 0.06}
        | {"fixed_ms": 40_000, "limit_s": 60},
        ("lag 70 s", "40 s of each epoch are the same for any number of rows, so rows may wait 80 s, longer than the "),
        f"look at the phases of epochs on the job's page, or allow more lag; {NO_HELP}",
        structs.replace(NO_WAIT, max_lag_s=60.0),
    ),
    "a heavy subtask that more subtasks did not relieve": Case(
        Ailment.SKEW,
        job(8, *costs(4), *costs(8), busiest_share=0.3, heavy_key_group=HeavyKeyGroup(17, 0.22)),
        {"arriving": 20_000, "waiting": 100_000, "needed": 23_529, "rows_per_second": 8_000, "row_ms": 0.125}
        | {"busiest_share": 0.3, "part": 1.0},
        ("the busiest subtask has 30% of the rows, not 12%, and key group 17 has 22% of the work",),
        "look at the rows of subtasks and key groups on the job's page, and choose a key that spreads them; " + NO_HELP,
    ),
    "subtasks that wait": Case(
        Ailment.INEFFECTIVE,
        job(8, *costs(4), *costs(8)),
        {"arriving": 20_000, "waiting": 100_000, "needed": 23_529, "rows_per_second": 8_000, "row_ms": 0.125}
        | {"part": 1.0},
        ("100,000 rows wait", "of what was to be gained against parallelism 4, 0% was measured"),
        f"look on Spark's page for what the subtasks wait for; {NO_HELP}",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_diagnosis_has_its_figures_and_says_what_to_do(case: Case) -> None:
    found = diagnose(case.job, case.settings)
    assert found is not None and found.name is case.name
    for part in case.said:
        assert part in found.found
    assert found.todo.startswith(case.todo) and bool(found.todo) == bool(case.todo)
    assert found.text == (f"{found.found}: {found.todo}" if case.todo else found.found)
    usual = {"waiting": 0, "fixed_ms": 0, "read": 0, "work": 1, "publish": 0, "heaviest_key": 0}
    expected = usual | {"busiest_share": 1 / case.job.parallelism} | case.evidence
    if case.name is Ailment.FAILING:
        expected = case.evidence
    # Times are whole milliseconds, so a fixed cost may seem to be one or two.
    assert found.evidence.get("fixed_ms", 0) == pytest.approx(expected.get("fixed_ms", 0), abs=2)
    assert {**found.evidence, "fixed_ms": 0} == pytest.approx({**expected, "fixed_ms": 0}, rel=0.01)


def test_rows_that_are_late_for_long_ask_for_more_though_one_epoch_reads_all_that_waits() -> None:
    # After a slow sink: epochs of 12 million rows take 12 minutes, where a row may wait for one.
    large = epochs([*SIZES, 12_000_000, 12_000_000, 12_000_000], fixed_ms=1, row_ms=0.0625, parallelism=2)
    limit = structs.replace(NO_WAIT, max_lag_s=60.0)

    def found(waiting: int) -> Ailment:
        late = figures(2, arriving=5_000.0, waiting=waiting, lag_ms=1_000_000)
        diagnosis = diagnose(replace(late, epochs=tuple(large)), limit)
        assert diagnosis is not None
        return diagnosis.name

    assert found(7_000_000) is Ailment.TOO_SMALL
    # What one epoch reads in time is no backlog: the lag is that of a silent source.
    assert found(900_000) is Ailment.TOO_LARGE


def test_every_diagnosis_has_a_case() -> None:
    assert {each.name for each in CASES.values()} == set(Ailment)


@pytest.mark.parametrize(
    ("downtime_ms", "needed", "chosen"), [(None, 90_000, 12), (120_000, 112_500, 15), (3_600_000, 180_000, 16)]
)
def test_a_backlog_drains_in_what_the_pause_of_a_rescale_leaves_and_what_arrives_in_it_counts(
    downtime_ms: int | None, needed: float, chosen: int
) -> None:
    # 48 million rows in ten minutes, beside 10,000 rows/s. A pause of two minutes adds 1.2 million, and leaves eight
    # minutes. Of a pause longer than all that time, half of it counts.
    piled = figures(4, waiting=48_000_000, downtime_ms=downtime_ms)
    measured = throughput(piled)
    assert measured is not None
    assert Needs(piled, NO_WAIT, measured).needed() == pytest.approx(needed)
    # A subtask does 8,000 rows/s.
    assert decide(piled, NO_WAIT, NOTHING).parallelism == chosen


def test_a_job_without_epochs_at_its_size_that_falls_behind_is_short_of_what_another_size_shows() -> None:
    # One subtask does 8,000 rows/s.
    busy = figures(2, arriving=9_000.0, waiting=5_000, busy=0.1)
    arrived = ((busy.at_ms - 20_000, 0.0), (busy.at_ms - 5_000, 135_000.0))
    moved = replace(busy, parallelism=1, arrived=arrived)
    found = diagnose(moved, NO_WAIT)
    assert found is not None and (found.name, found.parallelism, found.is_short) == (Ailment.TOO_SMALL, 2, True)
    assert found.found.startswith("by what parallelism 2 did, 9,000 rows/s arrive") and found.row_ms is None
    silent = ((busy.at_ms - 20_000, 135_000.0), (busy.at_ms - 5_000, 135_000.0))
    alike = epochs([10_000] * 20, fixed_ms=600, row_ms=0.0625, parallelism=2)
    for other in (
        replace(moved, arriving=8_500.0),
        replace(moved, waiting=0),
        replace(moved, epochs=()),
        # The rate is that of before a silence, and what waits is a pile.
        replace(moved, arrived=silent),
        replace(moved, arrived=()),
        # Two days ago.
        replace(
            moved, epochs=tuple(replace(each, committed_ms=each.committed_ms - 172_800_000) for each in moved.epochs)
        ),
        # They do not show how much of them is the same for any number of rows.
        replace(moved, epochs=tuple(alike)),
    ):
        assert diagnose(other, NO_WAIT) is None, other


def test_only_what_a_running_epoch_can_have_processed_does_not_count_as_late() -> None:
    # 16,000 rows/s; of what waits, 960,000 rows are in time, and spare work does 450 s × 6,000 more.
    limited = structs.replace(NO_WAIT, max_lag_s=60)

    def is_short(**others: Any) -> bool:
        known = replace(figures(2, waiting=4_500_000, left=4_500_000, lag_ms=300_000), **others)
        ended = tuple(replace(each, committed_ms=known.at_ms - 200_000) for each in known.epochs)
        found = diagnose(replace(known, epochs=ended), limited)
        assert found is not None
        return found.is_short

    assert not is_short()
    assert is_short(left=100_000) and is_short(left=0) and is_short(left=None)
    # An epoch has no more rows than its limit, and nobody knows since when the first one of a driver runs.
    assert is_short(epoch_limit=100_000) and is_short(busy=None)


def test_a_trigger_is_what_keeps_limited_epochs_apart_if_it_does_at_the_largest_size() -> None:
    # At parallelism 4 an epoch takes 2.1 s, at 16 it is over before the next may begin.
    found = diagnose(
        phased(fixed_ms=500, row_ms=0.08, arriving=14_000.0, waiting=400_000, epoch_limit=20_000, trigger_ms=2_000),
        NO_WAIT,
    )
    assert found is not None and found.name is Ailment.SOURCE_BOUND
    assert "the next one begins 2.0 s after it" in found.found and "trigger epochs more often" in found.todo
