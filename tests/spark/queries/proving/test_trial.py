"""A trial restart: a query runs one empty batch on a clone of its checkpoint, and nothing else changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from statecore.errors import NotProvenError, QueryDefinitionError
from statecore.queries.job.query_file import load_query
from statecore.queries.proving import trial
from statecore.queries.proving.trial import trial_restart
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    ROCKSDB,
    ROCKSDB_CHANGELOG,
    ROCKSDB_V2,
    ROCKSDB_V2_CHANGELOG,
    Kill,
    Provider,
    Stream,
    feed,
    run,
)
from tests.support.tiers import every_value_once, nightly

Files = dict[str, bytes]


def files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def untouched(frame: DataFrame, batch: int) -> None:
    raise AssertionError(f"the sink was given batch {batch}")


def reader(session: SparkSession, stream: Stream, place: Path, **options: Any) -> DataFrame:
    source = session.readStream.schema(stream.schema).option("maxFilesPerTrigger", 1).options(**options)
    return source.parquet(str(place / "in"))


def query_of(stream: Stream, place: Path) -> Callable[[SparkSession, dict[str, str]], DataStreamWriter]:
    """Return the query as its owner has it: with its checkpoint, its sink, its name and its trigger."""

    def build(session: SparkSession, settings: dict[str, str]) -> DataStreamWriter:
        writer = stream.build(session, reader(session, stream, place)).queryName("mine")
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        return writer.foreachBatch(untouched)

    return build


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "scratch"
    assert not (tmp_path / "scratch").exists()


@pytest.fixture(scope="module")
def totals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with an aggregation on the default provider."""
    place = tmp_path_factory.mktemp("totals")
    stream = BY_NAME["aggregation-update"]
    run(spark, stream, place, stream.batches(0, 2))
    return place


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("aggregation-update", ROCKSDB_V2_CHANGELOG),
        ("session-windows", ROCKSDB_CHANGELOG),
        ("distinct-within-watermark", HDFS),
        ("join-left-outer-3", ROCKSDB_V2),
        ("groups-with-state-processing-time", ROCKSDB),
        ("transform-with-state-ttl", ROCKSDB_V2_CHANGELOG),
        ("windows-of-join", HDFS),
        nightly("aggregation-complete", HDFS),
        nightly("windows-append", HDFS),
        nightly("global-aggregation", ROCKSDB),
        nightly("join-left-outer", HDFS),
        nightly("groups-with-state", HDFS),
        nightly("transform-with-state-in-pandas", ROCKSDB),
    ],
    ids=str,
)
def test_a_query_restarts_with_its_state_and_writes_nowhere(
    spark: SparkSession, tmp_path: Path, scratch: Path, name: str, provider: Provider
) -> None:
    stream = BY_NAME[name]
    # A row more than is read: a trial that asked the source for new data would meet it.
    checkpoint = run(spark, stream, tmp_path, stream.batches(0, 3), provider)
    feed(tmp_path, stream, stream.batches(3, 4))
    before = files(tmp_path)
    trial_restart(spark, str(checkpoint), query_of(stream, tmp_path), {}, scratch)
    assert files(tmp_path) == before
    assert not spark.streams.active


@pytest.mark.parametrize(
    ("name", "provider"),
    [("windows-append", HDFS), ("transform-with-state-ttl", ROCKSDB), ("groups-with-state-processing-time", HDFS)],
    ids=str,
)
def test_a_batch_that_changes_state_is_noticed(
    spark: SparkSession,
    tmp_path: Path,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    provider: Provider,
) -> None:
    stream = BY_NAME[name]
    checkpoint = run(spark, stream, tmp_path, stream.batches(0, 2), provider)
    lay = trial._log_empty_batch

    def in_ten_years(copy: Any) -> None:
        lay(copy)
        log = tmp_path / "scratch" / "offsets" / str(copy.version)
        version, metadata, *sources = log.read_text().split("\n")
        late = {**msgspec.json.decode(metadata), "batchWatermarkMs": 2**41, "batchTimestampMs": 2**41}
        log.write_text("\n".join((version, msgspec.json.encode(late).decode(), *sources)))

    monkeypatch.setattr(trial, "_log_empty_batch", in_ten_years)
    with pytest.raises(NotProvenError, match="found different state"):
        trial_restart(spark, str(checkpoint), query_of(stream, tmp_path), {}, scratch)


