"""Job file: matches payments with their orders within an hour of event time; counts, means, and what has no match.

    python -m examples.order_payments folder [seed]

writes a generated day of input, the folders ``orders`` and ``payments``, and prints the number of rows that each output
of the job must have.

::

    orders ───► key_by id ───────┐
                                 match ─┬─► matched ─┬─► running_mean    per customer
    payments ─► key_by order_id ─┘      │            └─► hourly_counts   per customer and hour
                                        ├─► unmatched_orders
                                        └─► unmatched_payments

A payment matches its order from the order's time up to and including an hour later; an order may have several payments.
What matches is decided when the watermark passes a payment: by then every earlier order has arrived. An order without a
payment is given up when the watermark passes the end of its hour. So the results do not depend on how records arrive,
as long as none is later than ``MAX_DISORDER``. A record that is later is taken, too, but what was decided stays. A
record without a time matches nothing and is left out.

``TRUTH`` says the same in plain SQL. An order's id is unique.

Settings of the job: ``input`` and ``output`` are directories.
"""

from __future__ import annotations

import operator
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WindowFunction,
)
from statecore.functions import OnTimerContext, ProcessContext, RuntimeContext
from statecore.runtime import Job, ParquetSink
from statecore.windows import WindowContext

ORDERS = "id bigint, customer string, cents bigint, ordered_at timestamp"
PAYMENTS = "id bigint, order_id bigint, cents bigint, paid_at timestamp"
MATCHED = "order_id bigint, payment_id bigint, customer string, cents bigint, paid_at timestamp"
MEANS = "customer string, payment_id bigint, payments bigint, mean_cents double"
HOURLY = "customer string, hour timestamp, payments bigint"
UNMATCHED_ORDERS = OutputTag("unmatched_orders", ORDERS)
UNMATCHED_PAYMENTS = OutputTag("unmatched_payments", PAYMENTS)

HOUR = timedelta(hours=1)
MAX_DISORDER = timedelta(minutes=10)
"""How far the watermark stays behind the newest record of a source."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Order(NamedTuple):
    """A record of the first source."""

    id: int
    customer: str
    cents: int
    ordered_at: datetime


class Payment(NamedTuple):
    """A record of the second source."""

    id: int
    order_id: int
    cents: int
    paid_at: datetime


class Match(KeyedCoProcessFunction):
    """Matches the payments of an order with it; runs per order id."""

    def open(self, ctx: RuntimeContext) -> None:
        """Get the states: the order, whether it is paid, and payments that the watermark has not passed."""
        order = "struct<id:bigint,customer:string,cents:bigint,ordered_at:timestamp>"
        payment = "struct<id:bigint,order_id:bigint,cents:bigint,paid_at:timestamp>"
        self._order = ctx.get_state(ValueStateDescriptor("order", order))
        self._is_paid = ctx.get_state(ValueStateDescriptor("is_paid", "boolean"))
        self._waiting = ctx.get_list_state(ListStateDescriptor("waiting", payment))

    def process_element1(self, value: Order, ctx: ProcessContext) -> None:
        """Keep an order until its hour is over."""
        self._order.update(value)
        ctx.timer_service().register_event_time_timer(_ms(value.ordered_at + HOUR))

    def process_element2(self, value: Payment, ctx: ProcessContext) -> None:
        """Keep a payment until every order before it has arrived."""
        self._waiting.add(value)
        ctx.timer_service().register_event_time_timer(_ms(value.paid_at))

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterator[Any]:
        """Decide on the payments that are due, then on the order if its hour is over."""
        order, waiting = self._order.value(), list(self._waiting.get())
        for payment in waiting:
            if _ms(payment.paid_at) > timestamp_ms:
                continue
            if order is not None and order.ordered_at <= payment.paid_at <= order.ordered_at + HOUR:
                self._is_paid.update(True)
                yield order.id, payment.id, order.customer, payment.cents, payment.paid_at
            else:
                ctx.output(UNMATCHED_PAYMENTS, payment)
        self._waiting.update(payment for payment in waiting if _ms(payment.paid_at) > timestamp_ms)
        if order is not None and _ms(order.ordered_at + HOUR) <= timestamp_ms:
            if not self._is_paid.value():
                ctx.output(UNMATCHED_ORDERS, order)
            self._order.clear()
            self._is_paid.clear()


class MeanOfCents(AggregateFunction):
    """The number of payments and their mean; exact sums are stored, only the mean is a floating-point number."""

    def create_accumulator(self) -> tuple[int, int]:
        """Return no payments and no cents."""
        return 0, 0

    def add(self, value: int, accumulator: Any) -> tuple[int, int]:
        """Add a payment's cents."""
        payments, cents = accumulator
        return payments + 1, cents + value

    def get_result(self, accumulator: Any) -> tuple[int, float]:
        """Return the number of payments and their mean."""
        payments, cents = accumulator
        return payments, cents / payments

    def merge(self, a: Any, b: Any) -> tuple[int, int]:
        """Return the sum of two accumulators."""
        return a[0] + b[0], a[1] + b[1]


