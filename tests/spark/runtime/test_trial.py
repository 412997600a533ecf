"""A trial says what a driver would say, before it starts, and leaves no trace."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import statecore
from statecore import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ValueStateDescriptor,
)
from statecore.errors import JobDefinitionError, StatecoreError
from statecore.model.job_parts import JobPart
from statecore.runtime import FunctionSink, Job, ParquetSink
from statecore.runtime.trial import try_job
from statecore.snapshot.checkpoints import open_savepoint
from tests.support.jobs import chain, everything, fan_out, poisoned, totals, transformed, two_inputs, visits

RECORDS = "k string, n bigint, at timestamp"
LATE = OutputTag("late", RECORDS)


@dataclass
class Counts(KeyedProcessFunction, CheckpointedFunction):
    """Has state of a type, and must not get a record."""

    type: str = "bigint"
    key: str = "string"

    def initialize_state(self, context: Any) -> None:
        self.waiting = context.operator_state_store.get_list_state(ListStateDescriptor("waiting", "bigint"))

    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", self.type))
        self.seen = ctx.get_map_state(MapStateDescriptor("seen", self.key, "bigint"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update(value.n)
        self.seen.put(value.k, value.n)
        yield value.k, value.n

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        raise AssertionError("nothing is due")

    def snapshot_state(self, context: Any) -> None:
        pass


def never(*_: Any) -> None:
    raise AssertionError("a trial publishes nothing")


@pytest.fixture
def records(tmp_path: Path, spark: Any) -> Path:
    folder = tmp_path / "records"
    rows = [("a", 1, None), ("b", 2, None)]
    spark.createDataFrame(rows, RECORDS).coalesce(1).write.parquet(str(folder))
    return folder


def job(
    records: Path,
    *,
    key: str = "k",
    order_by: tuple[str, ...] = ("at",),
    event_time: str = "at",
    late: OutputTag | None = LATE,
    condition: str = "n > 0",
    function: Any = None,
    uid: str = "counts",
) -> Job:
    def read(spark: Any) -> Any:
        return spark.readStream.schema(RECORDS).parquet(str(records))

    made = Job()
    everything = made.source("records", read, event_time)  # line of source
    positive = everything.filter(condition)  # line of filter
    keyed = positive.key_by(key, order_by=order_by)  # line of key_by
    columns = "k string, n bigint"
    counts = keyed.process(function or Counts(), columns, uid, late=late)  # line of process
    counts.sink("counts", FunctionSink(never))
    counts.sink("files", ParquetSink(records.parent / "out"))
    return made


def test_a_job_is_described_and_nothing_else_happens(spark: Any, records: Path, tmp_path: Path) -> None:
    columns = "k string, n bigint"
    assert try_job(spark, job(records), tmp_path / "scratch") == [
        JobPart("source", "records", f"FileSource[{records}]", RECORDS),
        JobPart(
            "operator",
            "counts",
            "Counts by (k string)",
            "count: value of bigint, seen: map of map<string,bigint>, waiting: list of bigint, timers",
        ),
        JobPart("sink", "counts", "FunctionSink", columns),
        JobPart("sink", "files", "ParquetSink", columns),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


@pytest.mark.parametrize(
    ("wrong", "line", "reason"),
    [
        ({"key": "kk"}, "key_by", r"found no columns \['kk'\] in the input of operator 'counts'"),
        ({"order_by": ("ats",)}, "key_by", r"found no columns \['ats'\]"),
        ({"event_time": "n"}, "source", "found a column of type bigint 'n' in source 'records'; expected a timestamp"),
        ({"event_time": "t"}, "source", "found no column 't' in source 'records'; expected a timestamp"),
        ({"condition": "m > 0"}, "filter", "a transformation of source 'records' that Spark refuses: .*`m`"),
        ({"late": OutputTag("late", "k string")}, "process", "the late output 'late' of operator 'counts'"),
        ({"function": Counts("bigin")}, None, "in open: UnsupportedTypeError: found the type 'bigin'"),
    ],
)
def test_what_only_the_schemas_show_is_refused_with_the_job_files_line(
    spark: Any, records: Path, tmp_path: Path, wrong: dict[str, Any], line: str | None, reason: str
) -> None:
    with pytest.raises(Exception, match=reason) as refused:
        try_job(spark, job(records, **wrong), tmp_path / "scratch")
    if line is not None:
        assert isinstance(refused.value, StatecoreError)
        lines = Path(__file__).read_text().splitlines()
        number = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# line of {line}"))
        assert str(refused.value).startswith(f"test_trial.py:{number}: ")


def test_a_source_that_spark_cannot_build_is_refused(spark: Any, records: Path, tmp_path: Path) -> None:
    shutil.rmtree(records)
    with pytest.raises(JobDefinitionError, match=r"^test_trial\.py:\d+: found AnalysisException in read of .*PATH_NOT"):
        try_job(spark, job(records), tmp_path / "scratch")


def test_the_state_of_a_savepoint_is_taken_up_or_refused_as_a_driver_does(
    spark: Any, records: Path, tmp_path: Path
) -> None:
    def build(made: Job) -> None:
        described = job(records)
        for operator in described.operators:
            operator.sinks.clear()
        made.sources, made.operators = described.sources, described.operators

    ended = statecore.run(build, folder=tmp_path / "runs", name="counts")
    assert ended.savepoint is not None
    manifest = open_savepoint(ended.savepoint).manifest
    before = sorted((tmp_path / "runs").rglob("*"))

    def attempt(**changed: Any) -> None:
        folder = tmp_path / "scratch"
        shutil.rmtree(folder, ignore_errors=True)
        try_job(spark, job(records, **changed), folder, manifest)

    attempt()
    # A wider type is converted.
    attempt(function=Counts("decimal(20,0)"))
    for changed, reason in (
        ({"function": Counts("string")}, "the state 'count' stored as bigint and declared as string"),
        ({"function": Counts(key="int")}, "the key type of a map cannot change"),
        ({"uid": "totals"}, r"found state of the operators \['counts'\]"),
        ({"key": "n"}, r"^test_trial\.py:\d+: .*key"),
    ):
        with pytest.raises(Exception, match=reason):
            attempt(**changed)
    assert sorted((tmp_path / "runs").rglob("*")) == before


@pytest.mark.parametrize("kind", [chain, everything, fan_out, poisoned, totals, transformed, two_inputs, visits])
def test_every_kind_of_job_can_be_tried(spark: Any, tmp_path: Path, kind: Any) -> None:
    folders = [tmp_path / name for name in ("in", "one", "other", "rules")]
    for folder in folders:
        folder.mkdir(parents=True)
    columns = "country string, name string"
    spark.createDataFrame([], columns).coalesce(1).write.parquet(str(tmp_path / "countries"))
    settings = {"folder": str(tmp_path), "input": str(folders[0]), "output": str(tmp_path / "out")}
    made = Job(settings)
    kind.build(made)
    parts = try_job(spark, made.validated(), tmp_path / "scratch")
    assert [part.name for part in parts if part.kind == "operator"] == [each.uid for each in made.operators]
    assert not (tmp_path / "out").exists()
