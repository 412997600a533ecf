"""Timers fire when they are due, whether a record comes or not; and no epoch runs for nothing."""

from __future__ import annotations

import time
from collections import Counter, namedtuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from statecore.runtime.epoch.ticks import seconds_until_due
from statecore.snapshot.manifest import Manifest
from statecore.testing import KeyedOperatorHarness, physical
from tests.support.alone import history, restore
from tests.support.bench import Bench
from tests.support.jobs import reminders
from tests.support.waiting import wait

OUTPUT = ("what", "k", "at", "count")
Row = namedtuple("Row", ["k", "n", "at"])


def settled(bench: Bench) -> bool:
    """Whether every record was read and no timer is left that fires within a minute."""
    newest = bench.checkpoints.newest()
    if newest is None or newest.rows_total < len(bench.fed):
        return False
    due_s = seconds_until_due(newest, time.time())
    return due_s is None or due_s > 60


def published_kinds(bench: Bench) -> Counter[str]:
    return Counter(what for what, *_ in bench.published("seen", OUTPUT).elements())


def assert_as_alone(bench: Bench, manifests: list[Manifest]) -> None:
    alone = KeyedOperatorHarness(reminders.Remind())
    fed = iter(bench.fed)
    watermark_ms = None
    for each in manifests:
        before = len(alone.output)
        if watermark_ms is not None:
            alone.watermark(watermark_ms)
        alone.set_processing_time(each.batch_timestamp_ms)
        for k, n in sorted((next(fed) for _ in range(each.rows)), key=lambda record: record[1]):
            alone.process(Row(k, n, datetime.fromtimestamp(n, UTC)), timestamp_ms=n * 1000)
        watermark_ms = each.watermark_ms
        assert len(alone.output) > before, f"epoch {each.epoch} ran for nothing"
    assert next(fed, None) is None
    assert bench.published("seen", OUTPUT) == Counter(map(tuple, alone.output))
    restored = restore(bench, manifests[-1])
    for name in ("count", "__event_timers", "__processing_timers"):
        assert physical(restored, name) == physical(alone.keyed_backend, name), name


def test_timers_fire_without_a_record_and_survive_restart_and_rescale(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(reminders.__file__))
    with bench.running(3):
        bench.feed(numbers=range(60))
        wait(lambda: settled(bench), "all timers of the first file")
        newest = bench.newest()
        # Every record's timer by the clock, and by event time all that the newest record has passed.
        kinds = {"record": 60, "processing_time": 60, "event_time": 49}
        wait(lambda: published_kinds(bench).total() >= sum(kinds.values()), "the outputs of the newest epoch")
        assert published_kinds(bench) == kinds
        assert (newest.rows, newest.rows_total, newest.next_event_timer_ms) == (0, 60, 59_000)
        assert [(source.name, source.positions) for source in newest.sources] == [("records", ('{"logOffset":0}',))]
        bench.feed(numbers=range(reminders.LATER, reminders.LATER + 20))
        bench.wait_done()
    stopped = bench.newest()
    assert stopped.next_processing_timer_ms is not None
    with bench.running(2):
        wait(lambda: settled(bench), "timers that were left when the job stopped")
        fired = bench.newest()
        assert (fired.parallelism, fired.rows, fired.next_processing_timer_ms) == (2, 0, None)
        bench.feed(numbers=range(reminders.NEVER, reminders.NEVER + 5))
        wait(lambda: settled(bench), "event time to go on")
    left = bench.newest()
    assert left.next_processing_timer_ms is not None
    with bench.running(3):
        # Nothing is due for an hour: the next epoch is that of the next record.
        bench.feed(numbers=[reminders.NEVER])
        bench.wait_done()
        assert (bench.newest().epoch, bench.newest().rows) == (left.epoch + 1, 1)
    assert_as_alone(bench, history(bench))
