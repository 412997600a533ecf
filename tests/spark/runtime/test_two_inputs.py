"""Unions and connected streams give what their functions give alone, over restarts, rescales and a rewrite."""

from __future__ import annotations

from collections import Counter, namedtuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from statecore.joins import CoGroupWindowFunction, Interval, IntervalJoinFunction
from statecore.runtime import read_savepoint, rewrite_savepoint
from statecore.testing import TwoInputOperatorHarness, physical
from tests.support.alone import history, live, restore
from tests.support.bench import Bench
from tests.support.jobs import two_inputs
from tests.support.waiting import wait

Row = namedtuple("Row", ["k", "n", "at"])
Other = namedtuple("Other", ["at", "n", "k"])
DoubledRow = namedtuple("DoubledRow", ["id", "m"])
COLUMNS = {"one": ["k", "n", "at"], "other": ["at", "n", "k"]}


def rows(*numbers: int) -> list[Row]:
    return [Row(f"k{n % 7}", n, n * 1000) for n in numbers]


def dated(at: int) -> datetime:
    return datetime.fromtimestamp(at // 1000, UTC)


class Alone:
    """The functions of two inputs without an engine."""

    def __init__(self) -> None:
        self.pairs = TwoInputOperatorHarness(two_inputs.Pairs(), key=lambda v: (v.k,), key2=lambda v: (v.id,))
        self.in_order = TwoInputOperatorHarness(two_inputs.InOrder())

        interval = Interval(timedelta(seconds=-14), timedelta(seconds=7))
        self.near = TwoInputOperatorHarness(
            IntervalJoinFunction(
                two_inputs.Near(), interval, two_inputs.LATE.value_type, two_inputs.LATE_OTHER.value_type,
                left_late=two_inputs.LATE, right_late=two_inputs.LATE_OTHER,
            )
        )  # fmt: skip
        self.sides = TwoInputOperatorHarness(
            CoGroupWindowFunction(
                two_inputs.Sides(), two_inputs.WINDOWS, two_inputs.LATE.value_type, two_inputs.LATE_OTHER.value_type,
                right_late=two_inputs.TOO_LATE,
            )
        )  # fmt: skip

    def epoch(self, one: list[Row], other: list[Row], watermark_ms: int | None) -> None:
        if watermark_ms is not None:
            self.pairs.watermark(watermark_ms)
            self.near.watermark(watermark_ms)
            self.sides.watermark(watermark_ms)
        for join in (self.near, self.sides):
            for row in one:
                join.process1(row._replace(at=dated(row.at)), timestamp_ms=row.at)
            for row in other:
                join.process2(Other(dated(row.at), row.n, row.k), timestamp_ms=row.at)
        for row in sorted(one, key=lambda row: row.n):
            self.pairs.process1(row, timestamp_ms=row.at)
        for row in sorted([*one, *other], key=lambda row: row.n):
            self.pairs.process2(DoubledRow(row.k, row.n * 2), timestamp_ms=row.at)
        # The first stream comes first where times are equal.
        for time in sorted({row.at for row in (*one, *other)}):
            for row in sorted(row for row in one if row.at == time):
                self.in_order.process1(row)
            for row in sorted(row for row in other if row.at == time):
                self.in_order.process2(row)


def offer(bench: Bench, name: str, fed: list[Row]) -> None:
    at = pa.array([dated(row.at) for row in fed], pa.timestamp("us", "UTC"))
    columns = {"k": [row.k for row in fed], "n": pa.array([row.n for row in fed], pa.int64()), "at": at}
    bench.feed_table(pa.table(columns).select(COLUMNS[name]), folder=name)


def test_every_union_and_connection_gives_what_its_function_gives_alone(spark: Any, bench: Bench) -> None:
    for name in COLUMNS:
        (bench.input.parent / name).mkdir()
    bench.register(artifact=Path(two_inputs.__file__), settings={"folder": str(bench.input.parent)})
    # Spark takes one file of each source at a time, so each pair is one epoch.
    epochs = [
        (rows(*range(100, 130)), rows(*range(90, 120))),
        (rows(*range(110, 150)), rows(*range(110, 140, 2))),
        (rows(*range(140, 170)), rows(*range(130, 190))),
        (rows(*range(180, 200)), rows(*range(180, 195))),
    ]
    first, then = epochs[:2], epochs[2:]
    for parallelism, fed in ((3, first), (2, then)):
        for one, other in fed:
            offer(bench, "one", one)
            offer(bench, "other", other)
        expected = sum(len(one) + len(other) for one, other in epochs[: 4 if fed is then else 2])
        with bench.running(parallelism):
            wait(lambda: bench.rows_done() >= expected or bench.generation().state == "failed", "the records")  # noqa: B023
            assert bench.rows_done() == expected, bench.generation().error

    alone, before, ahead = Alone(), None, iter(epochs)
    for manifest in history(bench):
        # Timers have fired in epochs of their own, too.
        alone.epoch(*(next(ahead) if manifest.rows else ([], [])), before)
        before = manifest.watermark_ms
    assert next(ahead, None) is None and before == 193_999
    every = [row for one, other in epochs for row in (*one, *other)]
    assert bench.published("doubled", ("id", "m", "at_ms")) == Counter((row.k, row.n * 2, row.at) for row in every)
    assert bench.published("both", ("stream", "n")) == Counter(
        (name, row.n) for one, other in epochs for name, fed in (("a", one), ("b", other)) for row in fed
    )
    assert bench.published("in-order", ("k", "before", "what")) == Counter(alone.in_order.output)
    assert bench.published("pairs", ("k", "held", "m", "what")) == Counter(alone.pairs.output)
    assert Counter(output[3] for output in alone.pairs.output)["due"] > 20
    assert bench.published("near", ("n", "m", "at_ms")) == Counter(alone.near.output)
    assert bench.published("sides", ("k", "start", "n", "m")) == Counter(alone.sides.output)
    assert any(n and m for _, _, n, m in alone.sides.output)
    assert any(not (n and m) for _, _, n, m in alone.sides.output)
    for join, tag in (
        (alone.near, two_inputs.LATE),
        (alone.near, two_inputs.LATE_OTHER),
        (alone.sides, two_inputs.TOO_LATE),
    ):
        late = join.side_output(tag)
        assert late and bench.published(tag.name, ("n",)) == Counter((row.n,) for row in late)
    kept = restore(bench, bench.newest(), uid="near")
    for name in ("left", "right"):
        assert live(physical(kept, name)) == live(physical(alone.near.keyed_backend, name)), name
    backends = restore(bench, bench.newest(), uid="sides"), alone.sides.keyed_backend
    timers, expected_timers = (physical(backend, "__window_timers") for backend in backends)
    assert timers == expected_timers
    # In no order: the job does not ask for one.
    records, expected_records = (
        {scope: sorted(rows, key=repr) for scope, rows in physical(backend, "records").items()} for backend in backends
    )
    assert records == expected_records
    restored = restore(bench, bench.newest(), uid="pairs")
    for name in ("held", "__event_timers"):
        assert physical(restored, name) == physical(alone.pairs.keyed_backend, name), name
    late = [record.late_rows for record in bench.catalog.epochs.of(bench.newest().job, limit=20)]
    assert any(each["one"] for each in late) and any(each["other"] for each in late)


def test_two_inputs_survive_a_rewrite_and_another_parallelism_of_their_operators_alone(
    spark: Any, bench: Bench
) -> None:
    for name in COLUMNS:
        (bench.input.parent / name).mkdir()
    epochs = [
        (rows(*range(100, 130)), rows(*range(90, 120))),
        (rows(*range(110, 150)), rows(*range(110, 140, 2))),
        (rows(*range(140, 170)), rows(*range(130, 190))),
        (rows(*range(180, 200)), rows(*range(180, 195))),
    ]
    fed, wishes = 0, dict[str, Any]()
    # The operators' own parallelism changes, that of the job too; the rewrite gives each key another key group.
    for half, (parallelism, own) in enumerate(((3, 4), (2, 1))):
        settings = {"folder": str(bench.input.parent), "parallelism": str(own)}
        bench.register(artifact=Path(two_inputs.__file__), settings=settings)
        for one, other in epochs[2 * half : 2 * half + 2]:
            offer(bench, "one", one)
            offer(bench, "other", other)
            fed += len(one) + len(other)
        with bench.running(parallelism, **wishes):
            wait(lambda: bench.rows_done() >= fed or bench.generation().state == "failed", "the records")  # noqa: B023
            assert bench.rows_done() == fed, bench.generation().error
            newest = bench.newest()
            counts = {operator.uid: len(operator.subtasks) for operator in newest.operators}
            others = dict.fromkeys(("doubled", "in-order", "both", "sides"), parallelism)
            assert counts == {**others, "pairs": own, "near": own}
            if half == 0:
                narrow = bench.store / str(bench.stop("narrow"))
                wide = rewrite_savepoint(spark, narrow, name="wide", parallelism=5, max_parallelism=256)
                wishes = {"start_from": wide, "max_parallelism": 256}
    assert bench.newest().max_parallelism == 256

    alone, before, ahead = Alone(), None, iter(epochs)
    for manifest in (bench.checkpoints.find(*epoch) for epoch in bench.checkpoints.committed()):
        assert manifest is not None
        alone.epoch(*(next(ahead) if manifest.rows else ([], [])), before)
        before = manifest.watermark_ms
    assert next(ahead, None) is None
    assert bench.published("pairs", ("k", "held", "m", "what")) == Counter(alone.pairs.output)
    assert bench.published("near", ("n", "m", "at_ms")) == Counter(alone.near.output)
    for tag in (two_inputs.LATE, two_inputs.LATE_OTHER):
        assert bench.published(tag.name, ("n",)) == Counter((row.n,) for row in alone.near.side_output(tag))
    newest = bench.newest()
    path = bench.store / bench.checkpoints.manifest_path(newest.lineage, newest.epoch)
    held = {(row.k,): row.value for row in read_savepoint(spark, path, "pairs", two_inputs.HELD.name).collect()}
    assert held == physical(alone.pairs.keyed_backend, two_inputs.HELD.name)
