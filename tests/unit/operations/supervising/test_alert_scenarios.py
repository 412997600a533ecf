"""What people are sent while a job goes through something: every message, in order, with a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from statecore.catalog import Catalog, EpochRecord, GenerationRecord, Liveness, SourceBacklog
from statecore.operations.restarts import next_start_ms
from statecore.operations.supervising.alert_loop import INTERVAL_S, AlertLoop
from tests.contracts.catalog.fixtures import ManualClock

LOOK_MS = round(INTERVAL_S * 1000)
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
BROKEN = "orders.py:13 in check: ValueError: negative"


class Play:
    """A job, what happens to it, and what people are sent meanwhile."""

    def __init__(self, catalog: Catalog, clock: ManualClock) -> None:
        self.catalog = catalog
        self.sent: list[str] = []
        self._clock = clock
        self._loop = AlertLoop(catalog, "supervisor", self.sent.append)
        self._driver: GenerationRecord | None = None
        self._epoch = 0
        self._waiting: int | None = 0
        self.problem: str | None = None
        self.trigger_ms: int | None = None
        catalog.jobs.register("orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)
        catalog.jobs.set_desired("orders", state="running")

    @property
    def heads(self) -> list[str]:
        """How each message begins: severity and alert."""
        return [" ".join(text.split()[:2]).rstrip(",") for text in self.sent]

    def start(self) -> None:
        """Have the next driver start and run, once its pause is over."""
        history = self.catalog.generations.of("orders")
        pause_ms = next_start_ms(history) - self._clock.now_ms()
        self._pass(max(0, pause_ms))
        self._driver = self.catalog.generations.claim("orders", log_path="/logs/{generation}.log")
        self._pass(5 * SECOND)
        self._beat()

    def fail(self, error: str = BROKEN) -> None:
        """Have the driver fail."""
        assert self._driver is not None
        self.catalog.generations.end("orders", self._driver.generation, state="failed", error=error)
        self._driver = None

    def stop(self) -> None:
        """Stop the job."""
        assert self._driver is not None
        self.catalog.jobs.set_desired("orders", state="stopped")
        self.catalog.generations.end("orders", self._driver.generation, state="stopped")
        self._driver = None

    def arrive(self, rows: int | None) -> None:
        """Have so many rows wait from now on; None for a source that does not say."""
        self._waiting = rows

    def run(self, ms: int, *, every_ms: int | None = None, memory: float | None = None, took_ms: int = 500) -> None:
        """Let time pass; the driver commits an epoch every so often, or never."""
        assert self._driver is not None
        due_ms = self._clock.now_ms() + (ms + 1 if every_ms is None else every_ms)
        end_ms = self._clock.now_ms() + ms
        while self._clock.now_ms() < end_ms:
            self._pass(min(LOOK_MS, end_ms - self._clock.now_ms()))
            if self._clock.now_ms() >= due_ms and every_ms is not None:
                self.commit(memory=memory, took_ms=took_ms)
                due_ms += every_ms

    def commit(self, *, memory: float | None = None, took_ms: int = 500) -> None:
        """Have the driver commit an epoch."""
        assert self._driver is not None
        self._epoch += 1
        now_ms, number = self._clock.now_ms(), self._driver.generation
        made = EpochRecord("orders", 1, self._epoch, number, 2, 10, 10, now_ms - took_ms, now_ms, took_ms)
        self.catalog.epochs.record(replace(made, memory_share=memory))

    def skip(self, ms: int) -> None:
        """Let much time pass in which nothing happens but heartbeats and measurements at its end."""
        self._clock.advance(ms)
        self._beat()

    def _pass(self, ms: int) -> None:
        self._clock.advance(ms)
        self._beat()
        self._loop.step()

    def _beat(self) -> None:
        if self._driver is None:
            return
        self.catalog.generations.heartbeat("orders", self._driver.generation, trigger_ms=self.trigger_ms)
        waiting = None if self.problem else self._waiting
        sources = [SourceBacklog("in", records=waiting, problem=self.problem)]
        self.catalog.epochs.record_backlog("orders", self._driver.generation, sources)


@pytest.fixture
def play(catalog_url: str) -> Iterator[Play]:
    clock = ManualClock()
    # Nobody beats while a scenario skips days.
    with Catalog(catalog_url, clock=clock, liveness=Liveness(running_ms=100 * DAY, launching_ms=100 * DAY)) as catalog:
        yield Play(catalog, clock)


def test_a_driver_that_committed_for_an_hour_and_fails_is_no_crash_loop(play: Play) -> None:
    play.start()
    play.arrive(40)
    for _ in range(3):
        play.run(2 * MINUTE, every_ms=30 * SECOND)
        play.skip(43 * MINUTE)
        play.commit()
        play.fail()
        play.start()
    play.run(5 * MINUTE, every_ms=30 * SECOND)
    assert play.sent == []


def test_failures_weeks_apart_of_a_job_that_nothing_arrives_for_are_no_crash_loop(play: Play) -> None:
    for _ in range(3):
        play.start()
        play.run(MINUTE)
        play.skip(20 * DAY)
        play.fail()
    play.start()
    play.run(MINUTE)
    assert play.sent == []


def test_a_crash_loop_is_one_message_with_its_cause_until_an_epoch_is_committed(play: Play) -> None:
    play.start()
    play.run(10 * MINUTE, every_ms=30 * SECOND)
    play.arrive(77)
    for _ in range(6):
        play.run(5 * SECOND)
        play.fail()
        play.start()
    play.run(20 * SECOND)
    assert play.heads == ["CRITICAL crash_loop"]
    assert play.sent[0].startswith(f"CRITICAL crash_loop, job orders: {BROKEN} (crash loop: 2 drivers failed in a row")
    assert "What to do: correct the job file and register it with `statecore register orders" in play.sent[0]
    play.commit()
    play.run(2 * MINUTE, every_ms=10 * SECOND)
    assert play.heads == ["CRITICAL crash_loop", "RESOLVED crash_loop"]


def test_drivers_that_hang_for_minutes_before_they_fail_stall_until_they_are_a_crash_loop(play: Play) -> None:
    play.start()
    play.run(MINUTE, every_ms=10 * SECOND)
    play.arrive(77)
    for _ in range(4):
        play.run(3 * MINUTE)
        play.fail()
        play.start()
    assert play.heads == ["CRITICAL stream_stalled", "CRITICAL crash_loop"]
    play.commit()
    play.run(2 * MINUTE, every_ms=10 * SECOND)
    assert sorted(play.heads[2:]) == ["RESOLVED crash_loop", "RESOLVED stream_stalled"]


def test_a_crash_loop_after_a_failure_of_a_driver_that_had_committed_counts_that_one(play: Play) -> None:
    play.start()
    play.arrive(5)
    play.run(MINUTE, every_ms=10 * SECOND)
    play.fail()
    play.start()
    play.run(20 * SECOND)
    assert play.sent == []
    play.fail()
    play.start()
    assert play.heads == ["CRITICAL crash_loop"]


def test_a_source_that_was_silent_for_hours_and_resumes_is_no_stall(play: Play) -> None:
    play.start()
    play.arrive(3)
    play.run(MINUTE, every_ms=10 * SECOND)
    play.arrive(0)
    play.run(5 * MINUTE)
    play.skip(5 * HOUR)
    play.arrive(900)
    play.run(50 * SECOND)
    play.commit()
    play.arrive(0)
    play.run(5 * MINUTE)
    assert play.sent == []


def test_a_stream_that_stalls_is_told_once_and_resolved_by_a_commit(play: Play) -> None:
    play.start()
    play.arrive(3)
    play.run(MINUTE, every_ms=10 * SECOND)
    play.run(5 * MINUTE)
    assert play.heads == ["CRITICAL stream_stalled"]
    play.run(2 * MINUTE, every_ms=10 * SECOND)
    assert play.heads == ["CRITICAL stream_stalled", "RESOLVED stream_stalled"]


def test_epochs_that_take_minutes_are_no_stall(play: Play) -> None:
    play.start()
    play.arrive(3)
    play.run(4 * MINUTE)
    play.commit(took_ms=4 * MINUTE)
    play.run(16 * MINUTE, every_ms=8 * MINUTE, took_ms=8 * MINUTE)
    assert play.sent == []


def test_a_first_epoch_that_is_never_committed_is_told(play: Play) -> None:
    play.arrive(77)
    play.start()
    play.run(4 * MINUTE)
    assert play.sent == []
    play.run(3 * MINUTE)
    assert play.heads == ["CRITICAL stream_stalled"]
    assert "no epoch was committed for" in play.sent[0]


def test_a_driver_that_hangs_after_one_failure_is_a_stall_once_its_first_epoch_had_time(play: Play) -> None:
    play.start()
    play.arrive(3)
    play.run(MINUTE, every_ms=10 * SECOND)
    play.fail()
    play.start()
    play.run(4 * MINUTE)
    assert play.sent == []
    play.run(3 * MINUTE)
    assert play.heads == ["CRITICAL stream_stalled"]


def test_a_first_epoch_after_an_outage_that_takes_minutes_is_no_stall(play: Play) -> None:
    play.start()
    play.run(MINUTE, every_ms=10 * SECOND)
    play.stop()
    play.skip(3 * HOUR)
    play.arrive(5_000_000)
    play.catalog.jobs.set_desired("orders", state="running")
    play.start()
    play.run(4 * MINUTE)
    play.commit(took_ms=4 * MINUTE)
    play.run(3 * MINUTE)
    assert play.sent == []


def test_a_trigger_of_minutes_is_no_stall(play: Play) -> None:
    play.trigger_ms = 5 * MINUTE
    play.start()
    play.arrive(3)
    play.run(16 * MINUTE, every_ms=5 * MINUTE)
    assert play.sent == []


def test_idle_drivers_of_sources_that_do_not_say_what_waits_are_no_crash_loop(play: Play) -> None:
    play.arrive(None)
    for _ in range(3):
        play.start()
        play.run(2 * MINUTE)
        play.skip(3 * DAY)
        play.fail()
    play.start()
    play.run(2 * MINUTE)
    assert play.sent == []


def test_a_source_whose_folder_is_gone_is_named_until_it_is_back(play: Play) -> None:
    play.start()
    play.run(MINUTE, every_ms=10 * SECOND)
    play.problem = "found no /data/in; expected the input of the source there; bring it back"
    play.run(40 * SECOND)
    assert play.sent == []
    play.run(5 * MINUTE)
    assert play.heads == ["WARNING source_silent"]
    assert "source in cannot be looked at: found no /data/in; expected" in play.sent[0]
    play.problem = None
    play.run(MINUTE)
    assert play.heads == ["WARNING source_silent", "RESOLVED source_silent"]


def test_a_silence_is_not_told_before_a_week_has_shown_how_long_one_lasts(play: Play) -> None:
    play.start()
    for _ in range(20):
        play.skip(HOUR)
        play.commit()
    play.skip(60 * HOUR)
    play.run(MINUTE)
    assert play.sent == []


def test_a_silence_of_three_times_the_longest_is_told_and_a_driver_that_was_down_is_none(play: Play) -> None:
    play.start()
    for _ in range(8 * 24):
        play.skip(HOUR)
        play.commit()
    play.stop()
    play.skip(30 * HOUR)
    play.catalog.jobs.set_desired("orders", state="running")
    play.start()
    play.commit()
    play.skip(3 * HOUR - MINUTE)
    play.run(40 * SECOND)
    assert play.sent == []
    play.run(3 * MINUTE)
    assert play.heads == ["WARNING source_silent"]
    assert "nothing has arrived for 3 h 1 min; expected something within 2 h 59 min" in play.sent[0]
    play.commit()
    play.run(MINUTE)
    assert play.heads == ["WARNING source_silent", "RESOLVED source_silent"]


@pytest.mark.parametrize(("setting", "told"), [("30min", ["WARNING source_silent"]), ("off", [])])
def test_a_job_can_say_how_long_is_too_long(play: Play, setting: str, told: list[str]) -> None:
    play.catalog.jobs.register(
        "orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16,
        conf={"statecore.source.silent": setting},
    )  # fmt: skip
    play.start()
    play.commit()
    play.skip(29 * MINUTE)
    play.run(30 * SECOND)
    assert play.sent == []
    play.run(5 * MINUTE)
    assert play.heads == told


def test_memory_around_the_limit_is_one_message_and_a_single_epoch_is_none(play: Play) -> None:
    play.start()
    play.arrive(3)
    play.run(MINUTE, every_ms=10 * SECOND, memory=0.5)
    play.commit(memory=0.9)
    play.run(20 * SECOND)
    play.run(MINUTE, every_ms=10 * SECOND, memory=0.5)
    assert play.sent == []
    for share in (0.85, 0.85, 0.78, 0.82, 0.75, 0.85):
        play.run(2 * MINUTE, every_ms=10 * SECOND, memory=share)
    assert play.heads == ["WARNING memory_full"]
    play.run(2 * MINUTE, every_ms=10 * SECOND, memory=0.6)
    assert play.heads == ["WARNING memory_full", "RESOLVED memory_full"]


def test_workers_that_come_and_go_are_told_once_they_stay_away(play: Play) -> None:
    catalog = play.catalog

    def report(ready: int) -> None:
        catalog.clusters.report("c", ready_workers=ready, message="no capacity" if ready < 4 else None)

    catalog.clusters.register("c", "processes", {}, 4)
    catalog.jobs.register(
        "orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16, cluster="c"
    )
    play.start()
    for ready in (1, 4, 1, 4, 1, 4):
        report(ready)
        play.run(2 * MINUTE)
    assert play.sent == []
    report(1)
    play.run(6 * MINUTE)
    assert play.heads == ["WARNING workers_missing"]
    report(4)
    play.run(10 * SECOND)
    report(3)
    play.run(10 * SECOND)
    assert play.heads == ["WARNING workers_missing"]
    report(4)
    play.run(MINUTE)
    assert play.heads == ["WARNING workers_missing", "RESOLVED workers_missing"]


def test_a_stop_ends_an_alert_and_a_lost_driver_is_one_message(play: Play) -> None:
    play.start()
    play.arrive(3)
    play.run(MINUTE, every_ms=10 * SECOND)
    play.fail("no heartbeat for 21000 ms while running; see /logs/1.log")
    play.start()
    play.run(20 * SECOND)
    assert play.heads == ["WARNING driver_lost"]
    play.catalog.jobs.set_desired("orders", state="stopped")
    play.run(MINUTE)
    assert play.heads == ["WARNING driver_lost", "RESOLVED driver_lost"]
