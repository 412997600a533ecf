"""The figures of a policy, from what a driver records in a real catalog."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from statecore.catalog import (
    Catalog,
    EpochRecord,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    OperatorFigures,
    SourceBacklog,
)
from statecore.operations.autoscaling import figures
from statecore.operations.autoscaling.figures import figures_of
from statecore.operations.backlog import rows_per_file
from statecore.policy import SlowSink
from statecore.policy.arrivals import STEP_MS
from statecore.policy.cost import FEWEST
from statecore.testing import ManualClock
from tests.unit.operations.autoscaling.driver import JOB, START_MS, Driver


def test_figures_are_those_that_the_driver_records(catalog: Catalog, clock: ManualClock) -> None:
    driver = Driver(catalog, clock)
    driver.run(60, arriving=1, reading=1)
    driver.run(30, arriving=1, reading=0)
    driver.run(60, arriving=1, reading=2)
    found = figures_of(catalog, JOB, clock.now_ms())
    assert (found.parallelism, found.max_parallelism, found.workers) == (2, 128, 1)
    assert (found.hindrance, found.settled_ms) == (None, START_MS + 1_000 - 501)
    newest = catalog.generations.newest(JOB)
    assert newest is not None and found.started_ms == newest.started_ms
    # No source counts rows: 180 files had 1,000 each, and 30 - 60 of them came back.
    assert found.waiting == driver.waiting * 1_000
    assert found.arriving == pytest.approx(1_000, rel=0.05)
    assert found.processed == pytest.approx(2_000, rel=0.05)
    assert found.busy == pytest.approx(0.9, abs=0.05)
    assert found.lag_ms == 3_000
    assert {each.rows for each in found.epochs} == {1_000, 2_000}
    assert found.rescale_ms is None


@pytest.mark.parametrize(("event_time_ms", "oldest_ms"), [(1_000, 60_000), (60_000, 1_000), (None, 60_000)])
def test_the_lag_is_that_of_event_time_or_the_age_of_the_oldest_record_whichever_is_longer(
    catalog: Catalog, clock: ManualClock, event_time_ms: int | None, oldest_ms: int
) -> None:
    Driver(catalog, clock).run(3, arriving=1, reading=1)
    clock.advance(1_000)
    catalog.epochs.record_backlog(
        JOB, 1, [SourceBacklog("topic", 7, event_time_lag_ms=event_time_ms, oldest_age_ms=oldest_ms)]
    )
    assert figures_of(catalog, JOB, clock.now_ms()).lag_ms == 60_000


def test_phases_subtasks_memory_and_failed_drivers_are_among_the_figures(catalog: Catalog, clock: ManualClock) -> None:
    Driver(catalog, clock).run(3, arriving=1, reading=1)
    phases = {"run": 900.0, "commit": 50.0, "publish": 200.0, "read": 300.0, "process": 400.0}
    now_ms = clock.now_ms()
    publish_ms = {"seen": 50.0, "audit": 150.0}
    epoch = EpochRecord(
        JOB, 1, 4, 1, 2, 500, 3_500, now_ms - 1_150, now_ms, 1_150, phases, memory_share=0.5, publish_ms=publish_ms
    )
    operators = [
        OperatorFigures("quick", (100, 400), (0, 0), (9, 9), (0, 0), (0, 0), (64, 64)),
        OperatorFigures("slow", (300, 100), (0, 0), (400, 90), (0, 0), (0, 0), (64, 64)),
        OperatorFigures("of another parallelism", (900,), (0,), (999,), (0,), (0,), (128,)),
    ]
    catalog.epochs.record(epoch, operators=operators)
    found = figures_of(catalog, JOB, now_ms)
    newest = found.epochs[-1]
    assert (newest.read_ms, newest.work_ms, newest.publish_ms) == (300, 600, 200)
    assert found.epochs[0].publish_ms is None
    assert found.slowest_sink == SlowSink("audit", 0.75)
    assert (found.busiest_share, found.memory_share) == (0.75, 0.5)
    for generation in (1, 2):
        catalog.generations.end(JOB, generation, state="failed", error="out of disk\nat line 7")
        assert found.crashes == 0
        catalog.generations.claim(JOB, log_path="log")
    found = figures_of(catalog, JOB, clock.now_ms())
    assert (found.crashes, found.crash) == (2, "out of disk")


def test_the_source_with_the_most_partitions_limits_reading(catalog: Catalog, clock: ManualClock) -> None:
    Driver(catalog, clock).run(6, arriving=1, reading=1)
    assert figures_of(catalog, JOB, clock.now_ms()).source_partitions is None
    clock.advance(1)
    sources = [SourceBacklog("orders", 5, partitions=12), SourceBacklog("files"), SourceBacklog("few", 0, partitions=3)]
    catalog.epochs.record_backlog(JOB, 1, sources)
    assert figures_of(catalog, JOB, clock.now_ms()).source_partitions == 12


def test_phases_of_an_epoch_that_an_earlier_release_recorded_are_unknown(catalog: Catalog, clock: ManualClock) -> None:
    Driver(catalog, clock).run(1, arriving=1, reading=1)
    now_ms = clock.now_ms()
    phases = {"run": 900.0, "commit": 50.0, "publish": 200.0, "load": 100.0, "process": 400.0, "write": 100.0}
    catalog.epochs.record(EpochRecord(JOB, 1, 2, 1, 2, 500, 1_500, now_ms - 1_150, now_ms, 1_150, phases))
    found = figures_of(catalog, JOB, now_ms)
    newest = found.epochs[-1]
    assert (newest.rows, newest.read_ms, newest.work_ms, newest.publish_ms) == (500, None, None, None)
    assert found.slowest_sink is None


def test_the_slowest_sink_is_the_one_that_publishing_mostly_waits_for(catalog: Catalog, clock: ManualClock) -> None:
    # One epoch of the first sink was slow; the third has outputs in half of the epochs.
    times = [{"seen": 900.0, "audit": 100.0}, *[{"seen": 20.0, "audit": 80.0}, {"seen": 20.0, "rare": 99.0}] * 2]
    slowest = slowest_sink(catalog, clock, [*times, {"seen": 20.0, "audit": 80.0}])
    assert slowest is not None and slowest.sink == "audit"
    assert slowest.share == pytest.approx(0.45)


def test_a_sink_that_has_just_become_slow_is_the_slowest_one(catalog: Catalog, clock: ManualClock) -> None:
    quick, slow = {"seen": 20.0, "audit": 80.0}, {"seen": 5_900.0, "audit": 100.0}
    slowest = slowest_sink(catalog, clock, [*[quick] * 50, *[slow] * FEWEST])
    assert slowest is not None and slowest.sink == "seen"
    assert slowest.share == pytest.approx(5_900 / 6_000)


def slowest_sink(catalog: Catalog, clock: ManualClock, times: Sequence[dict[str, float]]) -> SlowSink | None:
    """Return the slowest sink after epochs with these times of publishing."""
    Driver(catalog, clock).run(1, arriving=1, reading=1)
    for number, publish_ms in enumerate(times, start=2):
        now_ms, publish = clock.now_ms(), max(100.0, sum(publish_ms.values()))
        phases = {"run": 10.0, "commit": 10.0, "read": 0.0, "publish": publish}
        epoch = EpochRecord(JOB, 1, number, 1, 2, 5, 1_500, now_ms, now_ms, 150, phases, publish_ms=publish_ms)
        catalog.epochs.record(epoch)
        clock.advance(1_000)
    return figures_of(catalog, JOB, clock.now_ms()).slowest_sink


def test_the_heaviest_keys_are_those_of_the_slowest_operator_over_its_time(
    catalog: Catalog, clock: ManualClock
) -> None:
    Driver(catalog, clock).run(1, arriving=1, reading=1)
    keys = [{"a": 0.5, "b": 0.1}, {"a": 0.1}, {"b": 0.3}]
    # In the last one the wait for rows is not told apart.
    took = [((40, 30), (20, 10)), ((150, 100), (40, 10)), ((500, 100), ())]
    other = (HeavyKeyFigure("c", 0.9),)
    for number, (process_ms, read_ms) in enumerate(took, start=2):
        heavy = tuple(HeavyKeyFigure(key, share) for key, share in keys[number - 2].items())
        groups = (HeavyKeyGroupFigure(7, 0.6 - number / 10), HeavyKeyGroupFigure(number, 0.15))
        operators = [
            OperatorFigures("slow", (3, 1), (0, 0), process_ms, (0, 0), (0, 0), (64, 64), read_ms, heavy, groups),
            OperatorFigures("quick", (3, 1), (0, 0), (9, 9), (0, 0), (0, 0), (64, 64), (0, 0), other),
        ]
        now_ms = clock.now_ms()
        catalog.epochs.record(EpochRecord(JOB, 1, number, 1, 2, 4, 1_500, now_ms, now_ms, 150), operators=operators)
        clock.advance(1_000)
    figures = figures_of(catalog, JOB, clock.now_ms())
    assert figures.heavy_key_group is not None and figures.heavy_key_group.key_group == 7
    assert figures.heavy_key_group.share == pytest.approx(0.4 * 0.1 + 0.3 * 0.3 + 0.2 * 0.6)
    found = {heavy.key: heavy.share for heavy in figures.heavy_keys}
    assert found == pytest.approx({"b": 0.1 * 0.1 + 0.3 * 0.6, "a": 0.5 * 0.1 + 0.1 * 0.3})
    assert list(found) == ["b", "a"]


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at few epochs, as if they were too many to look at all."""
    monkeypatch.setattr(figures, "_EPOCHS", 10)
    monkeypatch.setattr(figures, "_COSTS", 40)