MEAN = AggregatingStateDescriptor("mean", "struct<payments:bigint,cents:bigint>", aggregate=MeanOfCents())


class RunningMean(KeyedProcessFunction):
    """Yields a customer's mean payment so far, with every payment."""

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state."""
        self._mean = ctx.get_aggregating_state(MEAN)

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[Any]:
        """Add a matched payment."""
        self._mean.add(value.cents)
        yield value.customer, value.payment_id, *self._mean.get()


class HourlyRow(ProcessWindowFunction):
    """Produces the row of a customer and hour."""

    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[int]) -> Iterator[Any]:
        """Yield the number of payments."""
        for payments in elements:
            yield *key, EPOCH + timedelta(milliseconds=context.window.start), payments


def hourly_counts() -> WindowFunction:
    """Return the function that counts matched payments per hour."""
    return WindowFunction(
        TumblingEventTimeWindows(HOUR),
        ReducingStateDescriptor("payments", "bigint", reduce=operator.add),
        process=HourlyRow(),
        value=lambda matched: 1,
    )


def build(job: Job) -> None:
    """Wire the job."""
    folder, output = job.settings["input"], job.settings["output"]

    def files(name: str, columns: str) -> Any:
        def read(spark: SparkSession) -> DataFrame:
            return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}")

        return read

    orders = job.source("orders", read=files("orders", ORDERS), event_time="ordered_at", max_lateness=MAX_DISORDER)
    payments = job.source("payments", read=files("payments", PAYMENTS), event_time="paid_at", max_lateness=MAX_DISORDER)

    dated_orders = orders.filter("ordered_at IS NOT NULL").key_by("id")
    dated_payments = payments.filter("paid_at IS NOT NULL").key_by("order_id")
    matched = dated_orders.connect(dated_payments).process(Match(), output=MATCHED, uid="match")
    # Matches come out as the watermark passes them. Sorted within each epoch, they are sorted for good.
    in_order = matched.key_by("customer", order_by=("paid_at", "payment_id"))
    means = in_order.process(RunningMean(), output=MEANS, uid="running_mean")
    hourly = matched.key_by("customer").process(hourly_counts(), output=HOURLY, uid="hourly_counts")

    matched.sink("matched", ParquetSink(f"{output}/matched"))
    means.sink("running_mean", ParquetSink(f"{output}/running_mean"))
    hourly.sink("hourly_counts", ParquetSink(f"{output}/hourly_counts"))
    for tag in (UNMATCHED_ORDERS, UNMATCHED_PAYMENTS):
        matched.side_output(tag).sink(tag.name, ParquetSink(f"{output}/{tag.name}"))


# --- the truth, and a day of input ---

TRUTH = """
CREATE VIEW matched AS
SELECT orders.id AS order_id, payments.id AS payment_id, customer, payments.cents AS cents, paid_ms
FROM payments JOIN orders ON orders.id = order_id AND paid_ms BETWEEN ordered_ms AND ordered_ms + 3600000
WHERE paid_ms <= (SELECT ms FROM watermark);

CREATE VIEW unmatched_orders AS
SELECT * FROM orders
WHERE ordered_ms + 3600000 <= (SELECT ms FROM watermark) AND id NOT IN (SELECT order_id FROM matched);

CREATE VIEW unmatched_payments AS
SELECT * FROM payments
WHERE paid_ms <= (SELECT ms FROM watermark) AND id NOT IN (SELECT payment_id FROM matched);

CREATE VIEW running_mean AS
SELECT customer, payment_id, COUNT(*) OVER so_far, 1.0 * SUM(cents) OVER so_far / COUNT(*) OVER so_far
FROM matched WINDOW so_far AS (PARTITION BY customer ORDER BY paid_ms, payment_id);