@pytest.mark.parametrize(("provider", "written"), every_value_once([HDFS, ROCKSDB_V2], [True, False]))
def test_a_pending_batch_is_not_run(
    spark: SparkSession, tmp_path: Path, scratch: Path, provider: Provider, written: bool
) -> None:
    stream = BY_NAME["aggregation-complete"]
    checkpoint = run(spark, stream, tmp_path, stream.batches(0, 3), provider, kill=Kill(2, written=written))
    assert open_checkpoint(str(checkpoint)).pending == 2
    before = files(tmp_path)
    trial_restart(spark, str(checkpoint), query_of(stream, tmp_path), {}, scratch)
    assert files(tmp_path) == before


class TestTheQuery:
    """What a query may look like, and what it keeps from the trial."""

    stream = BY_NAME["aggregation-update"]

    def test_a_data_frame_is_enough(self, spark: SparkSession, totals: Path, scratch: Path) -> None:
        def build(session: SparkSession, settings: dict[str, str]) -> DataFrame:
            keys = reader(session, self.stream, totals).groupBy("k", "name")
            return keys.agg(F.sum("v").alias("total"), F.count("*").alias("n"), F.max("t").alias("last"))

        trial_restart(spark, str(totals / "checkpoint"), build, {}, scratch)

    def test_a_query_file_gets_its_settings_and_leaves_none_behind(
        self, spark: SparkSession, totals: Path, scratch: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "query.py").write_text(
            "from pyspark.sql import functions as F\n"
            "def build(spark, settings):\n"
            "    spark.conf.set('spark.sql.session.timeZone', 'Asia/Tokyo')\n"
            "    spark.conf.set('spark.sql.shuffle.partitions', '7')\n"
            f"    events = spark.readStream.schema('{self.stream.schema}').parquet(settings['input'])\n"
            "    totals = events.groupBy('k', 'name').agg(F.sum('v').alias('total'), F.count('*').alias('n'),\n"
            "                                             F.max('t').alias('last'))\n"
            "    return totals.writeStream.outputMode('update').format('console')\n"
        )
        before = [spark.conf.get(f"spark.sql.{name}") for name in ("session.timeZone", "shuffle.partitions")]
        settings = {"input": str(totals / "in")}
        trial_restart(spark, str(totals / "checkpoint"), load_query(tmp_path / "query.py"), settings, scratch)
        after = [spark.conf.get(f"spark.sql.{name}") for name in ("session.timeZone", "shuffle.partitions")]
        assert after == before

    def test_its_file_sink_and_its_own_checkpoint_are_not_written(
        self, spark: SparkSession, tmp_path: Path, scratch: Path
    ) -> None:
        stream = BY_NAME["windows-append"]
        checkpoint = run(spark, stream, tmp_path, stream.batches(0, 2))

        def build(session: SparkSession, settings: dict[str, str]) -> DataStreamWriter:
            writer = stream.build(session, reader(session, stream, tmp_path)).partitionBy("k").format("parquet")
            return writer.options(PATH=str(tmp_path / "sink"), CHECKPOINTLOCATION=str(tmp_path / "own"))

        trial_restart(spark, str(checkpoint), build, {}, scratch)
        assert not (tmp_path / "sink").exists()
        assert not (tmp_path / "own").exists()

    def test_its_foreach_is_not_called(self, spark: SparkSession, totals: Path, scratch: Path, tmp_path: Path) -> None:
        def build(session: SparkSession, settings: dict[str, str]) -> DataStreamWriter:
            writer = self.stream.build(session, reader(session, self.stream, totals))
            return writer.outputMode("complete").foreach(lambda row: (tmp_path / "called").touch())

        trial_restart(spark, str(totals / "checkpoint"), build, {}, scratch)
        assert not (tmp_path / "called").exists()

    @pytest.mark.parametrize("clean", ["delete", "archive"])
    def test_its_source_cleans_no_files_up(
        self, spark: SparkSession, tmp_path: Path, totals: Path, scratch: Path, clean: str
    ) -> None:
        place = shutil.copytree(totals, tmp_path / "place")
        feed(place, self.stream, self.stream.batches(2, 3))
        before = files(place)

        def build(session: SparkSession, settings: dict[str, str]) -> DataStreamWriter:
            archive = str(tmp_path / "archive")
            source = reader(session, self.stream, place, cleanSource=clean, sourceArchiveDir=archive)
            return self.stream.build(session, source)

        trial_restart(spark, str(place / "checkpoint"), build, {}, scratch)
        assert files(place) == before
        assert not (tmp_path / "archive").exists()

    def test_it_may_run_elsewhere_meanwhile(
        self, spark: SparkSession, totals: Path, scratch: Path, tmp_path: Path
    ) -> None:
        checkpoint = shutil.copytree(totals / "checkpoint", tmp_path / "checkpoint")
        writer = self.stream.build(spark, reader(spark, self.stream, totals)).format("noop")
        running = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            running.processAllAvailable()
            trial_restart(spark, str(totals / "checkpoint"), query_of(self.stream, totals), {}, scratch)
            assert running.isActive
        finally:
            running.stop()

    def test_it_may_not_be_started_by_its_file(
        self, spark: SparkSession, totals: Path, scratch: Path, tmp_path: Path
    ) -> None:
        def build(session: SparkSession, settings: dict[str, str]) -> Any:
            own = str(tmp_path / "own")
            return query_of(self.stream, totals)(session, settings).option("checkpointLocation", own).start()

        with pytest.raises(QueryDefinitionError, match=r"starts the query; .* without start\(\)"):
            trial_restart(spark, str(totals / "checkpoint"), build, {}, scratch)
        assert not (tmp_path / "own").exists()

    def test_it_may_not_be_a_batch_query(self, spark: SparkSession, totals: Path, scratch: Path) -> None:
        def build(session: SparkSession, settings: dict[str, str]) -> DataFrame:
            return session.read.parquet(str(totals / "in"))

        with pytest.raises(QueryDefinitionError, match=r"not streaming; .*spark.readStream"):
            trial_restart(spark, str(totals / "checkpoint"), build, {}, scratch)