@pytest.mark.usefixtures("few_epochs")
def test_what_arrived_is_known_for_longer_than_the_epochs_looked_at(catalog: Catalog, clock: ManualClock) -> None:
    driver = Driver(catalog, clock)
    driver.run(300, arriving=2, reading=1)
    found = figures_of(catalog, JOB, clock.now_ms())
    assert len(found.epochs) == 40
    rows = [(at_ms - found.arrived[0][0], total - found.arrived[0][1]) for at_ms, total in found.arrived]
    assert all(total == pytest.approx(2 * at_ms, abs=4_000) for at_ms, total in rows)
    assert found.epoch_limit == 1_000 and found.left == found.waiting == 300_000
    assert found.trigger_ms is None
    catalog.generations.heartbeat(JOB, driver.generation, trigger_ms=2_000)
    assert figures_of(catalog, JOB, clock.now_ms()).trigger_ms == 2_000
    (first_ms, first), (last_ms, last) = found.arrived[0], found.arrived[-1]
    assert last_ms - first_ms >= 270_000
    assert (last - first) / (last_ms - first_ms) == pytest.approx(2, rel=0.02)
    driver.run(75, arriving=1, reading=5)
    # It reads all that waits, more than what seemed to be its limit.
    assert driver.waiting == 0 and figures_of(catalog, JOB, clock.now_ms()).epoch_limit == 5_000


