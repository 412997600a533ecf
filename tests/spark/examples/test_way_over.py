"""The way over from queries of Spark's own: the job goes on from a query's state and position as the query does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from examples import over_from_groupby, over_from_transform, over_from_windows
from statecore.errors import ConfigurationError
from statecore.runtime import read_savepoint, write_savepoint
from statecore.snapshot.checkpoints import open_savepoint
from tests.support.bench import Bench
from tests.support.waiting import wait

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
USERS, ROWS = 7, 60


class Stream:
    """A query and its input."""

    def __init__(self, spark: SparkSession, bench: Bench, example: ModuleType) -> None:
        # A session of its own: its settings stay its own.
        self.spark, self.bench, self.example = spark.newSession(), bench, example
        self.spark.conf.set("spark.sql.shuffle.partitions", "3")
        if example is over_from_transform:
            self.spark.conf.set(PROVIDER, ROCKSDB)
        self.checkpoint = str(bench.input.parent / "checkpoint")
        self.settings = {"input": str(bench.input), "output": str(bench.output)}
        self.fed = 0

    def feed(self, files: int) -> None:
        for _ in range(files):
            rows = range(self.fed, self.fed + ROWS)
            self.fed += ROWS
            self.bench.feed_table(pa.table({"user": [f"u{n * n % USERS}" for n in rows], "cents": list(rows)}))

    def run(self) -> None:
        writer = self.example.query(self.spark, self.settings)
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def carried(self, name: str) -> str:
        made: str = self.example.carry_over(
            self.spark, self.settings, self.checkpoint, str(self.bench.input.parent / name)
        )
        return made

    def state(self, savepoint: str) -> dict[str, set[tuple[Any, ...]]]:
        """Return all rows of each state in a savepoint."""
        _, _, manifest = open_savepoint(savepoint)
        return {
            state.name: {
                tuple(map(_comparable, row))
                for row in read_savepoint(self.spark, savepoint, operator.uid, state.name).collect()
            }
            for operator in manifest.operators
            for state in operator.states
            # Timers belong to the operator, and there are none.
            if not state.name.startswith("__")
        }


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("example", [over_from_groupby, over_from_transform], ids=["groupBy", "transformWithState"])
def test_a_job_goes_on_from_a_query_as_the_query_does(spark: SparkSession, bench: Bench, example: ModuleType) -> None:
    stream = Stream(spark, bench, example)
    stream.feed(3)
    stream.run()
    made = stream.carried("carried")
    stream.feed(2)
    bench.register(artifact=str(Path(example.__file__ or "")), parallelism=2)
    bench.fed = [("", 0)] * (2 * ROWS)
    with bench.running(2, start_from=made):
        bench.wait_done()
        end = bench.stop("end")
    # Nothing is read twice: epochs count on from the query's three batches.
    assert [each.epoch for each in bench.catalog.epochs.of("totals") if each.rows] == [3, 4]
    assert bench.newest().rows_total == 2 * ROWS
    stream.run()
    found = stream.state(str(bench.store / str(end)))
    assert found == stream.state(stream.carried("of-the-query"))
    assert all(len(rows) == len({n * n % USERS for n in range(USERS)}) for rows in found.values())


def test_what_does_not_fit_a_checkpoint_is_refused(spark: SparkSession, bench: Bench, tmp_path: Path) -> None:
    stream = Stream(spark, bench, over_from_groupby)
    stream.feed(1)
    job: Any = {"job": over_from_groupby.build, "settings": stream.settings}
    with pytest.raises(ConfigurationError, match=r"found no committed batch in .*checkpoint; expected"):
        write_savepoint(tmp_path / "made", {}, 128, 2, **job, sources_from=stream.checkpoint, sources=["payments"])
    stream.run()
    with pytest.raises(ConfigurationError, match=r"found 1 sources in .*checkpoint and the names \['a', 'b'\]"):
        write_savepoint(tmp_path / "made", {}, 128, 2, **job, sources_from=stream.checkpoint, sources=["a", "b"])
    assert not (tmp_path / "made" / "manifest.json").exists()


def test_windows_end_also_those_of_users_who_never_come_back(spark: SparkSession, bench: Bench) -> None:
    stream = Stream(spark, bench, over_from_windows)
    truth: dict[tuple[str, int], list[int]] = {}

    def feed(minute: int, users: str) -> None:
        """Feed payments of ten minutes; the first of them are as late as may be."""
        rows = [(user, n * 10, minute * 60_000 + n * 15_000) for n, user in enumerate(users * 5)]
        rows += [(user, 7, (minute - 4) * 60_000) for user in users]
        for user, cents, at_ms in rows:
            truth.setdefault((user, at_ms - at_ms % 600_000), []).append(cents)
        columns = zip(*rows, strict=True)
        user, cents, at = (pa.array(column) for column in columns)
        stamps = at.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        bench.feed_table(pa.table({"user": user, "cents": cents, "at": stamps}))

    feed(60, "abc")
    feed(70, "bcd")
    stream.run()
    made = stream.carried("carried")
    started = {(user, start) for user, start in truth if start < 60 * 60_000}
    bench.register(artifact=str(Path(over_from_windows.__file__ or "")), parallelism=2)
    with bench.running(2, start_from=made):
        # Long after: all but its own windows end.
        feed(200, "e")
        ended = {scope for scope in truth if scope[1] < 190 * 60_000} - started
        wait(lambda: bench.published("means", ("user",)).total() == len(ended), "the windows")
        end = bench.stop("end")
    expected = {(*scope, sum(truth[scope]) / len(truth[scope]), len(truth[scope])) for scope in ended}
    assert bench.published("means", ("user", "start_ms", "mean", "payments")) == Counter(expected)
    assert {"a", "b", "c", "d"} <= {user for user, _ in ended}
    stream.run()
    assert stream.state(str(bench.store / str(end))) == stream.state(stream.carried("of-the-query"))
