"""Orders and payments on Spark: through kills, a live rescale and a restart, all outputs are those of the SQL."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from examples import order_payments
from examples.order_payments import Order, Payment, generated_day, in_ms, table, truth
from statecore.catalog import RequestRecord
from statecore.runtime.faults import FaultPoint
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, Bench
from tests.support.supervision import supervised
from tests.support.waiting import wait

COLUMNS = {
    "matched": ("order_id", "payment_id", "customer", "cents", "paid_at"),
    "unmatched_orders": Order._fields,
    "unmatched_payments": Payment._fields,
    "running_mean": ("customer", "payment_id", "payments", "mean_cents"),
    "hourly_counts": ("customer", "hour", "payments"),
}
FILES = 6
# One kill before a commit, and one between commit and publishing; both while epochs with records follow.
KILLS = {FaultPoint.CHANGELOG_WRITTEN: 0, FaultPoint.MANIFEST_WRITTEN: 1}


class Feed:
    """A day of input, given to the job in files; each source is cut elsewhere, each file has an undated row."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        orders, payments = generated_day(seed=7, orders=900)
        self._cuts = zip(cut(orders, seed=1), cut(payments, seed=2), strict=True)
        self.orders: list[Order] = []
        self.payments: list[Payment] = []
        self._rows = 0
        for name in ("orders", "payments"):
            (bench.input.parent / name).mkdir()

    def files(self, count: int) -> None:
        """Make files of both sources visible, and wait until the job has decided on all that they allow."""
        for _ in range(count):
            orders, payments = next(self._cuts)
            undated_order = Order(orders[0].id, "ann", 1, None)  # type: ignore[arg-type]
            undated_payment = Payment(-1, orders[0].id, 1, None)  # type: ignore[arg-type]
            self._bench.feed_table(table([*orders, undated_order]), folder="orders")
            self._bench.feed_table(table([*payments, undated_payment]), folder="payments")
            self._rows += len(orders) + len(payments) + 2
            self.orders += orders
            self.payments += payments
        wait(self._is_done, "the records and the timers that are due")

    def _is_done(self) -> bool:
        newest = self._bench.checkpoints.newest()
        if newest is None or newest.rows_total < self._rows:
            return False
        assert newest.watermark_ms is not None and newest.next_event_timer_ms is not None
        # An epoch is in the catalog once its outputs are published.
        published = {each.epoch for each in self._bench.catalog.epochs.of(JOB, limit=5)}
        return newest.next_event_timer_ms > newest.watermark_ms and newest.epoch in published


def cut(arrived: Sequence[Any], seed: int) -> Iterator[Sequence[Any]]:
    places = sorted(random.Random(seed).sample(range(1, len(arrived)), FILES - 1))
    for start, end in zip([0, *places], [*places, len(arrived)], strict=True):
        yield arrived[start:end]


def ask(bench: Bench, parallelism: int) -> RequestRecord:
    asked = bench.catalog.requests.send(JOB, "rescale", {"parallelism": parallelism}, f"live-{parallelism}")
    wait(lambda: bench.catalog.requests.get(asked.id).state in ("done", "failed"), "the rescale")
    return bench.catalog.requests.get(asked.id)


def assert_is_the_truth(bench: Bench, feed: Feed) -> None:
    watermark = bench.newest().watermark_ms
    assert watermark is not None
    for name, expected in truth(feed.orders, feed.payments, watermark).items():
        found = bench.published(name, COLUMNS[name])
        assert Counter(map(in_ms, found.elements())) == expected, name
        assert len(expected) > 30, name


@pytest.mark.nightly  # test_faults.py kills at every point, test_live_rescale.py rescales.
@pytest.mark.timeout(300)
def test_kills_a_live_rescale_and_a_restart_change_no_row(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.register(artifact=Path(order_payments.__file__), settings={"input": str(tmp_path)})
    hits = tmp_path / "hits"
    hits.mkdir()
    monkeypatch.setenv("STATECORE_FAULTS", ",".join(f"{point}@{epoch}" for point, epoch in KILLS.items()))
    monkeypatch.setenv("STATECORE_FAULT_DIR", str(hits))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    feed = Feed(bench)
    with supervised(bench, tmp_path / "logs"):
        feed.files(3)
        answer = ask(bench, 3)
        assert answer.error is None
        feed.files(1)
    assert {file.name for file in hits.iterdir()} == set(KILLS)
    assert [each.state for each in bench.catalog.generations.of(JOB)] == ["stopped", "failed", "failed"]
    assert bench.newest().parallelism == 3
    assert_is_the_truth(bench, feed)
    monkeypatch.delenv("STATECORE_FAULTS")
    with bench.running(1):
        feed.files(FILES - 4)
    assert bench.newest().parallelism == 1
    assert_is_the_truth(bench, feed)