@pytest.mark.usefixtures("few_epochs")
def test_rows_of_a_source_without_a_backlog_are_known_for_as_long(
    catalog: Catalog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(catalog, clock)
    monkeypatch.setattr(driver, "_backlog", lambda: SourceBacklog("files"))
    driver.run(300, arriving=1, reading=1)
    times_ms = [at_ms for at_ms, _ in figures_of(catalog, JOB, clock.now_ms()).arrived]
    assert times_ms[-1] - times_ms[0] >= 270_000
    assert max(after - before for before, after in pairwise(times_ms)) <= 2 * STEP_MS


@pytest.mark.usefixtures("few_epochs")
def test_a_job_that_was_restored_with_fewer_rows_is_known_since_then(catalog: Catalog, clock: ManualClock) -> None:
    driver = Driver(catalog, clock)
    driver.run(100, arriving=1, reading=1)
    driver.rows = 0
    driver.run(60, arriving=1, reading=1)
    (first_ms, first), (last_ms, last) = (figures_of(catalog, JOB, clock.now_ms()).arrived[at] for at in (0, -1))
    assert (last - first) / (last_ms - first_ms) == pytest.approx(1, rel=0.02)


@pytest.mark.usefixtures("few_epochs")
def test_a_job_of_short_epochs_has_run_like_this_since_its_last_rescale_and_not_since_the_oldest_epoch_looked_at(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = Driver(catalog, clock)
    driver.run(30, arriving=1, reading=1)
    assert figures_of(catalog, JOB, clock.now_ms()).settled_ms == START_MS + 1_000 - 501
    driver.parallelism = 4
    driver.run(30, arriving=1, reading=1)
    assert figures_of(catalog, JOB, clock.now_ms()).settled_ms == START_MS + 31_000 - 501


def test_a_rescale_that_was_done_tells_how_long_one_takes(catalog: Catalog, clock: ManualClock) -> None:
    catalog.runs.start("run-1", JOB, from_parallelism=1, to_parallelism=2)
    clock.advance(40_000)
    catalog.runs.finish("run-1")
    catalog.runs.start("run-2", JOB, from_parallelism=2, to_parallelism=1)
    catalog.runs.finish("run-2", error="no room")
    assert figures_of(catalog, JOB, clock.now_ms()).rescale_ms == 40_000


def test_a_rescale_stops_the_job_for_as_long_as_earlier_ones_did_the_first_for_a_guess_and_a_live_one_for_nothing(
    catalog: Catalog, clock: ManualClock
) -> None:
    def expected(method: str) -> int | None:
        catalog.policies.set(JOB, {"max_parallelism": 8, "method": method})
        return figures_of(catalog, JOB, clock.now_ms()).downtime_ms

    assert [expected(method) for method in ("live", "by_reference", "rewrite")] == [None, 20_000, 60_000]
    catalog.runs.start("run-1", JOB, from_parallelism=1, to_parallelism=2, method="rewrite")
    catalog.runs.mark_step("run-1", "stop_with_savepoint", started=True, ended=True)
    clock.advance(30_000)
    catalog.runs.mark_step("run-1", "restart", started=True, ended=True)
    catalog.runs.finish("run-1")
    assert [expected(method) for method in ("live", "by_reference", "rewrite")] == [None, 20_000, 30_000]


def test_rows_of_a_file_are_counted_within_one_generation(catalog: Catalog, clock: ManualClock) -> None:
    first = Driver(catalog, clock)
    first.run(3, arriving=2, reading=2)
    catalog.generations.end(JOB, 1, state="stopped")
    assert rows_per_file(catalog.epochs.of(JOB)) == 1_000
    second = Driver(catalog, clock, generation=2)
    second.epoch = first.epoch
    second.run(1, arriving=0, reading=0)
    assert rows_per_file(catalog.epochs.of(JOB)) == 1_000
    assert rows_per_file([]) is None


def test_the_first_epoch_of_a_driver_takes_what_waited_when_it_began(catalog: Catalog, clock: ManualClock) -> None:
    first = Driver(catalog, clock)
    first.run(10, arriving=2, reading=1)
    catalog.generations.heartbeat(JOB, 1, trigger_ms=2_000)
    catalog.generations.end(JOB, 1, state="failed", error="lost")
    second = Driver(catalog, clock, generation=2)
    assert figures_of(catalog, JOB, clock.now_ms()).left is None
    for waiting in (40, 70):
        clock.advance(5_000)
        second.waiting = waiting
        catalog.epochs.record_backlog(JOB, 2, [second._backlog()])
    found = figures_of(catalog, JOB, clock.now_ms())
    assert (found.left, found.waiting, found.busy) == (40_000, 70_000, None)
    # It has not told its trigger yet.
    assert found.trigger_ms == 2_000
