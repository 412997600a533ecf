"""Orders and payments against plain SQL, however the day is cut into epochs, and each function alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from examples import order_payments
from examples.order_payments import (
    HOUR,
    MAX_DISORDER,
    UNMATCHED_ORDERS,
    UNMATCHED_PAYMENTS,
    Match,
    Order,
    Payment,
    RunningMean,
    generated_day,
    hourly_counts,
    in_ms,
    last_watermark,
    truth,
)
from statecore.model import parse_row
from statecore.runtime import Job
from statecore.testing import KeyedOperatorHarness, TwoInputOperatorHarness

NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
ORDER = Order(1, "ann", 500, NINE)


class Matched(NamedTuple):
    """A row of the main output."""

    order_id: int
    payment_id: int
    customer: str
    cents: int
    paid_at: datetime


def ms(moment: datetime) -> int:
    (found,) = in_ms([moment])
    return int(found)


def matching() -> TwoInputOperatorHarness:
    return TwoInputOperatorHarness(
        Match(), key=lambda v: (v.id,), key2=lambda v: (v.order_id,), output=order_payments.MATCHED
    )


def order(harness: TwoInputOperatorHarness, value: Order) -> None:
    harness.process1(value, ms(value.ordered_at))


def pay(harness: TwoInputOperatorHarness, value: Payment) -> None:
    harness.process2(value, ms(value.paid_at))


@pytest.mark.parametrize("delay", [timedelta(0), MILLISECOND, HOUR], ids=str)
def test_a_payment_within_the_hour_matches_once_the_watermark_is_there(delay: timedelta) -> None:
    harness = matching()
    pay(harness, Payment(7, 1, 500, NINE + delay))
    order(harness, ORDER)
    harness.watermark(ms(NINE + delay) - 1)
    assert harness.output == []
    harness.watermark(ms(NINE + delay))
    assert harness.output == [(1, 7, "ann", 500, NINE + delay)]
    harness.watermark(ms(NINE + 2 * HOUR))
    assert harness.side_output(UNMATCHED_ORDERS) == harness.side_output(UNMATCHED_PAYMENTS) == []


@pytest.mark.parametrize("delay", [-MILLISECOND, HOUR + MILLISECOND], ids=str)
def test_a_payment_outside_the_hour_and_its_order_go_to_the_side_outputs(delay: timedelta) -> None:
    harness, payment = matching(), Payment(7, 1, 500, NINE + delay)
    order(harness, ORDER)
    pay(harness, payment)
    harness.watermark(ms(NINE + 2 * HOUR))
    assert harness.output == []
    assert harness.side_output(UNMATCHED_ORDERS) == [ORDER]
    assert harness.side_output(UNMATCHED_PAYMENTS) == [payment]


def test_every_instalment_matches_and_nothing_is_kept_after_the_hour() -> None:
    harness = matching()
    order(harness, ORDER)
    for number, minutes in enumerate((5, 5, 40)):
        pay(harness, Payment(number, 1, 100, NINE + timedelta(minutes=minutes)))
    harness.watermark(ms(NINE + HOUR))
    assert [output[1] for output in harness.output] == [0, 1, 2]
    assert not any(any(table.groups.values()) for table in harness.keyed_backend.tables.values())


def test_an_order_moves_with_its_payments_in_a_rescale() -> None:
    old = matching()
    order(old, ORDER)
    pay(old, Payment(7, 1, 500, NINE))
    new = [
        TwoInputOperatorHarness(
            Match(), lambda v: (v.id,), lambda v: (v.order_id,), parallelism=2, subtask=n, restore_from=old.snapshot()
        )
        for n in range(2)
    ]
    for subtask in new:
        subtask.watermark(ms(NINE + HOUR))
    assert [row for subtask in new for row in subtask.output] == [(1, 7, "ann", 500, NINE)]


def test_the_running_mean_is_that_of_all_payments_so_far() -> None:
    harness = KeyedOperatorHarness(RunningMean(), key=lambda v: (v.customer,), output=order_payments.MEANS)
    for number, cents in enumerate((100, 200, 225)):
        harness.process(Matched(1, number, "ann", cents, NINE))
    assert harness.output == [("ann", 0, 1, 100.0), ("ann", 1, 2, 150.0), ("ann", 2, 3, 175.0)]


def test_an_hour_is_counted_when_it_is_over() -> None:
    harness = KeyedOperatorHarness(hourly_counts(), key=lambda v: (v.customer,), output=order_payments.HOURLY)
    for minute in (0, 59, 60):
        paid_at = NINE + timedelta(minutes=minute)
        harness.process(Matched(1, minute, "ann", 1, paid_at), ms(paid_at))
    harness.watermark(ms(NINE + HOUR) - 2)
    assert harness.output == []
    harness.watermark(ms(NINE + HOUR) - 1)
    assert harness.output == [("ann", NINE, 2)]


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_the_sql_however_each_input_is_cut_into_epochs(seed: int) -> None:
    orders, payments = generated_day(seed, orders=600)
    match, watermark = matching(), None
    mean = KeyedOperatorHarness(RunningMean(), key=lambda v: (v.customer,))
    hourly = KeyedOperatorHarness(hourly_counts(), key=lambda v: (v.customer,))
    done: tuple[list[Order], list[Payment]] = ([], [])
    for ordered, paid in [*zip(cut(orders, seed), cut(payments, seed + 100), strict=True), ([], [])]:
        found = len(match.output)
        if watermark is not None:
            match.watermark(watermark)
        for row in sorted((Matched(*row) for row in match.output[found:]), key=lambda row: (row.paid_at, row[1])):
            mean.process(row, ms(row.paid_at))
            hourly.process(row, ms(row.paid_at))
        if watermark is not None:
            hourly.watermark(watermark)
            expected = truth(*done, watermark)
            assert rows(match.output) == expected["matched"]
            assert rows(mean.output) == expected["running_mean"]
            assert rows(hourly.output) == expected["hourly_counts"]
            for tag in (UNMATCHED_ORDERS, UNMATCHED_PAYMENTS):
                assert rows(match.side_output(tag)) == expected[tag.name]
        for each in ordered:
            order(match, each)
        for payment in paid:
            pay(match, payment)
        done[0].extend(ordered)
        done[1].extend(paid)
        watermark = last_watermark(*done)
    assert len(match.output) > 400
    assert len(match.side_output(UNMATCHED_ORDERS)) > 100
    assert len(match.side_output(UNMATCHED_PAYMENTS)) > 100


def cut(arrived: Sequence[Any], seed: int, parts: int = 12) -> Iterator[Sequence[Any]]:
    """Cut records in order of arrival into as many epochs, each with at least one record."""
    places = sorted(random.Random(seed).sample(range(1, len(arrived)), parts - 1))
    for start, end in zip([0, *places], [*places, len(arrived)], strict=True):
        yield arrived[start:end]


def rows(outputs: Sequence[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(map(in_ms, outputs))


def test_no_generated_record_is_later_than_the_disorder_that_the_job_allows() -> None:
    orders, payments = generated_day(seed=1)
    for times in ([each.ordered_at for each in orders], [each.paid_at for each in payments]):
        newest, most = times[0], timedelta(0)
        for at in times:
            newest = max(newest, at)
            most = max(most, newest - at)
        assert MAX_DISORDER / 2 < most <= MAX_DISORDER


def test_a_day_of_input_is_written_and_its_results_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order_payments.main(str(tmp_path))
    orders, payments = generated_day(seed=1)
    read = [Order(*row.values()) for row in pq.read_table(tmp_path / "orders").to_pylist()]
    assert sorted(read) == sorted(orders)
    assert pq.read_table(tmp_path / "payments").num_rows == len(payments)
    printed = capsys.readouterr().out
    for name, expected in truth(orders, payments, last_watermark(orders, payments)).items():
        assert f"{expected.total():,} rows of {name}\n" in printed


def test_build_connects_both_sources_by_the_orders_id() -> None:
    job = Job({"input": "in", "output": "out"})
    order_payments.build(job)
    match, mean, hourly = job.validated().operators
    assert [each.key_columns for each in match.inputs] == [("id",), ("order_id",)]
    assert [each.first.key_columns for each in (mean, hourly)] == [("customer",)] * 2
    assert {source.max_lateness for source in job.sources} == {MAX_DISORDER}
    assert {binding.name for binding in job.sinks} == set(truth([], [], 0))


def test_rows_have_the_columns_that_the_job_declares() -> None:
    for columns, row in (
        (order_payments.ORDERS, Order),
        (order_payments.PAYMENTS, Payment),
        (order_payments.MATCHED, Matched),
    ):
        assert tuple(field.name for field in parse_row(columns)) == row._fields
