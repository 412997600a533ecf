"""Transformations in the JVM give what the same steps give in Python, over a restart at another parallelism."""

from __future__ import annotations

from collections import Counter, namedtuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from statecore.errors import JobDefinitionError
from statecore.runtime import Job
from statecore.runtime.epoch.plan_check import require_one_source
from statecore.runtime.epoch.transforming import transformed_columns
from statecore.runtime.messages import ATTEMPT, PHASE, TIMESTAMP
from statecore.testing import KeyedOperatorHarness
from tests.support.alone import history
from tests.support.bench import Bench
from tests.support.jobs import transformed
from tests.support.waiting import wait

Doubled = namedtuple("Doubled", ["country", "n", "doubled"])
NAMES = {str(number): f"land {number}" for number in range(5)}


def offer(bench: Bench, numbers: range) -> None:
    at = pa.array([datetime.fromtimestamp(n, UTC) for n in numbers], pa.timestamp("us", "UTC"))
    columns = {"k": [f"k{n % 7}" for n in numbers], "n": pa.array(list(numbers), pa.int64()), "at": at}
    bench.feed_table(pa.table(columns), folder="one")


def test_transformed_streams_give_what_their_functions_give_alone(spark: Any, bench: Bench) -> None:
    folder = bench.input.parent
    (folder / "one").mkdir()
    (folder / "countries").mkdir()
    table = pa.table({"country": list(NAMES), "name": list(NAMES.values())})
    pq.write_table(table, folder / "countries" / "all.parquet")
    bench.register(artifact=Path(transformed.__file__), settings={"folder": str(folder)})
    # The last record of each file is odd: event time goes by it, although the filter drops it.
    files = [range(100, 130), range(120, 160), range(160, 200)]
    for parallelism, fed in ((3, files[:2]), (2, files[2:])):
        for numbers in fed:
            offer(bench, numbers)
        expected = sum(map(len, files[:2] if parallelism == 3 else files))
        with bench.running(parallelism):
            wait(lambda: bench.rows_done() >= expected or bench.generation().state == "failed", "the records")  # noqa: B023
            assert bench.rows_done() == expected, bench.generation().error

    sums, before, ahead = KeyedOperatorHarness(transformed.Sums(), key=lambda v: (v.country,)), None, iter(files)
    seen: Counter[Any] = Counter()
    for manifest in history(bench):
        start = len(sums.output)
        if before is not None:
            sums.watermark(before)
        fired = [(row, -row[2]) for row in sums.output[start:]]
        start = len(sums.output)
        for n in next(ahead) if manifest.rows else ():
            if n % 2 == 0:
                sums.process(Doubled(str(n % 7), n, n * 2), timestamp_ms=n * 1000)
        made = fired + [(row, row[2] * 1000) for row in sums.output[start:]]
        seen.update(
            (f"{NAMES[country]}!", total, n, at)
            for (country, total, n), at in made
            if total % 3 > 0 and country in NAMES
        )
        before = manifest.watermark_ms
    assert next(ahead, None) is None and before == 198_999
    assert bench.published("sums", ("country", "total", "n")) == Counter(sums.output)
    assert bench.published("seen", ("name", "total", "n", "at_ms")) == seen and len(seen) > 20
    odd = Counter((n, f"k{n % 7}") for numbers in files for n in numbers if n % 2)
    assert bench.published("odd", ("n", "k")) == odd


def stream(job: Job) -> Any:
    return job.source("one", read=lambda spark: spark.range(1))


REFUSED = {
    "limit": (lambda df: df.limit(3), r"limit\(\) in a transformation of source 'one'"),
    "aggregate": (lambda df: df.groupBy("k").count(), "an aggregation"),
    "distinct": (lambda df: df.select("k").distinct(), "distinct"),
    "duplicates": (lambda df: df.dropDuplicates(["k"]), "dropDuplicates"),
    "window": (lambda df: df.selectExpr("row_number() OVER (PARTITION BY k ORDER BY n)"), "a window function"),
    "itself": (lambda df: df.join(df.select("k"), "k"), "a join of the records with themselves"),
    "outer": (lambda df: df.sparkSession.range(3).join(df, F.col("id") == df.n, "left"), "a join of type LeftOuter"),
    "subquery": (
        lambda df: df.sparkSession.sql("SELECT * FROM {d} WHERE n IN (SELECT n FROM {d})", d=df),
        "a subquery over",
    ),
    "random": (lambda df: df.withColumn("r", F.rand()), r"rand\(.*same result when an epoch is replayed"),
    "clock": (lambda df: df.where("current_timestamp() > timestamp '2000-01-01'"), "current_timestamp"),
    "misspelled": (lambda df: df.select("m"), r"Spark refuses: \[UNRESOLVED_COLUMN.*one of the columns \['k', 'n'\]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_depends_on_the_epoch_is_refused(spark: Any, case: str) -> None:
    function, message = REFUSED[case]
    records = spark.createDataFrame([("a", 1)], "k string, n bigint")
    (origin,) = stream(Job()).transform(function)._origins
    with pytest.raises(JobDefinitionError, match=message):
        transformed_columns(lambda: records, origin)


@pytest.mark.parametrize(
    "step", [lambda s: s.select("explode(array(k)) AS k"), lambda s: s.with_column("k", lambda df: F.explode(df.ks))]
)
def test_an_output_is_not_exploded_row_by_row(spark: Any, step: Any) -> None:
    carried = f"{ATTEMPT} bigint, {PHASE} int, {TIMESTAMP} bigint"
    rows = spark.createDataFrame([], f"k string, ks array<string>, {carried}")
    made = stream(Job()).key_by("k").process(transformed.Odd(), output="k string, ks array<string>", uid="odd")
    (origin,) = step(made)._origins
    with pytest.raises(JobDefinitionError, match=r"a function like explode\(\) in the output .*; use stream.transform"):
        transformed_columns(lambda: rows, origin)


def test_joins_with_tables_and_steps_on_single_rows_are_taken(spark: Any) -> None:
    records = spark.createDataFrame([("a", 1)], "k string, n bigint")
    table = spark.createDataFrame([("a", 2.0)], "k string, price double").groupBy("k").agg(F.max("price").alias("top"))
    (origin,) = (
        stream(Job())
        .transform(lambda df: df.join(F.broadcast(table), "k", "left"))
        .transform(lambda df: df.selectExpr("*", "explode(array(1, 2)) AS part"))
        .filter(lambda df: df.n > 0)
    )._origins
    columns = transformed_columns(lambda: records, origin)
    assert [(field.name, field.type.ddl()) for field in columns] == [
        ("k", "string"), ("n", "bigint"), ("top", "double"), ("part", "int"),
    ]  # fmt: skip


def test_a_source_is_one_stream_without_state(spark: Any) -> None:
    def rate(rows: int) -> Any:
        return spark.readStream.format("rate").option("rowsPerSecond", rows).load()

    require_one_source(rate(1).where("value > 3"), "in")
    for df, message in (
        (rate(1).union(rate(2)), "found 2 streams .*; add a source for each, and call stream.union"),
        (
            rate(1).withWatermark("timestamp", "1 second").dropDuplicates(["value", "timestamp"]),
            "dropDuplicates.* in read",
        ),
    ):
        with pytest.raises(JobDefinitionError, match=message):
            require_one_source(df, "in")
