"""The policy on a real catalog: figures from what a driver records, decisions that survive and are reached once."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from statecore.catalog import (
    Catalog,
    DecisionRecord,
    Diagnosed,
    EpochRecord,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    OperatorFigures,
    PolicyRecord,
    SourceBacklog,
)
from statecore.errors import ConfigurationError
from statecore.operations.autoscaling import evaluation, figures
from statecore.operations.autoscaling.evaluation import (
    ANNOUNCE_EVERY_MS,
    LAPSES_AFTER_MS,
    decisions_to_announce,
    diagnosed,
    evaluate,
)
from statecore.operations.autoscaling.figures import figures_of
from statecore.operations.backlog import rows_per_file
from statecore.operations.changes import RescaleRequest
from statecore.operations.status.advice import advice
from statecore.operations.status.job_status import job_status
from statecore.policy import Ailment, Decision, Diagnosis, PolicyMemory, SlowSink
from statecore.policy.arrivals import STEP_MS
from statecore.policy.cost import FEWEST
from statecore.testing import ManualClock

JOB = "flights"
START_MS = 1_000_000_000
SETTINGS = {
    "max_parallelism": 8,
    "min_parallelism": 2,
    "subtasks_per_worker": 2,
    "scale_out_after_s": 10,
    "cooldown_s": 0,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as catalog:
        catalog.clusters.register("local", "standalone", {}, workers=1)
        catalog.jobs.register(
            JOB,
            artifact="flights.py",
            store=str(tmp_path / "store"),
            master_url="spark://127.0.0.1:7077",
            cluster="local",
            parallelism=2,
            max_parallelism=128,
        )
        catalog.jobs.set_desired(JOB, state="running")
        yield catalog


class Driver:
    """Commits an epoch a second, of one file of 1,000 rows each, and measures what waits every five."""

    def __init__(self, catalog: Catalog, clock: ManualClock, *, parallelism: int = 2, generation: int = 1) -> None:
        self.catalog, self.clock, self.parallelism = catalog, clock, parallelism
        self.generation = catalog.generations.claim(JOB, log_path="log").generation
        assert self.generation == generation
        self.epoch = self.rows = self.files_read = 0
        self.waiting = 0

    def run(self, seconds: int, *, arriving: int, reading: int) -> None:
        """Run for a time in which so many files arrive and are read every second."""
        for second in range(seconds):
            self.clock.advance(1_000)
            self.waiting += arriving - reading
            self.files_read += reading
            self.rows += reading * 1_000
            self.epoch += 1
            now_ms, took_ms = self.clock.now_ms(), 100 + 400 * reading + self.epoch % 3
            self.catalog.epochs.record(
                EpochRecord(
                    JOB,
                    1,
                    self.epoch,
                    self.generation,
                    self.parallelism,
                    reading * 1_000,
                    self.rows,
                    now_ms - took_ms,
                    now_ms,
                    took_ms,
                    backlog=(self._backlog(),),
                )
            )
            if second % 5 == 0:
                self.catalog.generations.heartbeat(JOB, self.generation)
                self.catalog.epochs.record_backlog(JOB, self.generation, [self._backlog()])

    def _backlog(self) -> SourceBacklog:
        return SourceBacklog("files", None, 10 * self.waiting, self.waiting, 3_000, self.files_read)


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
        catalog.policies.set(JOB, {**SETTINGS, "method": method})
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


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("stopped", "should not run"),
        ("silent", "no live driver"),
        ("leased", "manual-7 holds the lease"),
        ("wanted", "at the desired parallelism 4"),
        ("new", "no epoch yet"),
    ],
)
def test_what_hinders_a_decision_is_said(catalog: Catalog, clock: ManualClock, state: str, said: str) -> None:
    driver = Driver(catalog, clock)
    if state != "new":
        driver.run(2, arriving=1, reading=1)
    if state == "stopped":
        catalog.jobs.set_desired(JOB, state="stopped")
    elif state == "silent":
        clock.advance(100_000)
    elif state == "leased":
        catalog.leases.acquire(JOB, "manual-7", 5_000)
    elif state == "wanted":
        catalog.jobs.set_desired(JOB, parallelism=4)
    else:
        catalog.generations.heartbeat(JOB, 1)
    policy = catalog.policies.set(JOB, SETTINGS)
    assert evaluate(catalog, policy, clock.now_ms()) is None
    seen = catalog.policies.find(JOB)
    assert seen is not None and said in (seen.finding or "")


def reached(catalog: Catalog, clock: ManualClock) -> DecisionRecord | None:
    policy = catalog.policies.find(JOB)
    assert policy is not None
    return evaluate(catalog, policy, clock.now_ms())


def pile(catalog: Catalog, clock: ManualClock) -> Driver:
    """An outage, a pile that will take hours, and a policy."""
    catalog.policies.set(JOB, SETTINGS)
    driver = Driver(catalog, clock)
    driver.run(60, arriving=1, reading=1)
    driver.run(20, arriving=0, reading=0)
    driver.waiting = 3_000
    driver.run(60, arriving=1, reading=2)
    return driver


def test_a_backlog_becomes_one_decision_that_stands_in_the_catalog(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    assert reached(catalog, clock) is None
    driver.run(10, arriving=1, reading=2)
    # Whoever looks now is another process, with the same catalog.
    decision = reached(catalog, clock)
    assert decision is not None and decision.state == "open"
    assert (decision.from_parallelism, decision.from_workers) == (2, 1)
    assert decision.to_parallelism in (4, 6, 8) and decision.to_workers == decision.to_parallelism // 2
    assert decision.reason.startswith("scale out: ") and "rows wait" in decision.reason
    assert decision.figures["waiting"] == driver.waiting * 1_000 and decision.method == "live"
    # Edge, not level: while it stands nothing is decided anew, and two who look at once reach one decision.
    assert reached(catalog, clock) is None
    seen = catalog.policies.find(JOB)
    assert seen is not None and f"decision {decision.id} is open" in (seen.finding or "")
    assert catalog.policies.decisions(JOB) == [decision]
    catalog.policies.end_decision(decision.id, "refused", "somebody else was first")
    for _ in range(3):
        driver.run(6, arriving=1, reading=2)
        again = reached(catalog, clock)
    assert again is not None and again.id != decision.id


def test_a_policy_of_a_query_decides_by_its_batches_and_rescales_it_by_its_only_method(
    catalog: Catalog, clock: ManualClock
) -> None:
    catalog.jobs.set_desired(JOB, checkpoint="/data/checkpoint")
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "method": "rewrite"})
    driver.run(20, arriving=1, reading=2)
    assert reached(catalog, clock) is None
    driver.run(15, arriving=1, reading=2)
    decision = reached(catalog, clock)
    assert decision is not None
    assert (decision.method, decision.from_parallelism) == ("rewrite", 2)
    assert decision.to_parallelism > 2
    request = RescaleRequest(job=JOB, parallelism=decision.to_parallelism, method=decision.method)
    assert request.resolved(catalog) == "rewrite"


def test_a_policy_that_observes_tells_each_change_once_and_carries_out_nothing(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "observe": True, "cooldown_s": 20})

    def look(seconds: int) -> str:
        for _ in range(seconds // 5):
            driver.run(5, arriving=1, reading=2)
            found.append(reached(catalog, clock))
        seen = catalog.policies.find(JOB)
        assert seen is not None
        return seen.finding or ""

    found: list[DecisionRecord | None] = []
    assert look(15).startswith("would scale out: ")
    (told,) = catalog.policies.decisions(JOB)
    assert [each for each in found if each is not None] == [told]
    assert (told.state, told.from_parallelism, told.run_id) == ("observed", 2, None)
    assert told.reason.startswith("would scale out: ") and "rows wait" in told.reason
    # It is nobody's to carry out, hinders nothing, and is no failure.
    assert (
        catalog.policies.open_decisions()
        == []
        == list(decisions_to_announce(catalog.policies, clock.now_ms() + 2 * LAPSES_AFTER_MS))
    )
    figures = figures_of(catalog, JOB, clock.now_ms())
    assert (figures.hindrance, figures.failures) == (None, 0)
    assert "cooling down" in look(15)
    # The need has lasted, so the rest alone delays what would be done; it is the same change, so only the finding says.
    for _ in range(3):
        assert look(10).startswith("would scale out: ")
    assert catalog.policies.decisions(JOB) == [told]
    # Another change is another decision.
    catalog.policies.set(JOB, {**SETTINGS, "observe": True, "cooldown_s": 20, "max_parallelism": 4})
    look(10)
    newest, before = catalog.policies.decisions(JOB)
    assert (before, newest.to_parallelism, newest.state) == (told, 4, "observed")
    assert [each for each in found if each is not None] == [told, newest]
    # Once it may act, it does.
    catalog.policies.set(JOB, {**SETTINGS, "max_parallelism": 4})
    driver.run(5, arriving=1, reading=2)
    made = reached(catalog, clock)
    assert made is not None and (made.state, made.to_parallelism) == ("open", 4)


def test_a_job_outside_of_its_limits_is_told_of_once_a_cooldown_whatever_the_size(
    catalog: Catalog, clock: ManualClock
) -> None:
    Driver(catalog, clock).run(30, arriving=1, reading=1)
    for lowest, said in ((4, "outside the limits 4 to 8"), (6, "cooling down for another")):
        observing = {**SETTINGS, "observe": True, "cooldown_s": 20, "min_parallelism": lowest}
        evaluate(catalog, catalog.policies.set(JOB, observing), clock.now_ms())
        seen = catalog.policies.find(JOB)
        assert seen is not None and said in (seen.finding or "")
    assert [each.to_parallelism for each in catalog.policies.decisions(JOB)] == [4]


def test_decisions_are_logged_with_their_figures_those_that_are_only_observed_too(
    catalog: Catalog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    driver = pile(catalog, clock)
    caplog.set_level(logging.INFO, evaluation.__name__)
    for observe, said in ((True, "would scale out"), (False, "scale out")):
        catalog.policies.set(JOB, {**SETTINGS, "observe": observe, "max_parallelism": 4})
        caplog.clear()
        for _ in range(4):
            driver.run(5, arriving=1, reading=2)
            reached(catalog, clock)
        (line,) = [each for each in caplog.messages if "scale out: " in each]
        assert line.startswith(f"Job flights: {said}: 1,000 rows/s arrive, ") and "rows wait" in line
        assert line.endswith("(parallelism 2 → 4, workers 1 → 2)")


def test_a_look_that_decides_nothing_is_logged_for_another_kind_of_reason_and_not_for_other_figures(
    catalog: Catalog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    driver = pile(catalog, clock)
    caplog.set_level(logging.INFO, evaluation.__name__)

    def looks(times: int, **settings: object) -> list[str]:
        """Look so many times; return what was logged."""
        catalog.policies.set(JOB, {**SETTINGS, **settings})
        caplog.clear()
        for _ in range(times):
            driver.run(2, arriving=1, reading=2)
            reached(catalog, clock)
        return caplog.messages

    (first,) = looks(4)
    assert first.startswith("Job flights: too_small, before None: 1,000 rows/s arrive, ")
    assert first.endswith("; this has lasted 0 s of 8 s")
    (frozen,) = looks(4, freeze=("* * * * * for 1d",))
    assert frozen.startswith("Job flights: 1,000 rows/s arrive, ") and "; frozen until " in frozen
    (cooling,) = looks(4, cooldown_s=300)
    assert "; cooling down for another 1" in cooling
    catalog.leases.acquire(JOB, "manual-7", 60_000)
    (leased,) = looks(2, cooldown_s=300)
    assert leased.startswith("Job flights: 1,000 rows/s arrive, ") and leased.endswith(
        "; manual-7 holds the lease on the job"
    )
    catalog.leases.release(JOB, "manual-7")
    lasts, decided, under_way = looks(8, max_rescales_a_day=1)
    assert lasts.endswith("; this has lasted 0 s of 8 s")
    assert decided.startswith("Job flights: scale out: ")
    assert under_way.endswith("; decision 1 is open: parallelism 8")
    catalog.policies.end_decision(1, "done")
    assert looks(8, max_rescales_a_day=1)[-1].endswith("; the limit of 1 rescales a day is reached")


def test_two_who_look_at_once_log_it_once(
    catalog: Catalog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pile(catalog, clock)
    caplog.set_level(logging.INFO, evaluation.__name__)
    policy = catalog.policies.find(JOB)
    assert policy is not None
    for _ in range(2):
        evaluate(catalog, policy, clock.now_ms())
    assert len(caplog.messages) == 1


def decides(catalog: Catalog, clock: ManualClock, driver: Driver, after_s: int) -> DecisionRecord | None:
    """Look for a while, as the DAG does, up to this time from now; return a decision."""
    clock.advance((after_s - 80) * 1_000)
    driver.run(60, arriving=1, reading=2)
    for _ in range(4):
        driver.run(5, arriving=1, reading=2)
        decision = reached(catalog, clock)
        if decision is not None:
            return decision
    return None


def failing(catalog: Catalog, clock: ManualClock, decision: DecisionRecord) -> None:
    """Carry a decision out, in vain: a quarter of an hour passes until the rescale has failed."""
    run = f"autoscale__{decision.id}"
    catalog.policies.claim_decision(decision.id, run)
    catalog.runs.start(run, JOB, from_parallelism=2, to_parallelism=decision.to_parallelism)
    clock.advance(900_000)
    catalog.runs.finish(run, error="no workers came")
    catalog.policies.end_decision(decision.id, "failed", f"run {run} failed: no workers came")


@pytest.mark.untraced
def test_a_rescale_that_fails_again_and_again_is_tried_less_and_less_often_until_a_person_unblocks_the_policy(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "cooldown_s": 60})
    for rest_s in (120, 240):
        decision = decides(catalog, clock, driver, 100)
        assert decision is not None
        failing(catalog, clock, decision)
        assert decides(catalog, clock, driver, rest_s - 1) is None
        # A failure of somebody else adds none to the row, and does not end it.
        catalog.runs.start(f"manual-{rest_s}", JOB, from_parallelism=2, to_parallelism=4)
        catalog.runs.finish(f"manual-{rest_s}", error="a wrong number")
        driver.waiting = 3_000
        clock.advance(rest_s * 1_000)
    decision = decides(catalog, clock, driver, 100)
    assert decision is not None
    failing(catalog, clock, decision)
    for _ in range(3):
        assert decides(catalog, clock, driver, 86_400) is None
    policy = catalog.policies.find(JOB)
    assert policy is not None and "blocked: the last 3 rescales" in str(policy.finding)
    assert "`statecore policy set flights --on`" in str(policy.finding) and "no workers came" in str(policy.finding)
    assert any("the policy is blocked" in line for line in advice(job_status(catalog, catalog.jobs.get(JOB))))
    catalog.policies.set(JOB, policy.settings)
    driver.waiting = 3_000
    assert decides(catalog, clock, driver, 100) is not None


@pytest.mark.untraced
def test_a_rescale_that_is_done_ends_a_row_of_failures(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    for _ in range(2):
        decision = decides(catalog, clock, driver, 300)
        assert decision is not None
        failing(catalog, clock, decision)
    assert figures_of(catalog, JOB, clock.now_ms()).failures == 2
    catalog.runs.start("manual", JOB, from_parallelism=2, to_parallelism=2)
    catalog.runs.finish("manual")
    assert figures_of(catalog, JOB, clock.now_ms()).failures == 0


@pytest.mark.untraced
def test_a_policy_makes_so_many_rescales_a_day_and_those_that_were_refused_do_not_count(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "max_rescales_a_day": 1})
    for state in ("refused", "done"):
        decision = decides(catalog, clock, driver, 100)
        assert decision is not None
        catalog.policies.end_decision(decision.id, "refused" if state == "refused" else "done")
        driver.waiting = 3_000
    assert figures_of(catalog, JOB, clock.now_ms()).made_in_a_day == 1
    assert decides(catalog, clock, driver, 100) is None
    policy = catalog.policies.find(JOB)
    assert policy is not None and str(policy.finding).endswith("; the limit of 1 rescales a day is reached")
    driver.waiting = 3_000
    assert decides(catalog, clock, driver, 86_400) is not None


@pytest.mark.untraced
def test_what_was_needed_before_nobody_looked_counts_no_more(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    reached(catalog, clock)
    driver.run(330, arriving=1, reading=2)
    assert reached(catalog, clock) is None
    driver.run(10, arriving=1, reading=2)
    made = reached(catalog, clock)
    assert made is not None
    # What the policy chose, it chose.
    clock.advance(600_000)
    reached(catalog, clock)
    seen = catalog.policies.find(JOB)
    assert seen is not None and seen.memory["chosen"] == made.to_parallelism


@pytest.mark.untraced
def test_the_limit_of_an_epoch_that_a_job_met_is_known_after_nobody_looked(
    catalog: Catalog, clock: ManualClock
) -> None:
    catalog.policies.set(JOB, SETTINGS)
    Driver(catalog, clock).run(60, arriving=1, reading=1)
    reached(catalog, clock)
    policy = catalog.policies.find(JOB)
    assert policy is not None and policy.memory["limit"] is None
    met = {"rows": 20_000, "seen_ms": clock.now_ms()}
    clock.advance(600_000)
    evaluate(catalog, dataclasses.replace(policy, memory=policy.memory | {"limit": met}), clock.now_ms())
    seen = catalog.policies.find(JOB)
    assert seen is not None and seen.memory["limit"] == met


def test_two_who_look_at_once_reach_one_decision(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    reached(catalog, clock)
    driver.run(10, arriving=1, reading=2)
    policy = catalog.policies.find(JOB)
    assert policy is not None
    made = [evaluate(catalog, policy, clock.now_ms()) for _ in range(2)]
    assert made[0] is not None and made[1] is None
    assert len(catalog.policies.decisions(JOB)) == 1


def test_a_decision_nobody_heard_of_is_announced_again_and_one_too_old_is_given_up(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    reached(catalog, clock)
    driver.run(10, arriving=1, reading=2)
    decision = reached(catalog, clock)
    assert decision is not None
    assert list(decisions_to_announce(catalog.policies, clock.now_ms())) == []
    clock.advance(ANNOUNCE_EVERY_MS)
    assert [each.id for each in decisions_to_announce(catalog.policies, clock.now_ms())] == [decision.id]
    assert list(decisions_to_announce(catalog.policies, clock.now_ms())) == []
    clock.advance(LAPSES_AFTER_MS)
    assert list(decisions_to_announce(catalog.policies, clock.now_ms())) == []
    ended = catalog.policies.decision(decision.id)
    assert ended.state == "failed" and "check whether it is paused" in (ended.outcome or "")


def test_settings_that_do_not_fit_are_said_to_whoever_looks(catalog: Catalog, clock: ManualClock) -> None:
    policy = catalog.policies.set(JOB, {"max_paralelism": 8})
    with pytest.raises(ConfigurationError, match="max_paralelism"):
        evaluate(catalog, policy, clock.now_ms())


@pytest.mark.parametrize(
    ("before", "now", "since_ms"),
    [
        ("hot_key", Ailment.HOT_KEY, 7),
        ("hot_key", Ailment.SINK_BOUND, 7),
        ("hot_key", Ailment.HEALTHY, None),
        ("too_small", Ailment.HOT_KEY, None),
        (None, Ailment.HOT_KEY, None),
    ],
)
def test_bottlenecks_that_take_turns_are_one_trouble_that_lasts_since_the_first(
    before: str | None, now: Ailment, since_ms: int | None
) -> None:
    policy = PolicyRecord(JOB, True, {}, {}, 0, None, None, 0, before, 7 if before else None)
    made = Decision("stay", 2, None, "r", PolicyMemory(), Diagnosis(now, "f"))
    assert diagnosed(policy, made) == Diagnosed(now, since_ms)
    assert diagnosed(policy, dataclasses.replace(made, diagnosis=None)) is None