def other_key(source: DataFrame) -> DataFrame:
    return source.groupBy("k", F.length("name").alias("name")).agg(F.sum("v"), F.count("*"), F.max("t"))


def other_value(source: DataFrame) -> DataFrame:
    return source.groupBy("k", "name").agg(F.sum("v"))


def other_operator(source: DataFrame) -> DataFrame:
    return source.dropDuplicates(["k", "name"])


def further_operator(source: DataFrame) -> DataFrame:
    distinct = source.withWatermark("t", "1 minute").dropDuplicates(["k", "name", "t"])
    return distinct.groupBy(F.window("t", "1 minute"), "k", "name").agg(F.sum("v"))


def no_operator(source: DataFrame) -> DataFrame:
    return source.select("k")


def two_sources(source: DataFrame) -> DataFrame:
    rates = source.sparkSession.readStream.format("rate").load().select(F.col("value").alias("k"))
    return source.select("k").union(rates).groupBy("k").count()


def missing_column(source: DataFrame) -> DataFrame:
    return source.groupBy("gone").count()


REASONS: dict[Callable[[DataFrame], DataFrame], str] = {
    other_key: "schema",
    other_value: "schema",
    other_operator: "operator",
    further_operator: "operator",
    no_operator: "operator",
    two_sources: "source",
}


@pytest.mark.parametrize(("change", "provider"), every_value_once(REASONS, [HDFS, ROCKSDB]))
def test_another_query_is_refused_with_what_spark_says(
    spark: SparkSession,
    tmp_path: Path,
    scratch: Path,
    provider: Provider,
    change: Callable[[DataFrame], DataFrame],
) -> None:
    stream = BY_NAME["aggregation-update"]
    checkpoint = run(spark, stream, tmp_path, stream.batches(0, 2), provider)
    before = files(tmp_path)

    def build(session: SparkSession, settings: dict[str, str]) -> DataFrame:
        return change(reader(session, stream, tmp_path))

    with pytest.raises(
        NotProvenError, match=rf"does not restart .*: .*(?i:{REASONS[change]}).*; expected .*; give the query"
    ):
        trial_restart(spark, str(checkpoint), build, {}, scratch)
    assert files(tmp_path) == before


def test_a_query_of_a_missing_column_is_told_so(spark: SparkSession, totals: Path, scratch: Path) -> None:
    def build(session: SparkSession, settings: dict[str, str]) -> DataFrame:
        return missing_column(reader(session, BY_NAME["aggregation-update"], totals))

    with pytest.raises(QueryDefinitionError, match=r"UNRESOLVED_COLUMN.*gone.*name`\].; expected .*correct the query"):
        trial_restart(spark, str(totals / "checkpoint"), build, {}, scratch)


def test_a_batch_that_takes_too_long_is_given_up(
    spark: SparkSession, totals: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamingQuery, "awaitTermination", lambda query, timeout: False)
    build, limit = query_of(BY_NAME["aggregation-update"], totals), timedelta(minutes=3)
    with pytest.raises(NotProvenError, match="was not through after 0:03:00; expected one empty batch"):
        trial_restart(spark, str(totals / "checkpoint"), build, {}, scratch, limit=limit)