CREATE VIEW hourly_counts AS
SELECT customer, paid_ms / 3600000 * 3600000 AS hour_ms, COUNT(*)
FROM matched GROUP BY customer, hour_ms HAVING hour_ms + 3600000 - 1 <= (SELECT ms FROM watermark);
"""
OUTPUTS = ("matched", "unmatched_orders", "unmatched_payments", "running_mean", "hourly_counts")


def truth(orders: Iterable[Order], payments: Iterable[Payment], watermark_ms: int) -> dict[str, Counter[Any]]:
    """Return the rows that each output has once the watermark is there; times are in ms."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE orders (id, customer, cents, ordered_ms)")
        database.execute("CREATE TABLE payments (id, order_id, cents, paid_ms)")
        database.execute("CREATE TABLE watermark (ms)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", map(in_ms, orders))
        database.executemany("INSERT INTO payments VALUES (?, ?, ?, ?)", map(in_ms, payments))
        database.execute("INSERT INTO watermark VALUES (?)", (watermark_ms,))
        database.executescript(TRUTH)
        return {name: Counter(database.execute(f"SELECT * FROM {name}")) for name in OUTPUTS}  # noqa: S608 - our names


def in_ms(row: Iterable[Any]) -> tuple[Any, ...]:
    """Return a row with its times in ms."""
    return tuple(_ms(value) if isinstance(value, datetime) else value for value in row)


def _ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def generated_day(seed: int, orders: int = 2_000) -> tuple[list[Order], list[Payment]]:
    """Return orders and payments of a day, each in order of arrival: up to ``MAX_DISORDER`` after their time.

    Some orders are paid late, in instalments or never; some payments have no order, or come before it.
    """
    chosen = random.Random(seed)  # noqa: S311 - repeatable, not secret
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    ordered: list[Order] = []
    paid: list[Payment] = []
    for number in range(orders):
        at = midnight + timedelta(milliseconds=chosen.randrange(24 * 3_600_000))
        ordered.append(Order(number, chosen.choice(("ann", "bob", "cem", "dia", "eve")), chosen.randrange(9_999), at))
        for delay in _payment_delays(chosen):
            # One payment in fifty names an order that does not exist.
            order_id = number if chosen.random() < 0.98 else -1 - number
            paid.append(Payment(len(paid), order_id, chosen.randrange(1, 9_999), at + delay))
    return (
        sorted(ordered, key=lambda order: order.ordered_at + _disorder(chosen)),
        sorted(paid, key=lambda payment: payment.paid_at + _disorder(chosen)),
    )


def _payment_delays(chosen: random.Random) -> list[timedelta]:
    """Return how long after an order its payments come."""
    millisecond = timedelta(milliseconds=1)
    within = timedelta(milliseconds=chosen.randrange(3_600_000))
    cases = [[within], [within], [within, HOUR / 2], [within, HOUR, HOUR + within], [within + HOUR], []]
    edges = [[timedelta(0)], [-millisecond], [HOUR], [HOUR + millisecond]]
    return chosen.choice(edges if chosen.random() < 0.1 else cases)


def _disorder(chosen: random.Random) -> timedelta:
    return chosen.choice((timedelta(0), MAX_DISORDER, chosen.random() * MAX_DISORDER))


def table(rows: Sequence[Order] | Sequence[Payment]) -> pa.Table:
    """Return rows as the job reads them."""
    return pa.Table.from_pylist([row._asdict() for row in rows])


def last_watermark(orders: Iterable[Order], payments: Iterable[Payment]) -> int:
    """Return the watermark in ms when everything was read: that of the source that is further behind."""
    newest = min(max(order.ordered_at for order in orders), max(payment.paid_at for payment in payments))
    return _ms(newest - MAX_DISORDER) - 1


def main(folder: str, seed: int = 1) -> None:
    """Write a day of input in files of 200 rows, and print how many rows each output must have."""
    orders, payments = generated_day(seed)
    inputs: dict[str, Sequence[Order] | Sequence[Payment]] = {"orders": orders, "payments": payments}
    for name, rows in inputs.items():
        (Path(folder) / name).mkdir(parents=True)
        for start in range(0, len(rows), 200):
            pq.write_table(table(rows[start : start + 200]), Path(folder) / name / f"{start:06d}.parquet")
        print(f"{len(rows):,} {name}")
    for name, expected in truth(orders, payments, last_watermark(orders, payments)).items():
        print(f"{expected.total():>8,} rows of {name}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
