"""Queries of Spark's own, of every kind that has state, and the checkpoints that they write.

    place/in/000000.parquet …       one file for each batch, in order of its modification time
    place/checkpoint                Spark's checkpoint
    place/out/checkpoint/           what the sink was given: <batch>-<attempt>.arrow

A query that continues from another checkpoint of the same place (``checkpoint="five"``) reads the same input, and its
output lies apart (``out/five``). So a rescaled query and its twin see the same rows.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.types import StructType

from statecore.queries import with_partitions
from tests.spark.queries.processors import OUTPUT, TTL_MS, EveryState, EveryStateInPandas, count_until_idle

# --------------------------------------------------------------------------------------------------------- providers

_STORE = "spark.sql.streaming.stateStore"


@dataclass(frozen=True, slots=True)
class Provider:
    """Where Spark keeps state, with the settings that choose it."""

    name: str
    conf: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def _rocksdb(name: str, version: int, changelog: bool) -> Provider:
    return Provider(
        name,
        {
            f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            f"{_STORE}.checkpointFormatVersion": str(version),
            f"{_STORE}.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
        },
    )


HDFS = Provider("hdfs")
ROCKSDB = _rocksdb("rocksdb", 1, changelog=False)
ROCKSDB_CHANGELOG = _rocksdb("rocksdb-changelog", 1, changelog=True)
ROCKSDB_V2 = _rocksdb("rocksdb-v2", 2, changelog=False)
ROCKSDB_V2_CHANGELOG = _rocksdb("rocksdb-v2-changelog", 2, changelog=True)
PROVIDERS = (HDFS, ROCKSDB, ROCKSDB_CHANGELOG, ROCKSDB_V2, ROCKSDB_V2_CHANGELOG)

# ------------------------------------------------------------------------------------------------------------- input

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
NAMES = ("ada", "Ünï—cødé 🦀", "", "grace\0hopper", "İstanbul", "x" * 300)
EVENTS = "k long, name string, v long, t timestamp"


def events(batch: int, rows: int = 40, keys: int | None = None) -> list[tuple[Any, ...]]:
    """Return rows of one batch: old and new keys, null among them, over 20 minutes."""
    keys = 13 + 3 * batch if keys is None else keys
    return [
        (
            None if (row * 7 + batch) % keys == 4 else (row * 7 + batch) % keys,
            NAMES[(row // 5 + batch) % len(NAMES)],
            batch * rows + row,
            START + datetime.timedelta(minutes=20 * batch, seconds=row * 1200 // rows),
        )
        for row in range(rows)
    ]


# ------------------------------------------------------------------------------------------------------------- kinds


@dataclass(frozen=True, slots=True)
class Stream:
    """One kind of query with state.

    Attributes:
        name: Its name, for people.
        conf: Settings that it needs.
        rocksdb_only: Whether Spark refuses it on the HDFS-backed provider.
        clocked: Columns of its state that depend on the wall clock, and so differ between a query and its twin.
        variables: State variables of ``transformWithState``, to read them without those columns.

    """

    name: str
    conf: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    rocksdb_only: bool = field(default=False, kw_only=True)
    clocked: tuple[str, ...] = field(default=(), kw_only=True)
    variables: tuple[str, ...] = field(default=(), kw_only=True)

    schema: ClassVar[str] = EVENTS

    def __str__(self) -> str:
        return self.name

    def runs_on(self, provider: Provider) -> bool:
        """Return whether Spark runs it on a provider."""
        return not self.rocksdb_only or provider is not HDFS

    def batch(self, number: int) -> list[tuple[Any, ...]]:
        """Return the rows of a batch."""
        return events(number)

    def batches(self, start: int, stop: int) -> list[list[tuple[Any, ...]]]:
        """Return the rows of batches ``start`` to ``stop - 1``."""
        return [self.batch(number) for number in range(start, stop)]

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        """Return the query, without its sink."""
        raise NotImplementedError


def _watermarked(source: DataFrame) -> DataFrame:
    return source.withWatermark("t", "25 minutes")


@dataclass(frozen=True, slots=True)
class Aggregation(Stream):
    """Sums per key, and per window where asked for; ``append`` needs the window."""

    mode: str = "complete"
    window: bool = False
    keys: tuple[str, ...] = ("k", "name")

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        keys = [F.expr(key) for key in self.keys]
        if self.window:
            source, keys = _watermarked(source), [F.window("t", "10 minutes", "5 minutes"), *keys]
        sums = source.groupBy(*keys).agg(F.sum("v").alias("total"), F.count("*").alias("n"), F.max("t").alias("last"))
        return sums.writeStream.outputMode(self.mode)


@dataclass(frozen=True, slots=True)
class GlobalAggregation(Stream):
    """One sum over all rows."""

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        sums = source.groupBy().agg(F.sum("v").alias("total"), F.count("*").alias("n"))
        return sums.writeStream.outputMode("complete")


@dataclass(frozen=True, slots=True)
class Sessions(Stream):
    """Session windows per key."""

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        sessions = _watermarked(source).groupBy(F.session_window("t", "2 minutes"), "k")
        return sessions.agg(F.sum("v").alias("total"), F.count("*").alias("n")).writeStream.outputMode("append")


@dataclass(frozen=True, slots=True)
class Distinct(Stream):
    """``dropDuplicates`` of keys, forever or, with the time among the keys, until the watermark passes."""

    keys: tuple[str, ...] = ("k", "name")

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        source = _watermarked(source) if "t" in self.keys else source
        return source.dropDuplicates(list(self.keys)).writeStream.outputMode("append")


@dataclass(frozen=True, slots=True)
class DistinctWithinWatermark(Stream):
    """``dropDuplicatesWithinWatermark`` of keys."""

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        distinct = _watermarked(source).dropDuplicatesWithinWatermark(["k", "name"])
        return distinct.writeStream.outputMode("append")


def _sides(source: DataFrame) -> tuple[DataFrame, DataFrame]:
    left = source.where("v % 3 != 0").select("k", "name", F.col("v").alias("left_v"), F.col("t").alias("left_t"))
    right = source.where("v % 2 = 0").select(
        F.col("k").alias("right_k"), F.col("v").alias("right_v"), F.col("t").alias("right_t")
    )
    return left.withWatermark("left_t", "25 minutes"), right.withWatermark("right_t", "25 minutes")


@dataclass(frozen=True, slots=True)
class Join(Stream):
    """A join of two streams by key and time."""

    how: str = "inner"

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        return _joined(source, self.how).writeStream.outputMode("append")


def _joined(source: DataFrame, how: str) -> DataFrame:
    left, right = _sides(source)
    near = "k = right_k AND right_t BETWEEN left_t - INTERVAL 5 MINUTES AND left_t + INTERVAL 5 MINUTES"
    return left.join(right, F.expr(near), how)


@dataclass(frozen=True, slots=True)
class GroupsWithState(Stream):
    """``applyInPandasWithState``."""

    timeout: str = "EventTimeTimeout"

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        keyed = _watermarked(source).groupBy("k")
        output = keyed.applyInPandasWithState(count_until_idle, OUTPUT, "n long, total long", "update", self.timeout)
        return output.writeStream.outputMode("update")


@dataclass(frozen=True, slots=True)
class TransformWithState(Stream):
    """``transformWithState``, in rows or in pandas: a value, a list, a map, and timers or a time to live."""

    pandas: bool = True
    ttl: bool = False

    def batch(self, number: int) -> list[tuple[Any, ...]]:
        return events(number, rows=12, keys=5 + number)

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        # In pandas, PySpark takes null for NaN: it mixes the state of that key and of those after it up.
        known = source.where("k IS NOT NULL") if self.pandas else source
        keyed = _watermarked(known).groupBy("k")
        ttl_ms, timers = (TTL_MS, False) if self.ttl else (None, True)
        time_mode = "ProcessingTime" if self.ttl else "EventTime"
        if self.pandas:
            processor = EveryStateInPandas(ttl_ms, timers)
            output = keyed.transformWithStateInPandas(processor, OUTPUT, "Update", time_mode)
        else:
            output = keyed.transformWithState(EveryState(ttl_ms, timers), OUTPUT, "Update", time_mode)
        return output.writeStream.outputMode("update")


@dataclass(frozen=True, slots=True)
class WindowsOfJoin(Stream):
    """A chain: windows over the rows of a join."""

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        windows = _joined(source, "inner").groupBy(F.window("left_t", "10 minutes"), "name")
        sums = windows.agg(F.sum("left_v").alias("left_total"), F.count("right_v").alias("n"))
        return sums.writeStream.outputMode("append")


@dataclass(frozen=True, slots=True)
class WindowsOfDistinct(Stream):
    """A chain: windows over rows without their duplicates, with a global window on top."""

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        distinct = _watermarked(source).dropDuplicatesWithinWatermark(["k", "name"])
        windows = distinct.groupBy(F.window("t", "10 minutes"), "k").agg(F.sum("v").alias("total"))
        return (
            windows.groupBy(F.window("window", "20 minutes"))
            .agg(F.count("*").alias("n"))
            .writeStream.outputMode("append")
        )


@dataclass(frozen=True, slots=True)
class Limit(Stream):
    """The first rows only; not covered."""

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        return source.limit(50).writeStream.outputMode("append")


# ---------------------------------------------------------------------------------------------- keys of every type

KEYS = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date, k timestamp, "
    "l timestamp_ntz, m decimal(9,2), n decimal(38,6), o struct<x: int, y: string, z: struct<w: double>>, "
    "p array<string>, q array<struct<x: decimal(20,3), y: array<int>>>"
)
NAN, MINUS_ZERO = float("nan"), -0.0


def _key_rows() -> list[tuple[Any, ...]]:
    day, time, utc = datetime.date, datetime.datetime, datetime.UTC
    first = (
        True, 1, 300, 70_000, 2**40, 1.5, 2.5, "a", b"\0\xff", day(2024, 2, 29), time(2024, 2, 29, 1, tzinfo=utc),
        time(2024, 2, 29, 2), Decimal("1.10"), Decimal("1.100000"), {"x": 1, "y": "ü", "z": {"w": MINUS_ZERO}},
        ["a", None, ""], [{"x": Decimal("1.000"), "y": [1, None]}],
    )  # fmt: skip
    second: tuple[Any, ...] = (
        False, -128, -32768, -(2**31), -(2**63), NAN, NAN, "Ünï—cødé 🦀", b"", day(1, 1, 1),
        time(1900, 1, 1, tzinfo=utc),
        time(9999, 12, 31, 23, 59, 59, 999999), Decimal("-9999999.99"), Decimal("9" * 32 + ".999999"),
        {"x": None, "y": None, "z": None}, [], [],
    )  # fmt: skip
    third = (
        None, 127, 32767, 2**31 - 1, 2**63 - 1, MINUS_ZERO, MINUS_ZERO, "", b"x" * 100, day(9999, 12, 31),
        time(1970, 1, 1, tzinfo=utc), time(1969, 12, 31, 23, 59, 59, 999999), Decimal("0.00"), Decimal("-0.000001"),
        {"x": -1, "y": "", "z": {"w": NAN}}, ["grace\0hopper"] * 3, [None, {"x": None, "y": None}],
    )  # fmt: skip
    fourth = (
        True,
        0,
        0,
        0,
        0,
        0.0,
        0.0,
        "É",
        b"\0",
        *first[9:14],
        {"x": 0, "y": "y" * 50, "z": {"w": 0.0}},
        *first[15:],
    )
    nothing = (None,) * len(first)
    mixed = [tuple(rows[(row + place) % 3] for place, rows in enumerate(zip(first, second, third, strict=True)))
             for row in range(3)]  # fmt: skip
    return [first, second, third, fourth, nothing, *mixed]


def wide_events(batch: int) -> list[tuple[Any, ...]]:
    """Return rows whose key columns have every type that Spark hashes: all of them in batch 0, some twice later."""
    rows = _key_rows()
    return [
        (batch * 100 + number, START + datetime.timedelta(minutes=20 * batch, seconds=number), *row)
        for number, row in enumerate(rows + rows[: 2 + batch % 3])
        if batch or number % 2 == 0
    ]


@dataclass(frozen=True, slots=True)
class EveryKey(Stream):
    """Windows by keys of every type at once; or, for each type apart, rows without duplicates, in one query."""

    apart: bool = False

    schema: ClassVar[str] = f"v long, time timestamp, {KEYS}"

    def batch(self, number: int) -> list[tuple[Any, ...]]:
        return wide_events(number)

    def build(self, spark: SparkSession, source: DataFrame) -> DataStreamWriter:
        names = [name for name in source.columns if name not in ("v", "time")]
        if not self.apart:
            return source.groupBy(*names).agg(F.sum("v").alias("total")).writeStream.outputMode("update")
        output: DataFrame | None = None
        for name in names:
            distinct = source.dropDuplicates([name]).select(F.lit(name).alias("key"), "v")
            output = distinct if output is None else output.union(distinct)
        assert output is not None
        return output.writeStream.outputMode("append")


# With timers of processing time, or a time to live, Spark has always another batch to run, though none has input.
_NO_EMPTY_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
_SESSION_MERGE = "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition"
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

STREAMS: tuple[Stream, ...] = (
    Aggregation("aggregation-complete", mode="complete"),
    Aggregation("aggregation-update", mode="update"),
    Aggregation("few-keys", mode="update", keys=("k % 2 as odd",)),
    Aggregation("windows-update", mode="update", window=True),
    Aggregation("windows-append", mode="append", window=True),
    GlobalAggregation("global-aggregation"),
    Sessions("session-windows"),
    Sessions("session-windows-merged", conf={_SESSION_MERGE: "true"}),
    Distinct("distinct"),
    Distinct("distinct-by-time", keys=("k", "t")),
    DistinctWithinWatermark("distinct-within-watermark"),
    Join("join-inner"),
    Join("join-left-outer", how="left_outer"),
    Join("join-full-outer", how="full_outer"),
    Join("join-left-semi", how="left_semi"),
    Join("join-inner-3", conf={_JOIN_FORMAT: "3"}, rocksdb_only=True),
    Join("join-left-outer-3", how="left_outer", conf={_JOIN_FORMAT: "3"}, rocksdb_only=True),
    GroupsWithState("groups-with-state"),
    GroupsWithState(
        "groups-with-state-processing-time",
        timeout="ProcessingTimeTimeout",
        conf=_NO_EMPTY_BATCHES,
        clocked=("timeoutTimestamp",),
    ),
    GroupsWithState("groups-with-state-no-timeout", timeout="NoTimeout"),
    TransformWithState("transform-with-state", pandas=False, rocksdb_only=True),
    TransformWithState("transform-with-state-in-pandas", rocksdb_only=True),
    TransformWithState(
        "transform-with-state-ttl",
        ttl=True,
        conf=_NO_EMPTY_BATCHES,
        rocksdb_only=True,
        clocked=("ttlExpirationMs",),
        variables=("totals", "values", "names"),
    ),
    WindowsOfJoin("windows-of-join"),
    WindowsOfDistinct("windows-of-distinct"),
    EveryKey("every-key"),
    EveryKey("every-key-apart", apart=True),
)
BY_NAME = {stream.name: stream for stream in STREAMS}

# --------------------------------------------------------------------------------------------------------------- run


class Killed(Exception):
    """What a sink raises to leave a batch without its commit."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a query is to end: in the sink, in a batch.

    Attributes:
        batch: Number of the batch.
        written: Whether the sink has written the batch by then; else the batch has its offsets and no state.

    """

    batch: int
    written: bool = True


def feed(place: Path, stream: Stream, inputs: Iterable[Sequence[tuple[Any, ...]]]) -> None:
    """Add one file of input for each batch; modification times are set, because Spark reads in their order."""
    folder = place / "in"
    folder.mkdir(parents=True, exist_ok=True)
    schema = StructType.fromDDL(stream.schema)
    assert isinstance(schema, StructType)
    arrow = to_arrow_schema(schema, timezone="UTC")
    start = len(list(folder.glob("*.parquet")))
    for number, rows in enumerate(inputs, start):
        table = pa.Table.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in rows], arrow)
        hidden, path = folder / f".{number:06}.parquet", folder / f"{number:06}.parquet"
        pq.write_table(table, hidden, coerce_timestamps="us")
        modified = START.timestamp() + number
        os.utime(hidden, (modified, modified))
        hidden.rename(path)


def session(spark: SparkSession, provider: Provider, partitions: int, conf: Mapping[str, Any]) -> SparkSession:
    """Return a session of its own, so that no setting of a stream is left behind."""
    own = spark.newSession()
    settings = {"spark.sql.session.timeZone": "UTC", **provider.conf, **conf}
    for key, value in {**settings, "spark.sql.shuffle.partitions": partitions}.items():
        own.conf.set(key, str(value))
    return own


def run(
    spark: SparkSession,
    stream: Stream,
    place: Path,
    inputs: Iterable[Sequence[tuple[Any, ...]]] = (),
    provider: Provider = HDFS,
    partitions: int = 2,
    *,
    checkpoint: str = "checkpoint",
    sink: str = "batches",
    output: str | None = None,
    kill: Kill | None = None,
    wanted: int | None = None,
    **conf: Any,
) -> Path:
    """Add batches to the input and run a query over all that its checkpoint has not read yet, one file in a batch.

    Args:
        spark: The tests' session; the query gets one of its own.
        stream: The query.
        place: Folder of its input, checkpoints and outputs.
        inputs: Rows of each batch.
        provider: Where Spark keeps state.
        partitions: State partitions of a new checkpoint; an old one has its own.
        checkpoint: Name of the checkpoint within the place.
        sink: ``batches`` (see ``outputs``), ``file`` (Spark's own file sink) or ``noop``.
        output: Name of the folder for output; None takes that of the checkpoint.
        kill: Where to end the query with a batch that is not committed.
        wanted: State partitions that it is started with, by ``with_partitions``.
        conf: More settings, ``__`` for a point.

    Returns:
        The checkpoint.

    """
    feed(place, stream, inputs)
    settings = {**stream.conf, **{key.replace("__", "."): value for key, value in conf.items()}}
    own = session(spark, provider, partitions, settings)
    source = own.readStream.schema(stream.schema).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
    writer = stream.build(own, source).option("checkpointLocation", str(place / checkpoint)).trigger(availableNow=True)
    folder = place / "out" / (output or checkpoint)
    if sink == "batches":
        writer = writer.foreachBatch(_Batches(folder, kill))
    else:
        writer = writer.format("parquet" if sink == "file" else sink).option("path", str(folder))
    with _killed(kill):
        query = (writer if wanted is None else with_partitions(writer, wanted)).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
            # A driver that ends takes them along; in this JVM, their upkeep would go on writing to the checkpoint.
            jvm: Any = spark._jvm
            jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    return place / checkpoint


@contextmanager
def _killed(kill: Kill | None) -> Iterator[None]:
    try:
        yield
    except StreamingQueryException as error:
        if kill is None or Killed.__name__ not in str(error):
            raise
    else:
        assert kill is None, f"the query ended without batch {kill.batch}"


@dataclass(frozen=True, slots=True)
class _Batches:
    """A sink that keeps the rows of each attempt at a batch."""

    folder: Path
    kill: Kill | None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        killed = self.kill is not None and self.kill.batch == batch
        if killed and self.kill is not None and not self.kill.written:
            raise Killed
        table = frame.toArrow()
        self.folder.mkdir(parents=True, exist_ok=True)
        attempt = len(list(self.folder.glob(f"{batch}-*.arrow")))
        with (
            pa.OSFile(str(self.folder / f"{batch}-{attempt}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as out,
        ):
            out.write_table(table)
        if killed:
            raise Killed


# ----------------------------------------------------------------------------------------------------------- compare

State = dict[str, list[str]]


def outputs(place: Path, checkpoint: str = "checkpoint") -> dict[int, list[list[str]]]:
    """Return the rows that the sink was given: for each batch its attempts, each as sorted text."""
    found: dict[int, list[list[str]]] = {}
    for path in sorted(
        (place / "out" / checkpoint).glob("*.arrow"), key=lambda path: [*map(int, path.stem.split("-"))]
    ):
        with pa.memory_map(str(path)) as file:
            rows = pa.ipc.open_file(file).read_all().to_pylist()
        found.setdefault(int(path.stem.split("-")[0]), []).append(sorted(map(repr, rows)))
    return found


def share_outputs(place: Path, checkpoint: str, other: str) -> None:
    """Let a query from another checkpoint find what the sink was given by now."""
    shutil.copytree(place / "out" / checkpoint, place / "out" / other)


def stores(checkpoint: Path) -> list[tuple[int, str]]:
    """Return (operator, store) of all state stores in a checkpoint."""
    found: list[tuple[int, str]] = []
    for operator in sorted((checkpoint / "state").iterdir(), key=lambda path: path.name):
        names = [path.name for path in (operator / "0").iterdir() if path.is_dir() and "-" in path.name]
        found += [(int(operator.name), name) for name in sorted(names) or ["default"]]
    return found


def state(spark: SparkSession, stream: Stream, checkpoint: Path, provider: Provider, *, clocks: bool) -> State:
    """Return the rows of all state as sorted text, per operator, store and column family or state variable.

    RocksDB gives the bytes of keys and values: nothing can hide in them.

    Args:
        spark: The tests' session.
        stream: The query.
        checkpoint: Its checkpoint.
        provider: Where its state is.
        clocks: Whether to show what depends on the wall clock, too; without, values are shown by columns.

    """
    own = session(spark, provider, 2, {})
    found: State = {}
    for operator, store in stores(checkpoint):
        reader = own.read.format("statestore").option("operatorId", operator).option("storeName", store)
        if provider is HDFS or (stream.clocked and not clocks):
            hidden = () if clocks else stream.clocked
            for variable in stream.variables or ("",):
                frame = (reader.option("stateVarName", variable) if variable else reader).load(str(checkpoint))
                rows = [_plain(row, hidden) for row in frame.drop("partition_id").collect()]
                found[f"{operator}/{store}/{variable}"] = rows
        else:
            for row in reader.option("_readAllColumnFamilies", "true").load(str(checkpoint)).collect():
                text = f"{row.key_bytes.hex()}={row.value_bytes.hex()}"
                found.setdefault(f"{operator}/{store}/{row.column_family_name}", []).append(text)
    return {name: sorted(rows) for name, rows in found.items()}


def _plain(row: Any, hidden: tuple[str, ...]) -> str:
    fields = row.asDict(recursive=True)
    return repr({name: _without(value, hidden) for name, value in fields.items()})


def _without(value: Any, hidden: tuple[str, ...]) -> Any:
    return {key: part for key, part in value.items() if key not in hidden} if isinstance(value, dict) else value
