"""``with_partitions``: a query that its own program starts has the state partitions that the program asks for."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from statecore.errors import CheckpointRefusedError, ConfigurationError, NotProvenError, QueryDefinitionError
from statecore.queries import with_partitions
from statecore.queries.copying.clone import clone
from statecore.queries.copying.replacing import before, copy_of
from statecore.queries.job.query_file import described
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.spark.queries.cells import TWIN, assert_same_outputs, assert_same_state, tree
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    ROCKSDB_V2_CHANGELOG,
    Kill,
    Provider,
    feed,
    run,
    session,
    share_outputs,
)

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("windows-append", HDFS),
        ("aggregation-update", ROCKSDB_V2_CHANGELOG),
        ("transform-with-state-in-pandas", ROCKSDB_V2_CHANGELOG),
    ],
)
def test_a_query_goes_on_with_the_number_that_is_asked_for(
    spark: SparkSession, tmp_path: Path, name: str, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    stream = BY_NAME[name]
    run(spark, stream, tmp_path, stream.batches(0, 2), provider)
    ours = tmp_path / "ours"
    clone(open_checkpoint(str(tmp_path / TWIN)), str(ours))
    share_outputs(tmp_path, TWIN, "ours")
    caplog.set_level(logging.WARNING, "statecore")
    batch = 2
    for number in (5, 3):
        inputs = stream.batches(batch, batch + 2)
        run(spark, stream, tmp_path, inputs, provider, checkpoint="ours", wanted=number)
        assert open_checkpoint(str(ours)).partitions == number
        run(spark, stream, tmp_path, (), provider)
        assert_same_outputs(tmp_path, "ours")
        assert_same_state(spark, stream, provider, tmp_path, TWIN, "ours", clocks=False)
        batch += 2
    # What it was before can be started, too.
    assert open_checkpoint(str(before(str(ours)))).partitions == 5
    assert not copy_of(str(ours)).exists()
    # The right number changes nothing.
    caplog.clear()
    run(spark, stream, tmp_path, (), provider, checkpoint="ours", wanted=3)
    assert caplog.records == [] and open_checkpoint(str(before(str(ours)))).partitions == 5


def test_a_batch_that_a_kill_left_pending_is_repeated_with_the_new_number(spark: SparkSession, tmp_path: Path) -> None:
    stream = BY_NAME["aggregation-update"]
    run(spark, stream, tmp_path, stream.batches(0, 2))
    run(spark, stream, tmp_path, stream.batches(2, 4), kill=Kill(2, written=True))
    clone(open_checkpoint(str(tmp_path / TWIN)), str(tmp_path / "ours"))
    share_outputs(tmp_path, TWIN, "ours")
    run(spark, stream, tmp_path, (), checkpoint="ours", wanted=4)
    run(spark, stream, tmp_path, ())
    assert open_checkpoint(str(tmp_path / "ours")).partitions == 4
    assert_same_outputs(tmp_path, "ours")


def test_a_query_that_begins_gets_the_number_and_the_session_keeps_its_own(spark: SparkSession, tmp_path: Path) -> None:
    stream = BY_NAME["aggregation-update"]
    run(spark, stream, tmp_path, stream.batches(0, 1), partitions=7, wanted=3)
    assert open_checkpoint(str(tmp_path / TWIN)).partitions == 3
    assert not before(str(tmp_path / TWIN)).exists()


def test_the_session_keeps_its_own_number_and_what_waits_for_a_query_waits_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = writer_of(spark, tmp_path).option("checkpointLocation", str(tmp_path / "one"))
    finish(with_partitions(writer, 3).start())
    session = writer._spark
    assert session.conf.get(PARTITIONS) == "2"
    session.streams.resetTerminated()
    rate = session.readStream.format("rate").load().groupBy("value").count().writeStream.outputMode("complete")
    running = with_partitions(rate.format("noop").option("checkpointLocation", str(tmp_path / "two")), 2).start()
    try:
        finish_without(running)
        again = with_partitions(writer_of(spark, tmp_path).option("checkpointLocation", str(tmp_path / "one")), 4)
        changed = again.start()
        assert changed.awaitTermination(120)
        # The trial restart has ended in a session of its own: nothing here has.
        assert session.streams.awaitAnyTermination(1) is False
    finally:
        running.stop()
    assert open_checkpoint(str(tmp_path / "one")).partitions == 4


def test_a_first_batch_that_is_not_committed_is_repeated_with_its_number(spark: SparkSession, tmp_path: Path) -> None:
    stream = BY_NAME["aggregation-update"]
    run(spark, stream, tmp_path, stream.batches(0, 1), wanted=3, kill=Kill(0, written=False))
    with pytest.raises(CheckpointRefusedError, match=r"a first one logged for 3 partitions; expected 4"):
        run(spark, stream, tmp_path, (), wanted=4)
    run(spark, stream, tmp_path, (), wanted=3)
    assert open_checkpoint(str(tmp_path / TWIN)).partitions == 3


def test_a_query_file_starts_no_query_and_returns_none_that_changes_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = writer_of(spark, tmp_path).option("checkpointLocation", str(tmp_path / "one"))
    finish(writer.start())
    contents = tree(tmp_path / "one")
    builds: list[Any] = [lambda *_: with_partitions(writer, 3).start(), lambda *_: with_partitions(writer, 3)]
    for build in builds:
        with pytest.raises(QueryDefinitionError, match="expected a DataStreamWriter that is not started"):
            described(spark, build, {})
    assert tree(tmp_path / "one") == contents


def writer_of(spark: SparkSession, place: Path, name: str = "aggregation-update") -> DataStreamWriter:
    stream = BY_NAME[name]
    feed(place, stream, stream.batches(0, 1))
    own = session(spark, HDFS, 2, stream.conf)
    source = own.readStream.schema(stream.schema).parquet(str(place / "in"))
    return stream.build(own, source).format("noop").trigger(availableNow=True)


def finish_without(query: Any) -> None:
    """Wait until a query that does not end has run a batch."""
    while not query.recentProgress:
        assert query.isActive


def finish(query: Any) -> None:
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


@pytest.mark.parametrize("way", ["option", "start", "folder", "relative", "scheme", "table"])
def test_the_checkpoint_is_found_wherever_the_program_names_it(
    spark: SparkSession, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a place%20"
    writer, location = writer_of(spark, place), place / "named"
    if way == "start":
        finish(with_partitions(writer, 3).start(checkpointLocation=str(location), queryName="named"))
    elif way == "folder":
        writer._spark.conf.set("spark.sql.streaming.checkpointLocation", str(place))
        finish(with_partitions(writer, 3).start(queryName="named"))
    elif way == "table":
        # Written beside the warehouse's other tables.
        name = f"t{uuid.uuid4().hex}"
        appended = writer_of(spark, place, "windows-append").format("parquet").option("path", str(place / "table"))
        try:
            finish(with_partitions(appended, 3).toTable(name, checkpointLocation=str(location)))
        finally:
            appended._spark.sql(f"DROP TABLE IF EXISTS {name}")
    else:
        named = {"option": str(location), "scheme": f"file:{location}", "relative": "named"}[way]
        if way == "relative":
            # The JVM's working directory counts.
            location = Path(str(spark._jvm.java.lang.System.getProperty("user.dir"))) / named  # type: ignore[union-attr]
            monkeypatch.chdir(location.parent)
        finish(with_partitions(writer, 3).option("checkpointLocation", named).start())
    assert open_checkpoint(str(location)).partitions == 3
    if way == "relative":
        shutil.rmtree(location)
        location.with_name(".named.statecore-lock").unlink(missing_ok=True)


def test_what_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    writer = writer_of(spark, tmp_path)
    for number in (0, -1, 2.0, "3", True, 10**6):
        with pytest.raises(ConfigurationError, match="state partitions; expected a number from 1 to 32,768"):
            with_partitions(writer, number)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="expected a DataStreamWriter"):
        with_partitions(writer.start, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="without a checkpoint"):
        with_partitions(writer, 3).start()
    finish(writer.option("checkpointLocation", str(tmp_path / "one")).start())
    before_it = tree(tmp_path / "one")
    # Its state has another schema: the trial restart finds it.
    other = BY_NAME["windows-append"]
    own = session(spark, HDFS, 2, other.conf)
    source = own.readStream.schema(other.schema).parquet(str(tmp_path / "in"))
    wrong = other.build(own, source).format("noop").option("checkpointLocation", str(tmp_path / "one"))
    with pytest.raises(NotProvenError, match="the query does not restart from a clone"):
        with_partitions(wrong, 3).start()
    assert tree(tmp_path / "one") == before_it
    rate = spark.readStream.format("rate").load().groupBy("value").count().writeStream.outputMode("complete")
    running = rate.format("noop").option("checkpointLocation", str(tmp_path / "two")).start()
    try:
        finish_without(running)
        with pytest.raises(CheckpointRefusedError, match=r"found the query of .* running; .*stop it first"):
            with_partitions(rate, 3).start()
    finally:
        running.stop()


PROGRAM = """
import sys
from pyspark.sql import SparkSession
from statecore.queries import with_partitions

master, place, number = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.schema("k long, name string, v long, t timestamp").parquet(f"{place}/in")
totals = rows.groupBy("k").count().writeStream.outputMode("update").trigger(availableNow=True)
writer = totals.format("noop").option("checkpointLocation", f"{place}/one")
with_partitions(writer, int(number)).start().awaitTermination()
"""


def test_on_a_cluster_the_copy_is_made_on_the_drivers_machine(tmp_path: Path) -> None:
    """``local-cluster`` has executors in processes of their own, as any cluster."""
    program, (place, stream) = tmp_path / "program.py", (tmp_path / "place", BY_NAME["aggregation-update"])
    program.write_text(PROGRAM)
    for batch, (master, number) in enumerate((("local[2]", 2), ("local-cluster[1,1,1024]", 3))):
        feed(place, stream, stream.batches(batch, batch + 1))
        done = subprocess.run(
            [sys.executable, program, master, place, str(number)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        checkpoint = open_checkpoint(str(place / "one"))
        assert (checkpoint.partitions, checkpoint.batch) == (number, batch)
